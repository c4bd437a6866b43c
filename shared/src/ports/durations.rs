//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NS_PER_MS: u128 = 1_000_000;

/// A histogram of durations since the start of the process. It uses integers and no locks, because durations are recorded
/// on the posting path.
#[derive(Debug)]
pub struct Durations {
    bounds_ms: &'static [u64],
    /// One count per bound, and one for durations above the last bound.
    counts: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

/// The values of [`Durations`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationsSnapshot {
    /// Upper bound of each range in milliseconds, with the number of durations in it; `None` for the unbounded range.
    pub ranges: Vec<(Option<u64>, u64)>,
    /// The sum of all durations in microseconds.
    pub sum_us: u64,
}

impl Durations {
    /// Creates counts of zero for ranges up to these bounds (inclusive) in milliseconds, in ascending order.
    pub fn new(bounds_ms: &'static [u64]) -> Self {
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds_ms.len().saturating_add(1));
        Self { bounds_ms, counts: counts.collect(), sum_us: AtomicU64::new(0) }
    }

    /// Records a duration `count` times.
    pub fn record(&self, duration: Duration, count: usize) {
        let count = u64::try_from(count).unwrap_or(0);
        let ns = duration.as_nanos();
        if let Some(counted) = self.counts.get(self.bounds_ms.partition_point(|bound| in_ns(*bound) < ns)) {
            counted.fetch_add(count, Ordering::Relaxed);
        }
        let sum_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).saturating_mul(count);
        self.sum_us.fetch_add(sum_us, Ordering::Relaxed);
    }

    /// Returns the current values.
    pub fn snapshot(&self) -> DurationsSnapshot {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        DurationsSnapshot {
            ranges: self.bounds_ms.iter().copied().map(Some).chain([None]).zip(counts).collect(),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

fn in_ns(ms: u64) -> u128 {
    u128::from(ms).saturating_mul(NS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_range_that_includes_it() {
        let durations = Durations::new(&[1, 10]);
        durations.record(Duration::ZERO, 1);
        durations.record(Duration::from_millis(1), 1);
        durations.record(Duration::from_micros(1001), 3);
        durations.record(Duration::from_millis(10), 0);
        durations.record(Duration::from_secs(2), 1);
        let DurationsSnapshot { ranges, sum_us } = durations.snapshot();
        assert_eq!((ranges, sum_us), (vec![(Some(1), 2), (Some(10), 3), (None, 1)], 2_004_003));
    }
}
