//! Periodic tasks of every process, and its checks at the start.

pub mod activity;
pub mod deleted_queues;
pub mod disk;
pub mod heartbeat;
pub mod membership;
pub mod posted_numbers;
pub mod scheduled_backup;
pub mod secret_check;
pub mod trace_export;
