//! The audit finds every change of a ledger, and reports none that was not made.
#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "test code")]

mod account_rows;
mod anchored_rows;
mod anchors;
mod audit_trail;
mod concurrent;
mod copies;
mod damaged;
mod decisions;
mod properties;
mod stores;
mod tampered;
