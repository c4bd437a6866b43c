//! Activity of several processes as one series of time steps.

use postonce_process::activity::{ActivityCounts, HISTORY_S, STEP, STEP_S, Steps};
use postonce_shared::domain::time::Timestamp;

const POINTS_MAX: u16 = 360;
/// Length of the window over which rates are computed, in seconds.
const RATE_S: u16 = 10;
const MS_PER_S: i64 = 1000;

/// Activity summed over several processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Length of a step in seconds.
    pub step_s: u16,
    /// End of the last step: a multiple of the step length.
    pub until: Timestamp,
    /// Activity in each step, oldest first.
    pub counts: Vec<ActivityCounts>,
}

impl Series {
    /// Sums the last `seconds` of the histories before `at`, including only steps that are complete in every process.
    pub fn of(histories: &[Steps], seconds: u16, at: Timestamp) -> Self {
        let step_s = step_of(seconds);
        Self::in_steps(histories, (step_s, seconds.div_ceil(step_s)), at)
    }

    /// Sums the histories over the last [`RATE_S`] seconds.
    pub fn of_rates(histories: &[Steps], at: Timestamp) -> ActivityCounts {
        let points = RATE_S.div_ceil(STEP_S);
        let recent = Self::in_steps(histories, (STEP_S, points), at);
        recent.counts.into_iter().fold(ActivityCounts::default(), ActivityCounts::plus)
    }

    fn in_steps(histories: &[Steps], (step_s, points): (u16, u16), at: Timestamp) -> Self {
        // A process may not have recorded the step that ends now.
        let step_ms = i64::from(step_s).saturating_mul(MS_PER_S);
        let ended = at.before(STEP).unix_ms().div_euclid(step_ms);
        let first = ended.saturating_sub(points.into());
        let mut counts = vec![ActivityCounts::default(); points.into()];
        for Steps { until, counts: of_process } in histories {
            let mut ends = until.unix_ms();
            for step in of_process.iter().rev() {
                let start = ends.saturating_sub(i64::from(STEP_S).saturating_mul(MS_PER_S));
                let position = start.div_euclid(step_ms).saturating_sub(first);
                let sum = usize::try_from(position).ok().and_then(|position| counts.get_mut(position));
                if let Some(sum) = sum {
                    *sum = sum.plus(*step);
                }
                ends = start;
            }
        }
        Self { step_s, until: Timestamp::from_unix_ms(ended.saturating_mul(step_ms)), counts }
    }
}

/// Returns the shortest step length in seconds that needs at most [`POINTS_MAX`] steps. It is a multiple of [`STEP_S`].
fn step_of(seconds: u16) -> u16 {
    let needed = seconds.div_ceil(POINTS_MAX).max(1);
    needed.checked_next_multiple_of(STEP_S).unwrap_or(HISTORY_S)
}

/// Returns the length of the history that a series over the last `seconds` needs, in seconds.
pub fn history_of(seconds: u16) -> u16 {
    let step_s = step_of(seconds);
    let of_points = seconds.checked_next_multiple_of(step_s).unwrap_or(HISTORY_S).max(RATE_S);
    // The last step can have ended one step length and [`STEP`] ago. The rest allows for clock differences.
    of_points.saturating_add(step_s).saturating_add(STEP_S.saturating_mul(2)).min(HISTORY_S)
}

/// Converts a count over [`RATE_S`] seconds to a rate per second, with one decimal.
pub fn per_second(count: u64) -> String {
    let tenths = count.saturating_mul(10).div_euclid(RATE_S.into());
    format!("{}.{}", tenths.div_euclid(10), tenths.rem_euclid(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(accepted: u64) -> ActivityCounts {
        ActivityCounts { accepted, ..ActivityCounts::default() }
    }

    fn history(until_s: i64, counts: &[u64]) -> Steps {
        let counts = counts.iter().map(|count| accepted(*count)).collect();
        Steps { until: Timestamp::from_unix_ms(until_s.saturating_mul(1000)), counts }
    }

    fn check(histories: &[Steps], seconds: u16, at_ms: i64, expected: (u16, i64, &[u64])) {
        let series = Series::of(histories, seconds, Timestamp::from_unix_ms(at_ms));
        let counts: Vec<u64> = series.counts.iter().map(|counts| counts.accepted).collect();
        let until_s = series.until.unix_ms().div_euclid(1000);
        assert_eq!((series.step_s, until_s, &*counts), expected, "{seconds} s at {at_ms}");
    }

    #[test]
    fn histories_of_processes_are_summed_at_the_same_times() {
        let histories = [history(1010, &[1, 2, 3, 4]), history(1008, &[10, 20]), history(900, &[500])];
        // The step that ended at 1010 s is not complete everywhere before 1012 s.
        check(&histories, 6, 1_011_999, (2, 1008, &[1, 12, 23]));
        check(&histories, 6, 1_012_000, (2, 1010, &[12, 23, 4]));
        check(&histories, 5, 1_012_000, (2, 1010, &[12, 23, 4]));
        check(&histories, 12, 1_010_500, (2, 1008, &[0, 0, 0, 1, 12, 23]));
        check(&histories, 2, 1_020_000, (2, 1018, &[0]));
        check(&[], 4, 1_020_000, (2, 1018, &[0, 0]));
    }

    #[test]
    fn long_series_have_longer_steps_that_stay_the_same_from_call_to_call() {
        let steps: Vec<u64> = (0..1810).map(|step| u64::from(step % 5 == 0)).collect();
        // The history begins at 1_000_000 s, so each ten seconds contain one.
        let histories = [history(1_003_620, &steps)];
        for at_ms in [1_003_613_000, 1_003_621_999] {
            let at = Timestamp::from_unix_ms(at_ms);
            let series = Series::of(&histories, 3600, at);
            assert_eq!((series.step_s, series.counts.len()), (10, 360));
            assert!(series.counts.iter().all(|counts| counts.accepted == 1), "{series:?}");
            assert!(at.since(series.until) < std::time::Duration::from_secs(12));
        }
    }

    #[test]
    fn the_length_of_a_step_is_the_smallest_that_is_allowed() {
        let check = |seconds: u16, step_s: u16, points: u16| {
            assert_eq!((step_of(seconds), seconds.div_ceil(step_of(seconds))), (step_s, points), "{seconds}");
            assert!(history_of(seconds) >= points * step_s + step_s + 2 && history_of(seconds) <= HISTORY_S);
        };
        check(2, 2, 1);
        check(3, 2, 2);
        check(60, 2, 30);
        check(720, 2, 360);
        check(721, 4, 181);
        check(1440, 4, 360);
        check(1441, 6, 241);
        check(3600, 10, 360);
    }

    #[test]
    fn rates_have_one_decimal() {
        assert_eq!([0, 1, 9, 10, 125].map(per_second), ["0.0", "0.1", "0.9", "1.0", "12.5"]);
        let histories = [history(1010, &[9, 1, 1, 1, 1, 1, 9])];
        let counts = Series::of_rates(&histories, Timestamp::from_unix_ms(1_010_000));
        assert_eq!(counts.accepted, 5);
    }
}
