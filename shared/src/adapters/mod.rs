//! Implementations of the ports. [`memory`] is the simplest one and the reference; [`sqlite`] stores everything on one
//! machine; [`azure`] is for several machines. The crate `postonce-conformance` tests all three against the same
//! contract. [`http`] contains the requests between the processes of one bank, and [`otlp`] sends spans to a collector.

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
