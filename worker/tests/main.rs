//! Tests of the crate from outside, in one executable.

mod ingest;
mod listening;
mod posting;
