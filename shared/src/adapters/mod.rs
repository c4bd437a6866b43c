//! The ports, kept in three ways. [`memory`] is the simplest correct one and the reference;
//! [`sqlite`] is one machine; [`azure`] is everything past that. [`crate::testing::conformance`] holds all
//! three to the same contract. [`http`] is how the processes of one bank call each other.

pub mod azure;
pub mod http;
pub mod local_doorbell;
pub mod memory;
pub mod page_body;
mod partner_body;
pub mod sqlite;
pub mod system;
