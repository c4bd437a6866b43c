#![doc = include_str!("../README.md")]

pub mod backoff;
pub mod delivery;
pub mod drain;
pub mod listener;
pub mod meter;
pub mod settle;
pub mod worker;
