//! Distributions of durations, as counts in ranges.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of the lowest fine range, up to about a microsecond.
const FINE_FIRST: i32 = -80;
/// Position of the last fine range, which ends at 1024 seconds. Longer durations count in it.
const FINE_LAST: usize = 120;
/// Number of fine ranges in which the bound doubles.
const FINE_STEPS: i32 = 4;
/// `2^(n/4)` seconds in nanoseconds, for `n` from 0 to 3.
const FRACTIONS: [u128; 4] = [1_000_000_000, 1_189_207_115, 1_414_213_562, 1_681_792_831];
const NS_PER_MS: u128 = 1_000_000;

/// The number of durations in each range, since the start of the process. Integers only, and without locks: durations are
/// recorded where money is posted.
#[derive(Debug)]
pub struct Durations {
    bounds_ms: &'static [u64],
    /// The bounds of the ranges and of the fine ranges, in ascending order. Each duration has one count, from which those of both
    /// are calculated: so they agree.
    bounds_ns: Box<[u128]>,
    /// One count for each bound, and one for longer durations.
    counts: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

/// The values of [`Durations`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationsSnapshot {
    /// Upper bound of each range in milliseconds, and the number of durations in it; `None` is the range without a bound.
    pub ranges: Vec<(Option<u64>, u64)>,
    /// The number of the first fine range that is not empty, and the counts from there to the last one that is not. The fine range
    /// `n` ends at `2^(n/4)` seconds (inclusive), as in schema 2 of the native histograms of Prometheus.
    pub fine: (i32, Vec<u64>),
    /// The sum in microseconds.
    pub sum_us: u64,
}

impl Durations {
    /// Creates counts of zero for ranges up to these bounds (inclusive) in milliseconds, in ascending order.
    pub fn new(bounds_ms: &'static [u64]) -> Self {
        let fine = (0..=FINE_LAST).map(fine_bound_ns);
        let mut bounds_ns: Vec<u128> = fine.chain(bounds_ms.iter().map(|bound| in_ns(*bound))).collect();
        bounds_ns.sort_unstable();
        bounds_ns.dedup();
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds_ns.len().saturating_add(1));
        Self { bounds_ms, counts: counts.collect(), bounds_ns: bounds_ns.into(), sum_us: AtomicU64::new(0) }
    }

    /// Records a duration that was measured `count` times.
    pub fn record(&self, duration: Duration, count: usize) {
        let count = u64::try_from(count).unwrap_or(0);
        let ns = duration.as_nanos();
        if let Some(counted) = self.counts.get(self.bounds_ns.partition_point(|bound| *bound < ns)) {
            counted.fetch_add(count, Ordering::Relaxed);
        }
        let sum_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).saturating_mul(count);
        self.sum_us.fetch_add(sum_us, Ordering::Relaxed);
    }

    /// Returns the current values.
    pub fn snapshot(&self) -> DurationsSnapshot {
        let mut ranges = vec![0_u64; self.bounds_ms.len().saturating_add(1)];
        let mut fine = vec![0_u64; FINE_LAST.saturating_add(1)];
        let (mut range, mut fine_range) = (0_usize, 0_usize);
        let ends = self.bounds_ns.iter().copied().chain([u128::MAX]);
        for (end, count) in ends.zip(&self.counts) {
            while self.bounds_ms.get(range).is_some_and(|bound| in_ns(*bound) < end) {
                range = range.saturating_add(1);
            }
            while fine_range < FINE_LAST && fine_bound_ns(fine_range) < end {
                fine_range = fine_range.saturating_add(1);
            }
            let count = count.load(Ordering::Relaxed);
            for counted in ranges.get_mut(range).into_iter().chain(fine.get_mut(fine_range)) {
                *counted = counted.saturating_add(count);
            }
        }
        let first = fine.iter().position(|count| *count > 0).unwrap_or(fine.len());
        let after = fine.iter().rposition(|count| *count > 0).map_or(first, |last| last.saturating_add(1));
        DurationsSnapshot {
            ranges: self.bounds_ms.iter().copied().map(Some).chain([None]).zip(ranges).collect(),
            fine: (number_of(first), fine.get(first..after).unwrap_or_default().to_vec()),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

fn in_ns(ms: u64) -> u128 {
    u128::from(ms).saturating_mul(NS_PER_MS)
}

/// Returns the number of the fine range at a position.
fn number_of(position: usize) -> i32 {
    FINE_FIRST.saturating_add(i32::try_from(position).unwrap_or(i32::MAX))
}

/// Returns the upper bound of a fine range.
fn fine_bound_ns(position: usize) -> u128 {
    let number = number_of(position);
    let fraction =
        usize::try_from(number.rem_euclid(FINE_STEPS)).ok().and_then(|n| FRACTIONS.get(n).copied());
    let (fraction, doublings) = (fraction.unwrap_or_default(), number.div_euclid(FINE_STEPS));
    if doublings < 0 { fraction >> doublings.unsigned_abs() } else { fraction << doublings.unsigned_abs() }
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
        let DurationsSnapshot { ranges, sum_us, .. } = durations.snapshot();
        assert_eq!((ranges, sum_us), (vec![(Some(1), 2), (Some(10), 3), (None, 1)], 2_004_003));
    }

    #[test]
    fn fine_ranges_end_at_quarters_of_a_doubling() {
        let range_of = |duration: Duration| {
            let durations = Durations::new(&[]);
            durations.record(duration, 2);
            let (range, counts) = durations.snapshot().fine;
            assert_eq!(counts, [2]);
            range
        };
        assert_eq!(range_of(Duration::from_secs(1)), 0);
        assert_eq!(range_of(Duration::from_nanos(1_000_000_001)), 1);
        assert_eq!(range_of(Duration::from_nanos(1_189_207_115)), 1);
        assert_eq!(range_of(Duration::from_secs(2)), 4);
        assert_eq!(range_of(Duration::from_millis(500)), -4);
        assert_eq!(range_of(Duration::from_millis(501)), -3);
        assert_eq!((range_of(Duration::ZERO), range_of(Duration::from_secs(100_000))), (-80, 40));

        let durations = Durations::new(&[]);
        assert!(durations.snapshot().fine.1.is_empty());
        durations.record(Duration::from_secs(1), 1);
        durations.record(Duration::from_secs(2), 3);
        assert_eq!(durations.snapshot().fine, (0, vec![1, 0, 0, 0, 3]));
    }
}
