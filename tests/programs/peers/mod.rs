//! The services that the benchmark compares the bank with.

pub mod classic;
pub mod postgres;
