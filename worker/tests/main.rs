//! Tests of the crate from outside, in one executable.

mod listening;
mod peers;
mod posting;
