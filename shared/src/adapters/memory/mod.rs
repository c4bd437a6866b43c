//! The reference adapter, in memory.
