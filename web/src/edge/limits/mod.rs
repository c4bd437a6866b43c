//! What a caller may ask for: so many requests in a second, so many wrong keys, so large a head. Bodies,
//! connections and times are bounded where they are read.
//!
//! Each process counts by itself: what a partner may do with all of them together is that many times
//! more. Nobody has to ask a store for it, and no store that is away can stop a request.

pub mod concurrency;
pub mod fields;
pub mod heads;

pub use concurrency::{ConcurrencyLimit, limit_concurrency};
pub use heads::bound_heads;
