//! The time from the acceptance of transactions to their posting, by the way that they took.

use crate::ports::durations::Durations;

/// Upper bounds of the ranges in milliseconds. Work can wait for hours while the gate is held.
const BOUNDS_MS: &[u64] =
    &[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 7_200_000];

/// The time from acceptance to posting of the transactions that this process made final since its start.
#[derive(Debug)]
pub struct PostingLatency {
    /// Requests that were posted by the process that received them.
    pub immediate: Durations,
    /// Requests that took the queue.
    pub queued: Durations,
    /// Items of batches, from the acceptance of the batch.
    pub batch: Durations,
}

impl Default for PostingLatency {
    fn default() -> Self {
        let [immediate, queued, batch] = std::array::from_fn(|_| Durations::new(BOUNDS_MS));
        Self { immediate, queued, batch }
    }
}

impl PostingLatency {
    /// Returns the durations with the name of the way.
    pub fn by_way(&self) -> [(&'static str, &Durations); 3] {
        [("immediate", &self.immediate), ("queued", &self.queued), ("batch", &self.batch)]
    }
}
