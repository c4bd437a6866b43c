#![doc = include_str!("../README.md")]

pub mod activity;
pub mod background_task;
pub mod build;
pub mod drain;
pub mod health;
pub mod http;
pub mod meter;
pub mod metrics;
pub mod process_gate;
pub mod readiness;
pub mod runtime;
pub mod signals;
pub mod upkeep;
