//! Receives messages from the queues of one kind of work: wakes on a ring, polls rarely when idle, and runs several
//! receivers for each queue that has work.

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
