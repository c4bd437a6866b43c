#![doc = include_str!("../README.md")]

pub mod activity;
pub mod background_task;
pub mod build;
pub mod config;
pub mod drain;
pub mod health;
pub mod meter;
pub mod metrics;
pub mod readiness;

pub mod listening;

pub mod posting;

pub mod batches;

pub mod upkeep;

pub mod http;

pub mod worker;

pub mod signals;

pub mod runtime;

pub mod process;

pub mod supervisor;
