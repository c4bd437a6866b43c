#![doc = include_str!("../README.md")]

pub mod agenda;
pub mod backoff;
pub mod delivery;
pub mod disposition;
pub mod drain;
pub mod errand;
pub mod gatekeeper;
pub mod handler;
pub mod leases;
pub mod listener;
pub mod meter;
pub mod posting;
pub mod receivers;
pub mod session;
pub mod settle;
pub mod worker;
