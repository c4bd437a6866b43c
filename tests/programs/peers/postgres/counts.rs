//! Counts of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counts {
    posted: AtomicU64,
    round_trips: AtomicU64,
}

impl Counts {
    /// Counts posted transactions: committed, and not repetitions.
    pub fn posted(&self, count: u64) {
        self.posted.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a statement: a round trip, and one database transaction.
    pub fn round_trip(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    /// Transactions posted, and round trips to the database.
    pub fn read(&self) -> (u64, u64) {
        (self.posted.load(Ordering::Relaxed), self.round_trips.load(Ordering::Relaxed))
    }
}
