//! Activity of a process in the last hour: numbers of accepted and decided transactions in steps of two seconds.
//!
//! Every process begins its steps at multiples of the step length on the wall clock, so the histories of several processes can
//! be added step by step. A background task ([`crate::upkeep::activity`]) records the differences of the counters; the path
//! that posts money records nothing.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::domain::time::Timestamp;

/// Length of a step.
pub const STEP: Duration = Duration::from_secs(2);
/// Length of a step in seconds.
pub const STEP_S: u16 = 2;
/// Length of the history in seconds: an hour and two intervals of 10 s. Readers merge steps to intervals of 10 s, and the first
/// interval of the hour must be complete.
pub const HISTORY_S: u16 = 3620;

/// Number of steps in [`HISTORY_S`] seconds.
const STEPS_MAX: usize = 1810;
const STEP_MS: i64 = 2000;

/// Numbers of transactions and failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActivityCounts {
    /// New deposits and withdrawals that were accepted, items of batches and orders of direct producers included.
    pub accepted: u64,
    /// Posted by the process that received the request.
    pub immediate: u64,
    /// Posted from the queue.
    pub queued: u64,
    /// Posted as items of batches.
    pub batch: u64,
    /// Rejected on any of these paths.
    pub rejected: u64,
    /// Storage operations that failed.
    pub storage_errors: u64,
    /// Requests to the API that were answered with a status of 500 or above.
    pub request_errors: u64,
}

impl ActivityCounts {
    /// Returns the sum of both, member by member.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        self.combined(more, u64::saturating_add)
    }

    /// Returns the number of posted transactions.
    pub const fn posted(&self) -> u64 {
        self.immediate.saturating_add(self.queued).saturating_add(self.batch)
    }

    fn since(self, earlier: Self) -> Self {
        self.combined(earlier, u64::saturating_sub)
    }

    fn combined(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            accepted: combine(self.accepted, other.accepted),
            immediate: combine(self.immediate, other.immediate),
            queued: combine(self.queued, other.queued),
            batch: combine(self.batch, other.batch),
            rejected: combine(self.rejected, other.rejected),
            storage_errors: combine(self.storage_errors, other.storage_errors),
            request_errors: combine(self.request_errors, other.request_errors),
        }
    }
}

/// Complete, consecutive steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    /// The end of the last step: a multiple of [`STEP`] since 1970.
    pub until: Timestamp,
    /// The oldest step first.
    pub counts: Vec<ActivityCounts>,
}

/// The history of a process: at most [`HISTORY_S`] seconds.
#[derive(Debug, Default)]
pub struct ActivityHistory(Mutex<Option<State>>);

#[derive(Debug)]
struct State {
    /// Values of the process's counters at the end of the last step.
    counted: ActivityCounts,
    /// Number of steps from 1970 to the end of the last one.
    end: i64,
    steps: VecDeque<ActivityCounts>,
}

impl ActivityHistory {
    /// Begins the history of a process whose counters were zero at its start.
    pub fn begin(&self, now: Timestamp) {
        let state =
            State { counted: ActivityCounts::default(), end: ended_steps(now), steps: VecDeque::new() };
        *self.0.lock() = Some(state);
    }

    /// Adds the steps that ended since the last call. The increase of `counters` since then counts in the last of these steps;
    /// steps that were missed get zeros. If no step has ended, the increase is recorded by a later call.
    pub fn note(&self, now: Timestamp, counters: ActivityCounts) {
        if let Some(state) = &mut *self.0.lock() {
            state.note(ended_steps(now), counters);
        }
    }

    /// Returns the last complete steps that cover `length`, at most [`HISTORY_S`]; `None` before the history began.
    pub fn last(&self, length: Duration) -> Option<Steps> {
        let state = self.0.lock();
        let State { end, steps, .. } = state.as_ref()?;
        let wanted = length.as_millis().div_ceil(STEP.as_millis());
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let counts = steps.iter().skip(steps.len().saturating_sub(wanted)).copied().collect();
        Some(Steps { until: Timestamp::from_unix_ms(end.saturating_mul(STEP_MS)), counts })
    }
}

impl State {
    fn note(&mut self, ended: i64, counters: ActivityCounts) {
        let mut counts = counters.since(self.counted);
        if ended == self.end {
            return;
        }
        // The clock was set back: merge the steps that now lie in the future into the step that ends now.
        while self.end >= ended
            && let Some(last) = self.steps.pop_back()
        {
            counts = counts.plus(last);
            self.end = self.end.saturating_sub(1);
        }
        let missed = ended.saturating_sub(self.end).saturating_sub(1);
        for _ in 0..missed.min(STEPS_MAX.try_into().unwrap_or(i64::MAX)) {
            self.steps.push_back(ActivityCounts::default());
        }
        self.steps.push_back(counts);
        let surplus = self.steps.len().saturating_sub(STEPS_MAX);
        self.steps.drain(..surplus);
        (self.counted, self.end) = (counters, ended);
    }
}

/// Returns the remaining time of the current step.
pub fn until_next_end(now: Timestamp) -> Duration {
    let rest = STEP_MS.saturating_sub(now.unix_ms().rem_euclid(STEP_MS));
    Duration::from_millis(u64::try_from(rest).unwrap_or(0))
}

/// Returns the number of steps that have ended since 1970.
fn ended_steps(now: Timestamp) -> i64 {
    now.unix_ms().div_euclid(STEP_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    fn accepted(accepted: u64) -> ActivityCounts {
        ActivityCounts { accepted, ..ActivityCounts::default() }
    }

    /// A history that began at 1 s and recorded these counters at these times in milliseconds.
    fn history(counters: &[(i64, u64)]) -> ActivityHistory {
        let history = ActivityHistory::default();
        history.begin(at(1000));
        counters.iter().for_each(|(ms, count)| history.note(at(*ms), accepted(*count)));
        history
    }

    fn check(history: &ActivityHistory, seconds: u64, until_ms: i64, counts: &[u64]) {
        let counts = counts.iter().map(|count| accepted(*count)).collect();
        let expected = Steps { until: at(until_ms), counts };
        assert_eq!(history.last(Duration::from_secs(seconds)), Some(expected));
    }

    #[test]
    fn a_history_has_the_differences_of_the_counters_in_steps_of_the_clock() {
        assert_eq!(ActivityHistory::default().last(STEP), None);
        check(&history(&[]), 60, 0, &[]);
        let history = history(&[(2000, 3), (4001, 3), (5999, 9), (6000, 10)]);
        check(&history, 60, 6000, &[3, 0, 7]);
        check(&history, 3, 6000, &[0, 7]);
        check(&history, 0, 6000, &[]);
        history.note(at(7000), accepted(17));
        check(&history, 2, 6000, &[7]);
        history.note(at(8000), accepted(17));
        check(&history, 2, 8000, &[7]);
    }

    #[test]
    fn missed_steps_are_zero_and_what_happened_in_them_counts_in_the_last_one() {
        check(&history(&[(2000, 1), (11_999, 5)]), 60, 10_000, &[1, 0, 0, 0, 4]);
    }

    #[test]
    fn an_hour_is_kept() {
        let hours = history(&[(2000, 1), (4000, 2), (20_000_000, 5)]);
        let kept = hours.last(Duration::from_secs(86_400)).unwrap();
        assert_eq!((kept.counts.len(), usize::from(HISTORY_S)), (STEPS_MAX, STEPS_MAX * 2));
        assert_eq!((kept.counts[0], kept.counts[STEPS_MAX - 1]), (accepted(0), accepted(3)));
        hours.note(at(20_002_000), accepted(6));
        assert_eq!(hours.last(Duration::from_secs(86_400)).unwrap().counts.len(), STEPS_MAX);
    }

    #[test]
    fn a_clock_that_is_set_back_loses_no_counts() {
        check(&history(&[(2000, 1), (4000, 3), (6000, 7), (5000, 8)]), 60, 4000, &[1, 7]);
        check(&history(&[(20_000, 1), (22_000, 3), (4000, 4)]), 60, 4000, &[0, 4]);
    }

    #[test]
    fn the_rest_of_a_step_is_never_zero() {
        assert_eq!(until_next_end(at(1)), Duration::from_millis(1999));
        assert_eq!(until_next_end(at(2000)), STEP);
        assert_eq!(until_next_end(at(3999)), Duration::from_millis(1));
    }
}
