//! The worker over the memory adapter: how messages, and the work in them, are posted and settled.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "test code"
)]

mod attacks;
mod batch_attempts;
mod claims;
pub mod fixture;
mod listener;
mod lone_attempts;
mod regressions;
mod settle;
mod unsealed;
