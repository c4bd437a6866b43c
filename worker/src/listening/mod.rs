//! Receives messages from the queues of one kind of work. It reacts to rings, polls rarely when idle, and runs several
//! receivers for a queue with much work.

pub mod delivery;
pub mod handler;
pub mod leases;
pub mod listener;
pub mod lone_attempts;
pub mod poll_schedule;
pub mod receivers;
pub mod renewal;
pub mod safety_poll;
pub mod session;
pub mod settler;
