//! The clock of this process, compared with the clock of the store. Clocks of processes differ; the store has one clock
//! for all of them.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use crate::domain::time::Timestamp;

/// Certain skew above which a warning is due.
const WARNING_SKEW_MS: i64 = 1_000;
const WARNING_INTERVAL: Duration = Duration::from_secs(600);
/// Responses contain the time of the store in whole seconds, rounded down.
const RESOLUTION_MS: i64 = 1_000;

/// How far the clock of this process is ahead of the clock of the store, as a range that contains the true value. Negative
/// values are behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSkew {
    /// The smallest possible value, in milliseconds.
    pub min_ms: i64,
    /// The largest possible value, in milliseconds.
    pub max_ms: i64,
}

impl ClockSkew {
    /// The skew of a process that shares the clock of the store.
    pub const NONE: Self = Self { min_ms: 0, max_ms: 0 };

    /// Computes the skew from one response, which the store created at `date` (rounded down to a second) within the
    /// `round_trip` before `received`.
    pub fn of_response(date: Timestamp, received: Timestamp, round_trip: Duration) -> Self {
        let max_ms = received.unix_ms().saturating_sub(date.unix_ms());
        let trip_ms = i64::try_from(round_trip.as_millis()).unwrap_or(i64::MAX);
        // One more millisecond, because timestamps and durations are rounded down.
        let width_ms = trip_ms.saturating_add(RESOLUTION_MS).saturating_add(1);
        Self { min_ms: max_ms.saturating_sub(width_ms), max_ms }
    }

    /// Returns the certain part of the skew: the possible value nearest to zero.
    pub fn certain_ms(self) -> i64 {
        0.clamp(self.min_ms, self.max_ms)
    }

    /// Returns the middle of the range.
    pub fn estimate_ms(self) -> i64 {
        self.min_ms.saturating_add(self.max_ms).div_euclid(2)
    }

    /// Returns whether the skew is certainly at most `limit` in either direction.
    pub fn is_within(self, limit: Duration) -> bool {
        let limit_ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        self.max_ms <= limit_ms && self.min_ms >= limit_ms.saturating_neg()
    }

    /// Returns the intersection of both ranges; `None` if it is empty.
    fn intersection(self, other: Self) -> Option<Self> {
        let (min_ms, max_ms) = (self.min_ms.max(other.min_ms), self.max_ms.min(other.max_ms));
        (min_ms <= max_ms).then_some(Self { min_ms, max_ms })
    }
}

/// Completes "the clock of this process is …".
impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certain_ms = self.certain_ms();
        let direction = if certain_ms < 0 { "behind" } else { "ahead of" };
        let (least, most) =
            (certain_ms.unsigned_abs(), self.min_ms.unsigned_abs().max(self.max_ms.unsigned_abs()));
        if certain_ms == 0 {
            return write!(f, "within {most} ms of the clock of the store");
        }
        write!(f, "{least} to {most} ms {direction} the clock of the store")
    }
}

#[derive(Debug)]
enum Source {
    /// The store uses the clock of this machine.
    SameMachine,
    /// Responses of the store contain its time.
    Responses(Mutex<Measured>),
}

#[derive(Debug, Default)]
struct Measured {
    skew: Option<ClockSkew>,
    /// The uptime of the process at the last warning.
    warned_at: Option<Duration>,
}

/// The measured skew of the clock of this process. One per process and store.
#[derive(Debug)]
pub struct StoreClock(Source);

impl StoreClock {
    /// Creates the comparison with a store that uses the clock of this machine. There is no skew.
    pub const fn of_this_machine() -> Self {
        Self(Source::SameMachine)
    }

    /// Creates the comparison with a store whose responses contain its time. The skew is unknown before the first response.
    pub fn of_responses() -> Self {
        Self(Source::Responses(Mutex::default()))
    }

    /// Returns the skew; `None` while it is unknown.
    pub fn skew(&self) -> Option<ClockSkew> {
        match &self.0 {
            Source::SameMachine => Some(ClockSkew::NONE),
            Source::Responses(measured) => measured.lock().skew,
        }
    }

    /// Records the skew of one response, received at `uptime`. Consistent measurements are intersected, which narrows the
    /// range. If they contradict each other, a clock was changed, and the latest one is used. Returns the skew if a
    /// warning is due: it is certainly larger than a second, and there was no warning for ten minutes.
    pub fn record(&self, measurement: ClockSkew, uptime: Duration) -> Option<ClockSkew> {
        let Source::Responses(measured) = &self.0 else { return None };
        let mut measured = measured.lock();
        let combined = measured.skew.and_then(|skew| skew.intersection(measurement));
        let skew = combined.unwrap_or(measurement);
        measured.skew = Some(skew);
        let is_wrong = skew.certain_ms().saturating_abs() > WARNING_SKEW_MS;
        let is_new = measured.warned_at.is_none_or(|at| uptime.saturating_sub(at) >= WARNING_INTERVAL);
        if !is_wrong || !is_new {
            return None;
        }
        measured.warned_at = Some(uptime);
        Some(skew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the skew from a response with the date 1000.0 s.
    fn skew(received_ms: i64, trip_ms: u64) -> ClockSkew {
        let (date, received) = (Timestamp::from_unix_ms(1_000_000), Timestamp::from_unix_ms(received_ms));
        ClockSkew::of_response(date, received, Duration::from_millis(trip_ms))
    }

    #[test]
    fn the_range_of_a_response_contains_the_true_skew() {
        for true_skew_ms in [-840_000, -1_500, -1, 0, 1, 999, 1_000, 840_000] {
            for store_ms in [1_000_000, 1_000_500, 1_000_999] {
                for (there_ms, back_ms) in [(0, 0), (1, 30), (30, 1), (2_000, 2_000)] {
                    let measured =
                        skew(store_ms + back_ms + true_skew_ms, (there_ms + back_ms).unsigned_abs());
                    let range = measured.min_ms..=measured.max_ms;
                    assert!(range.contains(&true_skew_ms), "{true_skew_ms} at {store_ms}: {range:?}");
                    assert!(measured.max_ms - measured.min_ms <= there_ms + back_ms + 1_001);
                    assert!(measured.certain_ms().abs() <= true_skew_ms.abs());
                }
            }
        }
    }

    #[test]
    fn measurements_are_combined_until_they_contradict_each_other() {
        let clock = StoreClock::of_responses();
        assert_eq!(clock.skew(), None);
        let record = |min_ms, max_ms| {
            let _warning = clock.record(ClockSkew { min_ms, max_ms }, Duration::ZERO);
            clock.skew().unwrap()
        };
        assert_eq!(record(-900, 2_000), ClockSkew { min_ms: -900, max_ms: 2_000 });
        assert_eq!(record(-100, 5_000), ClockSkew { min_ms: -100, max_ms: 2_000 });
        assert!(clock.skew().unwrap().is_within(Duration::from_secs(2)));
        assert!(!clock.skew().unwrap().is_within(Duration::from_millis(1_999)));
        assert_eq!(record(60_000, 61_000), ClockSkew { min_ms: 60_000, max_ms: 61_000 }, "the clock was set");
        assert_eq!(clock.skew().unwrap().to_string(), "60000 to 61000 ms ahead of the clock of the store");
        let this_machine = StoreClock::of_this_machine();
        assert_eq!(this_machine.record(ClockSkew { min_ms: 9_000, max_ms: 9_000 }, Duration::ZERO), None);
        assert_eq!(this_machine.skew(), Some(ClockSkew::NONE));
    }

    #[test]
    fn a_warning_is_due_beyond_a_second_and_every_ten_minutes() {
        let clock = StoreClock::of_responses();
        let is_due = |min_ms, max_ms, at_s| {
            clock.record(ClockSkew { min_ms, max_ms }, Duration::from_secs(at_s)).is_some()
        };
        assert!(!is_due(-1_000, 9_000, 0) && !is_due(1_000, 2_000, 0));
        assert!(is_due(1_001, 2_000, 1) && !is_due(1_001, 2_000, 600) && is_due(1_001, 2_000, 601));
        assert!(is_due(-9_000, -1_001, 1_201));
    }
}
