#![doc = include_str!("../README.md")]

pub mod domain;

pub mod ports;

pub mod adapters;
#[cfg(feature = "conformance")]
pub mod conformance;
