//! Worlds in which the bank stores its rows through the adapter for Azure Storage. It is the production adapter with its
//! retries, read-backs and nonces; only its wire is simulated.
//!
//! - [`tables`] is a table service in memory, which executes real requests;
//! - [`wire`] connects the adapter of a process with it, over a network with faults;
//! - [`ports`] are the ports of a process: the auditor checks the store after every write, and the responses (`answers`);
//! - [`mistakes`] makes the adapter behave as if it had a mistake, by changing its input.
//!
//! Queues and payloads are those of the memory adapter.

mod answers;
pub mod mistakes;
pub mod ports;
pub mod tables;
pub mod wire;
