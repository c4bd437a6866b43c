//! The embedded store: the contract of the ports, and properties of it only: a file, a schema version, one lock for
//! several processes, and queue messages that are written together with the accepted transactions. Two stores on one file
//! stand for two processes, because SQLite locks between connections.
#![expect(clippy::unwrap_used, reason = "test code")]

mod attack;
mod backup;
mod contract;
mod file;
mod fixture;
mod ledger;
mod lost_files;
mod private_files;
mod queue;
mod restore;
mod restored_access;
mod small_ports;
