//! Counts open dead letters for metrics, in the process that scrubs.

use std::time::Duration;

use tracing::warn;

use super::report::{OpenLetters, ScrubberStatus};
use crate::ports::Store;
use crate::ports::fault::chain;
use crate::ports::world::World;

const INTERVAL_MIN: Duration = Duration::from_secs(10 * 60);
/// Minimum interval between two counts in reads of a round, so that counting takes a small part of the daily operations.
const READS_PER_COUNT: u32 = 4;

/// Counts the open dead letters from time to time.
#[derive(Debug, Default)]
pub(super) struct LetterCount {
    counted: Option<Duration>,
}

impl LetterCount {
    /// Counts the letters if that is due. `interval` is the time between two reads of the scrubber.
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
