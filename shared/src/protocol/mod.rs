//! The protocol that posts each transaction exactly once, over ports.
//!
//! [`accept`] stores a transaction and enqueues it, [`crate::posting`] decides and commits it, [`enquire`] and [`rejections`] read,
//! and [`recover`] enqueues accepted transactions again when their message was lost. [`dead_letters`] replays and discards
//! work that could not be posted.

pub mod accept;
pub mod dead_letters;
pub mod enquire;
pub mod recover;
pub mod recovered;
pub mod rejections;
