//! Implementations of the ports. [`memory`] is the simplest and serves as the reference. [`sqlite`] stores everything
//! on one machine, and [`azure`] serves several machines. The crate `postonce-conformance` tests all three against the
//! same contract. [`http`] sends requests between the processes of one bank, and [`otlp`] exports spans to a collector.

mod authorities;
pub mod azure;
mod bounded_body;
pub mod http;
pub mod local_doorbell;
pub mod memory;
pub mod otlp;
pub mod page_body;
pub mod sqlite;
pub mod system;
