//! A token bucket: how many requests may still come at once, and how soon more of them.
//!
//! Whole numbers only: the bucket counts in billionths of a request, and each nanosecond adds as many of
//! them as requests are allowed in a second. So nothing is rounded, however small the steps are.

use std::time::Duration;

use crate::domain::partner::RequestRate;

/// One request, as the bucket counts.
const REQUEST: u64 = 1_000_000_000;
/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// How much is left of what somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    level: u64,
    /// When that was so: time since the process started.
    at: Duration,
}

/// What a request found in its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The rate that holds.
    pub rate: RequestRate,
    /// Requests that may come at once after this one.
    pub remaining: u64,
    /// Seconds until the bucket is full again when nothing comes, rounded up.
    pub full_in_s: u64,
    /// Seconds until there is room for one request, rounded up and at least 1, where there was none for
    /// this one; `None` where it may go on.
    pub retry_in_s: Option<u64>,
}

impl Bucket {
    /// A full bucket.
    pub fn full(rate: RequestRate, now: Duration) -> Self {
        Self { level: capacity(rate), at: now }
    }

    /// Takes one request out, if there is one. The rate may be another one than the last time.
    pub fn take(&mut self, rate: RequestRate, now: Duration) -> Standing {
        self.fill(rate, now);
        let taken = self.level.checked_sub(REQUEST);
        self.level = taken.unwrap_or(self.level);
        let missing = REQUEST.saturating_sub(self.level);
        Standing {
            rate,
            remaining: self.level.checked_div(REQUEST).unwrap_or_default(),
            full_in_s: seconds(capacity(rate).saturating_sub(self.level), rate),
            retry_in_s: taken.is_none().then(|| seconds(missing, rate).max(1)),
        }
    }

    /// Puts one request back that turned out not to count.
    pub fn give_back(&mut self, rate: RequestRate) {
        self.level = self.level.saturating_add(REQUEST).min(capacity(rate));
    }

    fn fill(&mut self, rate: RequestRate, now: Duration) {
        // A clock that seems to stand still or to go back adds nothing.
        let elapsed = u64::try_from(now.saturating_sub(self.at).as_nanos()).unwrap_or(u64::MAX);
        let gained = elapsed.saturating_mul(u64::from(rate.per_second));
        self.level = self.level.saturating_add(gained).min(capacity(rate));
        self.at = self.at.max(now);
    }
}

fn capacity(rate: RequestRate) -> u64 {
    u64::from(rate.burst.max(1)).saturating_mul(REQUEST)
}

/// How long so much takes to come, in seconds, rounded up.
fn seconds(amount: u64, rate: RequestRate) -> u64 {
    amount.div_ceil(u64::from(rate.per_second.max(1))).div_ceil(SECOND_NS)
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "test code")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn rate(per_second: u32, burst: u32) -> RequestRate {
        RequestRate { per_second, burst }
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_is_let_through_and_then_the_rate() {
        let rate = rate(2, 3);
        let mut bucket = Bucket::full(rate, ms(0));
        let mut check = |at: u64, expected: (u64, u64, Option<u64>)| {
            let Standing { remaining, full_in_s, retry_in_s, .. } = bucket.take(rate, ms(at));
            assert_eq!((remaining, full_in_s, retry_in_s), expected, "at {at} ms");
        };
        check(0, (2, 1, None));
        check(0, (1, 1, None));
        check(0, (0, 2, None));
        check(0, (0, 2, Some(1)));
        check(499, (0, 2, Some(1)));
        check(500, (0, 2, None));
        check(999, (0, 2, Some(1)));
        check(1000, (0, 2, None));
        // A rest fills it, and no more than that.
        check(60_000, (2, 1, None));
        // A clock that goes back gives nothing away.
        check(59_000, (1, 1, None));
        check(60_000, (0, 2, None));
        check(60_000, (0, 2, Some(1)));
    }

    #[test]
    fn who_may_call_once_a_minute_is_told_how_long_to_wait() {
        // One a second is the lowest rate; a full bucket of 60 takes a minute.
        let rate = rate(1, 60);
        let mut bucket = Bucket::full(rate, ms(0));
        for _ in 0..60 {
            assert_eq!(bucket.take(rate, ms(0)).retry_in_s, None);
        }
        let empty = bucket.take(rate, ms(0));
        assert_eq!((empty.retry_in_s, empty.full_in_s), (Some(1), 60));
    }

    #[test]
    fn a_lower_rate_holds_at_once_and_what_did_not_count_comes_back() {
        let mut bucket = Bucket::full(rate(10, 100), ms(0));
        let lower = rate(1, 2);
        assert_eq!(bucket.take(lower, ms(0)).remaining, 1);
        bucket.give_back(lower);
        assert_eq!(bucket.take(lower, ms(0)).remaining, 1);
        assert_eq!(bucket.take(lower, ms(0)).remaining, 0);
        assert_eq!(bucket.take(lower, ms(0)).retry_in_s, Some(1));
        bucket.give_back(lower);
        assert_eq!(bucket.take(lower, ms(0)).retry_in_s, None);
    }

    proptest! {
        /// In any time, no more than the burst and the rate of that time are let through, and no fewer
        /// where more than that were asked for.
        #[test]
        fn never_more_than_the_burst_and_the_rate(
            per_second in 1_u32..1000,
            burst in 1_u32..1000,
            pauses in prop::collection::vec(0_u64..50_000_000, 1..400),
        ) {
            let rate = rate(per_second, burst);
            let mut bucket = Bucket::full(rate, Duration::ZERO);
            let mut now = Duration::ZERO;
            let mut passed = 0_u128;
            let mut was_refused = false;
            for pause in pauses {
                now += Duration::from_nanos(pause);
                match bucket.take(rate, now).retry_in_s {
                    None => passed += 1,
                    Some(_) => was_refused = true,
                }
                let most = u128::from(burst) + now.as_nanos() * u128::from(per_second) / u128::from(SECOND_NS);
                prop_assert!(passed <= most, "{passed} of {most}");
                if !was_refused {
                    continue;
                }
                // Once it was empty, nothing is lost until it is full again.
                let least = now.as_nanos() * u128::from(per_second) / u128::from(SECOND_NS);
                prop_assert!(bucket.level < REQUEST || passed <= least + u128::from(burst));
            }
        }
    }
}
