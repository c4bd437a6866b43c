//! The harness of the end-to-end tests: Azurite, the real binaries as processes, an HTTP client that checks every response
//! against its [contract](contracts), proxies that make a service unavailable, workers that crash at a named point, an
//! independent auditor, and chaos tests that combine them. It also contains the bank in a [simulated world](simulation),
//! its protocol as a [model] for a model checker, and the properties that hold for [hostile input](hostile).
//!
//! Everything listens on loopback only. No started process outlives the test process, however that ends
//! ([`process_guard`]). Every wait has a condition and a deadline ([`wait`]). The harness is test code: on an error it panics
//! with a message, and the logs of the processes are printed with the failure.

pub mod wait;

pub mod process_guard;

pub mod prelude;
pub mod process;

pub mod workspace;

pub mod binaries;

pub mod installation;

pub mod npm;

pub mod azurite_install;

pub mod python;

pub mod azurite;

pub mod debian;

pub mod java;

pub mod deployment;

pub mod postgres_install;

pub mod postgres;

pub mod browser;

pub mod promtool;

pub mod systemd;

pub mod images;

pub mod container;

pub mod collector;

pub mod dead_letters;

pub mod proxy;

pub mod scripted_proxy;

pub mod storage_proxy;

pub mod fake_storage;

pub mod endpoints;

pub mod service;

pub mod contracts;

pub mod client;

pub mod certificates;

pub mod entra;

pub mod shared_access;

pub mod signer;

pub mod raw_http;

pub mod process_probe;

pub mod gate;

pub mod faults;

pub mod scenario;

pub mod load;

pub mod auditor;
pub mod journal;

pub mod attack_findings;
pub mod forger;
pub mod soap;
pub mod tables;
pub mod tamper;

pub mod verify;

pub mod chaos;

pub mod model;

pub mod samples;

pub mod dialects;

pub mod hostile;

pub mod floods;

pub mod simulation;
