//! Tests of the crate from outside, in one executable.

mod memory;
mod protocol;
mod sqlite;
mod verify;
