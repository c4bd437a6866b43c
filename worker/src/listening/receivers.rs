//! How many receivers of a queue work side by side. Pure: the same backlog gives the same number.

use std::time::Duration;

use postonce_shared::ports::queue::RECEIVE_MAX;

use crate::config::Bounds;

/// Full receives that each receiver may have waiting before another one joins.
const RECEIVES_AHEAD: u64 = 2;
/// Each full one of these that the oldest message has waited adds a receiver.
const AGE_STEP: Duration = Duration::from_secs(1);

/// What is known to wait in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Messages beyond those in hand.
    pub depth: u64,
    /// How long the oldest of them has waited.
    pub oldest_age: Duration,
}

/// How many receivers a queue with work is given: enough for its depth, more while it grows old.
pub fn wanted(demand: Demand, bounds: Bounds) -> usize {
    let Bounds { floor, ceiling } = bounds;
    if demand.depth == 0 {
        return floor.get();
    }
    let messages = RECEIVES_AHEAD.saturating_mul(u64::try_from(RECEIVE_MAX).unwrap_or(u64::MAX));
    let by_depth = demand.depth.div_ceil(messages);
    let by_age = demand.oldest_age.as_millis().checked_div(AGE_STEP.as_millis()).unwrap_or(0);
    // No more than there is to receive, however old it is.
    let receives = demand.depth.div_ceil(u64::try_from(RECEIVE_MAX).unwrap_or(u64::MAX));
    let by_age = u64::try_from(by_age).unwrap_or(u64::MAX).min(receives);
    let wanted = usize::try_from(by_depth.max(by_age)).unwrap_or(usize::MAX);
    wanted.clamp(floor.get(), ceiling.get().max(floor.get()))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn receivers_grow_with_depth_and_age_within_their_bounds() {
        let check = |depth, age_s, floor, ceiling, expected: usize| {
            let bounds = Bounds {
                floor: NonZeroUsize::new(floor).unwrap(),
                ceiling: NonZeroUsize::new(ceiling).unwrap(),
            };
            let demand = Demand { depth, oldest_age: Duration::from_secs(age_s) };
            assert_eq!(wanted(demand, bounds), expected, "{demand:?} in {bounds:?}");
        };
        // Depth: one for each 64 messages.
        check(0, 0, 1, 8, 1);
        check(1, 0, 1, 8, 1);
        check(64, 0, 1, 8, 1);
        check(65, 0, 1, 8, 2);
        check(300, 0, 1, 8, 5);
        check(20_000, 0, 1, 8, 8);
        check(u64::MAX, 0, 1, 8, 8);
        // Age: one for each second, but no more than there is to receive.
        check(100, 3, 1, 8, 3);
        check(100, 9, 1, 8, 4);
        check(10, 60, 1, 8, 1);
        check(1000, u64::MAX, 1, 64, 32);
        // Bounds: nothing waits, and yet the floor stays; a ceiling below the floor gives way.
        check(0, 100, 3, 8, 3);
        check(20_000, 100, 4, 2, 4);
    }
}
