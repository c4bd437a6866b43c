//! Properties of the embedded store only: a file, a schema version, one lock for several processes, and
//! queue messages that are written together with the accepted transactions. Two stores on one file stand
//! for two processes, because SQLite locks between connections.
#![expect(clippy::unwrap_used, reason = "test code")]

#[path = "sqlite/backup.rs"]
mod backup;
#[path = "sqlite/file.rs"]
mod file;
#[path = "sqlite/fixture.rs"]
mod fixture;
#[path = "sqlite/ledger.rs"]
mod ledger;
#[path = "sqlite/private_files.rs"]
mod private_files;
#[path = "sqlite/queue.rs"]
mod queue;
#[path = "sqlite/restore.rs"]
mod restore;
#[path = "sqlite/restored_access.rs"]
mod restored_access;
#[path = "sqlite/small_ports.rs"]
mod small_ports;
