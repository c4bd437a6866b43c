//! Work that a process does periodically beside posting.

pub mod heartbeat;
pub mod payload_sweep;
