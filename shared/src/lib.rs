#![doc = include_str!("../README.md")]

pub mod domain;

pub mod text;

pub mod ports;

pub mod tracer;

pub mod backoff;

pub mod files;

pub mod panic_text;

pub mod printable;

pub mod cluster;

pub mod messaging;

pub mod access;

pub mod posting;

pub mod protocol;

pub mod batches;

pub mod oversight;

pub mod bank;

pub mod adapters;

pub mod config;

pub mod store;

pub mod telemetry;

pub mod command_output;

pub mod testing;
