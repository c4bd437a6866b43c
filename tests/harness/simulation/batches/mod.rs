//! Batches among the single requests of a simulated world.
//!
//! - [`clients`] submit small batches, read and cancel them, and read results;
//! - [`ports`] connects the records and the payloads of a process with the store;
//! - [`auditor`] checks each change of a batch by its own rules, against the [`documents`] that clients sent;
//! - [`counts`] lists the events that must occur;
//! - [`mistakes`] contains the mutations of batches;
//! - [`adversary`] forges messages.

pub mod adversary;
pub mod auditor;
mod checks;
pub mod clients;
pub mod counts;
pub mod documents;
pub mod mistakes;
pub mod ports;
