//! What was done, counted in the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counts {
    posted: AtomicU64,
    round_trips: AtomicU64,
}

impl Counts {
    /// One transaction was posted: committed, not found again.
    pub fn posted(&self) {
        self.posted.fetch_add(1, Ordering::Relaxed);
    }

    /// One statement is sent to the database: a round trip, and a database transaction of its own.
    pub fn round_trip(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    /// Transactions posted, and round trips to the database.
    pub fn read(&self) -> (u64, u64) {
        (self.posted.load(Ordering::Relaxed), self.round_trips.load(Ordering::Relaxed))
    }
}
