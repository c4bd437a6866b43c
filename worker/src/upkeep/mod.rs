//! Periodic work of a process beside posting.

pub mod activity;
pub mod deleted_queues;
pub mod disk;
pub mod heartbeat;
pub mod legacy_partner;
pub mod payload_sweep;
pub mod posted_numbers;
pub mod queue_growth;
pub mod scheduled_backup;
pub mod secret_check;
pub mod trace_export;
