//! The protocol that posts each transaction exactly once, independent of the store.
//!
//! [`accept`] stores a transaction and enqueues it, and [`crate::posting`] decides and commits it. [`enquire`] and
//! [`rejections`] read. [`recover`] enqueues accepted transactions again whose message was lost. [`dead_letters`]
//! replays and discards work that could not be posted.

pub mod accept;
pub mod dead_letters;
pub mod enquire;
pub mod recover;
pub mod recovery_horizon;
pub mod rejections;
