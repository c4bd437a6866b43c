//! The protocol that posts each transaction exactly once, over ports.
//!
//! [`accept`] stores a transaction and enqueues it, [`post`] decides and commits it, [`enquire`] and [`rejections`] read,
//! and [`recover`] enqueues accepted transactions again when their message was lost. [`dead_letters`] replays and discards
//! work that could not be posted. [`immediate`] does both halves in one step for requests that wait. The other modules reduce the
//! cost: one write for many requests ([`group_commit`]), order numbers from ranges ([`order_numbers`]), and at most one
//! posting at a time for each account in a process ([`account_locks`], [`account_cache`]). [`singles`] counts the
//! requests in progress, which batches make way for, [`posting_latency`] measures how long requests took and counts them, [`posted_numbers`]
//! records order numbers for finding transactions, and [`traced`] records the writes to the ledger in traces.

pub mod accept;
pub mod account_cache;
pub mod account_locks;
pub mod dead_letters;
pub mod enquire;
pub mod group_commit;
pub mod immediate;
pub mod order_numbers;
pub mod post;
pub mod posted_numbers;
pub mod posting_latency;
pub mod recover;
pub mod recovered;
pub mod rejections;
pub mod singles;
pub mod traced;
