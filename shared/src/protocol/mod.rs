//! The protocol that posts each transaction exactly once, over ports.
//!
//! [`accept`] stores a transaction and enqueues it, [`post`] decides and commits it, [`enquire`] reads, and
//! [`recover`] enqueues accepted transactions again that have no message. [`dead_letters`] replays and discards
//! work that could not be posted. The other modules make these cheap: one write for many requests
//! ([`group_commit`]), order numbers from ranges ([`order_numbers`]), and one posting at a time for each account of a
//! process ([`account_turns`], [`account_cache`]).

pub mod accept;
pub mod account_cache;
pub mod account_turns;
pub mod dead_letters;
pub mod enquire;
pub mod group_commit;
pub mod order_numbers;
pub mod post;
pub mod recover;
