//! Worlds in which the bank stores its rows through the adapter for Azure Storage. The adapter is the one of
//! production, with its retries, read-backs and nonces; only its wire is simulated.
//!
//! - [`tables`] is a table service in memory, which carries out real requests;
//! - [`wire`] connects the adapter of a process with it, over the network with its faults;
//! - [`ports`] are the ports of a process: the auditor checks the store after every write, and the answers (`answers`);
//! - [`mistakes`] makes the adapter behave as if it had a mistake, by changing what it sees.
//!
//! Queues and payloads remain those of the memory adapter.

mod answers;
pub mod mistakes;
pub mod ports;
pub mod tables;
pub mod wire;
