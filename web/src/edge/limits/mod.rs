//! Limits of requests: concurrency, size of the headers, and the rate limit headers. Bodies, connections and times
//! are limited where they are read.
//!
//! Each process counts on its own, so the limit of a partner is multiplied by the number of processes. In return, no
//! limit needs a store access, and requests do not fail because the store is unavailable.

pub mod concurrency;
pub mod fields;
pub mod heads;

pub use concurrency::{ConcurrencyLimit, limit_concurrency};
pub use heads::bound_heads;
