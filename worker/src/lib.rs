#![doc = include_str!("../README.md")]

pub mod config;

pub mod listening;

pub mod posting;

pub mod ingest;

pub mod batches;

pub mod upkeep;

pub mod worker;

pub mod process;

pub mod supervisor;
