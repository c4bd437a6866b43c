//! A token bucket that limits the request rate of a partner.
//!
//! The level is an integer in billionths of a request. Each nanosecond adds as many units as requests are allowed per
//! second, so nothing is rounded, however short the intervals are.

use std::time::Duration;

use crate::domain::partner::RequestRate;

/// One request, in units of the bucket level.
const REQUEST: u64 = 1_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The token bucket of one partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    level: u64,
    /// The uptime of the process at which `level` was computed.
    at: Duration,
    /// The uptime at which the rate will have covered all work accepted by [`Self::owe`].
    paid_at: Duration,
}

/// The state of a bucket after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateStatus {
    /// The current rate.
    pub rate: RequestRate,
    /// The number of requests that are allowed immediately.
    pub remaining: u64,
    /// Seconds until the bucket is full if no request follows, rounded up.
    pub full_in_s: u64,
    /// Seconds until one request is allowed, rounded up and at least 1; `None` if this request is allowed.
    pub retry_in_s: Option<u64>,
}

impl Bucket {
    /// Creates a full bucket.
    pub fn full(rate: RequestRate, now: Duration) -> Self {
        Self { level: capacity(rate), at: now, paid_at: Duration::ZERO }
    }

    /// Takes one token if there is one. The rate may differ from the previous call.
    pub fn take(&mut self, rate: RequestRate, now: Duration) -> RateStatus {
        self.fill(rate, now);
        let taken = self.level.checked_sub(REQUEST);
        self.level = taken.unwrap_or(self.level);
        let missing = REQUEST.saturating_sub(self.level);
        RateStatus {
            rate,
            remaining: self.level.checked_div(REQUEST).unwrap_or_default(),
            full_in_s: seconds(capacity(rate).saturating_sub(self.level), rate),
            retry_in_s: taken.is_none().then(|| seconds(missing, rate).max(1)),
        }
    }

    /// Adds work that is accepted regardless of its size, such as the items of a batch.
    pub fn owe(&mut self, items: u64, rate: RequestRate, now: Duration) {
        self.paid_at = self.paid_at.max(now).saturating_add(time_of(items, rate));
    }

    /// Returns the seconds until the work added by [`Self::owe`] fits in a burst, rounded up; `None` if it fits now.
    pub fn in_debt_for_s(&self, rate: RequestRate, now: Duration) -> Option<u64> {
        let left = self.paid_at.saturating_sub(now).saturating_sub(time_of(rate.burst.into(), rate));
        let whole = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0));
        (whole > 0).then_some(whole)
    }

    fn fill(&mut self, rate: RequestRate, now: Duration) {
        // A clock that stands still or goes back adds no tokens.
        let elapsed = u64::try_from(now.saturating_sub(self.at).as_nanos()).unwrap_or(u64::MAX);
        let gained = elapsed.saturating_mul(u64::from(rate.per_second));
        self.level = self.level.saturating_add(gained).min(capacity(rate));
        self.at = self.at.max(now);
    }
}

fn capacity(rate: RequestRate) -> u64 {
    u64::from(rate.burst.max(1)).saturating_mul(REQUEST)
}

/// Returns how long the rate needs for this many requests.
fn time_of(requests: u64, rate: RequestRate) -> Duration {
    let ns = requests.saturating_mul(SECOND_NS).checked_div(rate.per_second.into()).unwrap_or_default();
    Duration::from_nanos(ns)
}

/// Returns how many seconds the rate needs to add this amount of level units, rounded up.
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
    fn a_burst_passes_and_then_the_rate_applies() {
        let rate = rate(2, 3);
        let mut bucket = Bucket::full(rate, ms(0));
        let mut check = |at: u64, expected: (u64, u64, Option<u64>)| {
            let RateStatus { remaining, full_in_s, retry_in_s, .. } = bucket.take(rate, ms(at));
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
        // An idle period fills the bucket up to the burst.
        check(60_000, (2, 1, None));
        // A clock that goes back adds nothing.
        check(59_000, (1, 1, None));
        check(60_000, (0, 2, None));
        check(60_000, (0, 2, Some(1)));
    }

    #[test]
    fn the_retry_delay_of_an_empty_bucket_is_one_second() {
        // One per second is the lowest rate. A bucket of 60 fills in a minute.
        let rate = rate(1, 60);
        let mut bucket = Bucket::full(rate, ms(0));
        for _ in 0..60 {
            assert_eq!(bucket.take(rate, ms(0)).retry_in_s, None);
        }
        let empty = bucket.take(rate, ms(0));
        assert_eq!((empty.retry_in_s, empty.full_in_s), (Some(1), 60));
    }

    #[test]
    fn a_lower_rate_applies_at_once() {
        let mut bucket = Bucket::full(rate(10, 100), ms(0));
        let lower = rate(1, 2);
        assert_eq!(bucket.take(lower, ms(0)).remaining, 1);
        assert_eq!(bucket.take(lower, ms(0)).remaining, 0);
        assert_eq!(bucket.take(lower, ms(0)).retry_in_s, Some(1));
    }

    #[test]
    fn items_beyond_a_burst_are_a_debt() {
        let rate = rate(10, 20);
        let mut bucket = Bucket::full(rate, ms(0));
        let debt = |bucket: &Bucket, at: u64| bucket.in_debt_for_s(rate, ms(at));
        bucket.owe(20, rate, ms(0));
        assert_eq!(debt(&bucket, 0), None, "a burst");
        bucket.owe(20, rate, ms(0));
        assert_eq!(debt(&bucket, 0), Some(2), "a burst is allowed once");
        assert_eq!(bucket.take(rate, ms(0)).retry_in_s, None, "a debt takes no tokens");
        bucket.owe(30, rate, ms(1000));
        assert_eq!([1000, 4999, 5000].map(|at| debt(&bucket, at)), [Some(4), Some(1), None]);
        bucket.owe(20, rate, ms(60_000));
        assert_eq!(debt(&bucket, 60_000), None, "after a pause");
    }

    proptest! {
        /// In any interval, at most the burst plus the rate times the interval pass, and no fewer if enough requests
        /// arrive.
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
                // After the bucket was empty, no token is lost until it is full again.
                let least = now.as_nanos() * u128::from(per_second) / u128::from(SECOND_NS);
                prop_assert!(bucket.level < REQUEST || passed <= least + u128::from(burst));
            }
        }
    }
}
