//! The number of open dead letters, as the process that scrubs counts it for metrics.

use std::time::Duration;

use tracing::warn;

use super::report::{OpenLetters, ScrubberStatus};
use crate::ports::Store;
use crate::ports::fault::chain;
use crate::ports::world::World;

/// Shortest interval between two counts.
const INTERVAL_MIN: Duration = Duration::from_secs(10 * 60);
/// A count is made at most after this many reads of a round, so that it takes a small part of the operations of a day.
const READS_PER_COUNT: u32 = 4;

/// Counts the open dead letters from time to time.
#[derive(Debug, Default)]
pub(super) struct LetterCount {
    /// Uptime of the last count.
    counted: Option<Duration>,
}

impl LetterCount {
    /// Counts them if that is due, in a step of a scrubber that reads once in `interval`.
    pub(super) async fn refresh(
        &mut self,
        store: &Store,
        world: &dyn World,
        (status, interval): (&ScrubberStatus, Duration),
    ) {
        let uptime = world.uptime();
        let least = interval.saturating_mul(READS_PER_COUNT).max(INTERVAL_MIN);
        if self.counted.is_some_and(|counted| uptime.saturating_sub(counted) < least) {
            return;
        }
        self.counted = Some(uptime);
        status.operations.add(1);
        match store.dead_letters.count_open().await {
            Ok(open) => {
                let count = open.into_iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(count));
                status.set_open_letters(Some(OpenLetters { count, counted_at: world.now() }));
            }
            Err(fault) => warn!("The open dead letters could not be counted: {}", chain(&fault)),
        }
    }
}
