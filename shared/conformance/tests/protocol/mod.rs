//! The protocol over the memory adapter: accept, post, recover and the dead letter office, over stores
//! with faults.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::arithmetic_side_effects,
    reason = "test code"
)]

mod accept;
mod anchors;
mod batches;
mod dead_letters;
mod direct;
mod failover;
mod fixture;
mod gate;
mod immediate;
mod immediate_races;
mod mutation_gaps;
mod numbers;
mod payloads;
mod post;
mod recover;
mod refusals;
mod regressions;
mod rejections;
mod rights;
mod scrubber;
mod waiting;
