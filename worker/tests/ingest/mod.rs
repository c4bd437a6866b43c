//! Orders of direct producers over the memory adapter: from the ingest queue to the posting.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "test code"
)]

mod delivery;
mod fixture;
mod polling;
mod terms;
