//! Metrics of the transactions that this process has made final since its start, by the path that they took: the time
//! from acceptance to posting, and the numbers of posted and rejected transactions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::domain::transaction::Outcome;
use crate::ports::durations::Durations;

/// Upper bounds of the histogram buckets in milliseconds. Work can wait for hours while the gate is held.
const BOUNDS_MS: &[u64] =
    &[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 7_200_000];

/// The path of a transaction from its acceptance to its posting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The process that received the request posted it at once.
    Immediate,
    /// A worker received the transaction from the queue.
    Queued,
    /// The transaction is an item of a batch.
    Batch,
}

impl Way {
    /// Every path.
    pub const ALL: [Self; 3] = [Self::Immediate, Self::Queued, Self::Batch];

    /// Returns the label in metrics, such as `immediate`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Queued => "queued",
            Self::Batch => "batch",
        }
    }
}

/// Numbers of transactions that became final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decided {
    /// Number of posted transactions.
    pub posted: u64,
    /// Number of rejected transactions.
    pub rejected: u64,
}

/// The metrics of one path.
#[derive(Debug)]
struct OfWay {
    durations: Durations,
    posted: AtomicU64,
    rejected: AtomicU64,
}

impl Default for OfWay {
    fn default() -> Self {
        Self { durations: Durations::new(BOUNDS_MS), posted: AtomicU64::new(0), rejected: AtomicU64::new(0) }
    }
}

/// Durations and counts of the transactions that this process has made final since its start.
#[derive(Debug, Default)]
pub struct PostingLatency {
    immediate: OfWay,
    queued: OfWay,
    /// Durations start at the acceptance of the batch.
    batch: OfWay,
}

impl PostingLatency {
    /// Records the time from acceptance to posting of `count` transactions.
    pub fn record(&self, way: Way, took: Duration, count: usize) {
        self.of(way).durations.record(took, count);
    }

    /// Counts the outcomes of a written commit.
    pub fn count<'o>(&self, way: Way, outcomes: impl IntoIterator<Item = &'o Outcome>) {
        let OfWay { durations: _, posted, rejected } = self.of(way);
        for outcome in outcomes {
            let counter = match outcome {
                Outcome::Posted { .. } => posted,
                Outcome::Rejected { .. } => rejected,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of posted and rejected transactions of a path.
    pub fn decided(&self, way: Way) -> Decided {
        let OfWay { durations: _, posted, rejected } = self.of(way);
        Decided { posted: posted.load(Ordering::Relaxed), rejected: rejected.load(Ordering::Relaxed) }
    }

    /// Returns the durations of each path, with its label.
    pub fn by_way(&self) -> [(&'static str, &Durations); 3] {
        Way::ALL.map(|way| (way.code(), &self.of(way).durations))
    }

    const fn of(&self, way: Way) -> &OfWay {
        match way {
            Way::Immediate => &self.immediate,
            Way::Queued => &self.queued,
            Way::Batch => &self.batch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::rejection::RejectReason;
    use crate::domain::time::Timestamp;

    #[test]
    fn outcomes_are_counted_by_way_and_result() {
        let latency = PostingLatency::default();
        let rejected = Outcome::Rejected {
            reason: RejectReason::AccountClosed,
            rejected_at: Timestamp::from_unix_ms(0),
            version: None,
        };
        latency.count(Way::Queued, [&rejected, &rejected]);
        latency.record(Way::Queued, Duration::from_millis(3), 2);
        assert_eq!(latency.decided(Way::Queued), Decided { posted: 0, rejected: 2 });
        assert_eq!(latency.decided(Way::Batch), Decided::default());
        assert_eq!(latency.by_way().map(|(way, _)| way), ["immediate", "queued", "batch"]);
    }
}
