//! The worker over the memory adapter: what becomes of messages, and of the work in them.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "test code"
)]

mod attacks;
mod claims;
mod direct;
mod listener;
mod regressions;
mod settle;
mod stage;
mod unsealed;
