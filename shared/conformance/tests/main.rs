//! Tests of the crate from outside, in one executable.

mod golden;
mod memory;
mod protocol;
mod sqlite;
mod verify;
