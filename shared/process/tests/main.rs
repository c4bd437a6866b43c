//! Tests of the crate from outside, in one executable.

mod peers;
