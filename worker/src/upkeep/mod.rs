//! Periodic tasks of a worker besides posting, and its checks at the start.

pub mod legacy_partner;
pub mod payload_sweep;
pub mod queue_growth;
