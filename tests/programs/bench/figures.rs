//! Printed figures: ratios, percentiles, counts of operations.

use std::collections::BTreeMap;
use std::time::Duration;

/// Counts by service and operation.
pub type Counts = BTreeMap<String, u64>;

/// The counts between two readings.
pub fn difference(after: &Counts, before: &Counts) -> Counts {
    let spent = |(kind, count): (&String, &u64)| {
        (kind.clone(), count.saturating_sub(before.get(kind).copied().unwrap_or(0)))
    };
    after.iter().map(spent).filter(|(_, count)| *count > 0).collect()
}

/// A ratio with two decimals.
pub fn ratio(count: u64, of: u64) -> String {
    decimal(count.saturating_mul(100).checked_div(of).unwrap_or(0))
}

/// Hundredths as a number with two decimals.
pub fn decimal(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths.div_euclid(100), hundredths.rem_euclid(100))
}

/// The rate of a count in a time, per second.
pub fn per_second(count: u64, took: Duration) -> u64 {
    let rate = u128::from(count).saturating_mul(1_000_000).checked_div(took.as_micros()).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// In whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// In milliseconds with one decimal.
pub fn ms(duration: Duration) -> String {
    let tenths = duration.as_micros().div_euclid(100);
    format!("{}.{}", tenths.div_euclid(10), tenths.rem_euclid(10))
}

/// The smallest duration that is not exceeded by `percent` of the sorted durations.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = sorted.len().saturating_mul(percent).div_ceil(100).max(1);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let sorted: Vec<Duration> = (1..=60).map(Duration::from_millis).collect();
        let check = |percent, expected| {
            assert_eq!(percentile(&sorted, percent), Duration::from_millis(expected), "p{percent}");
        };
        check(50, 30);
        check(90, 54);
        check(99, 60);
        check(100, 60);
        assert_eq!(percentile(&[], 50), Duration::ZERO);
        assert_eq!(ms(Duration::from_micros(12_345)), "12.3");
    }
}
