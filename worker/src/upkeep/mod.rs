//! Periodic tasks of a worker besides posting.

pub mod payload_sweep;
pub mod queue_growth;
