//! The ports, kept in three ways. [`memory`] is the simplest correct one and the reference;
//! [`sqlite`] is one machine; [`azure`] is everything past that. [`crate::conformance`] holds all
//! three to the same contract.

pub mod azure;
pub mod bell;
pub mod memory;
pub mod open;
pub mod page_body;
pub mod sqlite;
pub mod system;

/// Log directives that hold whatever is asked for: these libraries write whole requests at level
/// debug, with names and references of customers in them.
pub const QUIET: [&str; 3] = ["azure_core=info", "azure_storage=info", "azure_data_tables=info"];
