//! What the end-to-end tests stand on: Azurite, the real binaries as processes, a client of the
//! HTTP API that holds every answer to its [contract](contracts), proxies that take a service away,
//! workers that die at a named point, an auditor that keeps books of its own, and chaos made of all
//! of them. Beside them stand the bank in a [simulated world](simulation), its protocol as a
//! [model](model) for a checker, and what must hold for [hostile input](hostile).
//!
//! Everything listens on loopback only. Nothing that is started here outlives the test process,
//! however that ends ([`reaper`]). Every wait is for a condition, with a deadline ([`wait`]). The
//! harness is test code: where it cannot go on it panics, with what it was about to do, and the
//! logs of the processes are printed with the failure.

pub mod wait;

pub mod reaper;

pub mod process;

pub mod workspace;

pub mod binaries;

pub mod azurite_install;

pub mod python;

pub mod azurite;

pub mod postgres_install;

pub mod postgres;

pub mod proxy;

pub mod service;

pub mod contracts;

pub mod client;

pub mod certificates;

pub mod signer;

pub mod raw_http;

pub mod vitals;

pub mod gate;

pub mod faults;

pub mod scenario;

pub mod auditor;

pub mod breaches;
pub mod forger;
pub mod soap;
pub mod tamper;

pub mod verify;

pub mod chaos;

pub mod model;

pub mod samples;

pub mod dialects;

pub mod hostile;

pub mod simulation;
