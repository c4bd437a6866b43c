#![doc = include_str!("../README.md")]

pub mod domain;

pub mod ports;

pub mod accept;
pub mod completions;
pub mod envelope;
pub mod group_commit;

pub mod adapters;
#[cfg(feature = "conformance")]
pub mod conformance;
