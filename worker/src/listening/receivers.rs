//! Computes the number of concurrent receivers of a queue. A pure function.

use std::num::NonZeroUsize;
use std::time::Duration;

use postonce_shared::config::ReceiversRule;
use postonce_shared::ports::queue::RECEIVE_MAX;

use crate::config::Bounds;

/// Number of full receives that must be waiting per receiver.
const RECEIVES_AHEAD: u64 = 2;
/// Age of the oldest message that justifies one receiver; twice the age justifies two.
const AGE_STEP: Duration = Duration::from_secs(1);

/// The known backlog of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueBacklog {
    /// Messages that wait, without those in progress.
    pub depth: u64,
    /// Age of the oldest message.
    pub oldest_age: Duration,
}

/// Returns the number of receivers for a queue with work.
pub fn wanted(backlog: QueueBacklog, bounds: Bounds, rule: &ReceiversRule) -> usize {
    let Bounds { floor, ceiling } = bounds;
    let wanted = match rule {
        ReceiversRule::Adaptive => adaptive(backlog),
        ReceiversRule::ByDepth(steps) => steps.receivers(backlog.depth).map_or(0, NonZeroUsize::get),
    };
    wanted.clamp(floor.get(), ceiling.get().max(floor.get()))
}

/// Returns a number that grows with the depth and with the age of the oldest message; 0 for an empty queue.
fn adaptive(backlog: QueueBacklog) -> usize {
    let messages = RECEIVES_AHEAD.saturating_mul(u64::try_from(RECEIVE_MAX).unwrap_or(u64::MAX));
    let by_depth = backlog.depth.div_ceil(messages);
    let by_age = backlog.oldest_age.as_millis().checked_div(AGE_STEP.as_millis()).unwrap_or(0);
    // The age never justifies more receivers than there are full receives in the backlog.
    let receives = backlog.depth.div_ceil(u64::try_from(RECEIVE_MAX).unwrap_or(u64::MAX));
    let by_age = u64::try_from(by_age).unwrap_or(u64::MAX).min(receives);
    usize::try_from(by_depth.max(by_age)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_receivers_grows_with_depth_and_age_within_its_bounds() {
        let check = |depth, age_s, floor, ceiling, expected: usize| {
            let bounds = Bounds {
                floor: NonZeroUsize::new(floor).unwrap(),
                ceiling: NonZeroUsize::new(ceiling).unwrap(),
            };
            let backlog = QueueBacklog { depth, oldest_age: Duration::from_secs(age_s) };
            let adaptive = wanted(backlog, bounds, &ReceiversRule::Adaptive);
            assert_eq!(adaptive, expected, "{backlog:?} in {bounds:?}");
        };
        // Depth: one receiver per 64 waiting messages.
        check(0, 0, 1, 8, 1);
        check(1, 0, 1, 8, 1);
        check(64, 0, 1, 8, 1);
        check(65, 0, 1, 8, 2);
        check(300, 0, 1, 8, 5);
        check(20_000, 0, 1, 8, 8);
        check(u64::MAX, 0, 1, 8, 8);
        // Age: one receiver per second of the oldest message's age, at most one per 32 waiting messages.
        check(100, 3, 1, 8, 3);
        check(100, 9, 1, 8, 4);
        check(10, 60, 1, 8, 1);
        check(1000, u64::MAX, 1, 64, 32);
        // Bounds: the lower one also applies to an empty queue, and takes precedence over a smaller upper one.
        check(0, 100, 3, 8, 3);
        check(20_000, 100, 4, 2, 4);
    }

    #[test]
    fn a_rule_by_depth_ignores_the_age_and_stays_within_the_bounds() {
        let rule = ReceiversRule::parse("10:1,50:3,100:6").unwrap();
        let [one, two, four] = [1, 2, 4].map(|count| NonZeroUsize::new(count).unwrap());
        let check = |depth, floor, expected| {
            let backlog = QueueBacklog { depth, oldest_age: Duration::from_secs(3600) };
            assert_eq!(wanted(backlog, Bounds { floor, ceiling: four }, &rule), expected, "{depth}");
        };
        check(0, one, 1);
        check(9, two, 2);
        check(49, one, 1);
        check(50, two, 3);
        check(1000, one, 4);
    }
}
