//! The audit: it finds every change of a ledger, and never one that was not made.
#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "test code")]

mod books;
mod damaged;
mod moving;
mod properties;
mod tampered;
mod whole;
