//! Tests of the crate from outside, in one executable. A module of another name than an adapter's is over the memory adapter.

mod azure;
mod memory;
mod protocol;
mod sqlite;
mod verify;
