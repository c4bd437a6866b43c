//! Limits of requests: concurrency, size of the headers, and the rate limit headers. Bodies, connections and times
//! are limited where they are read.
//!
//! Each process counts on its own, so the limit of a partner over all processes is a multiple. In return, no limit
//! needs a store access, and an unavailable store stops no request.

pub mod concurrency;
pub mod fields;
pub mod heads;

pub use concurrency::{ConcurrencyLimit, limit_concurrency};
pub use heads::bound_heads;
