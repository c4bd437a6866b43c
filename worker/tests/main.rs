//! Tests of the crate from outside, in one executable.

mod listening;
mod posting;
