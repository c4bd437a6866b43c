//! A number that follows what is wanted upward at once, and downward only after a while.

use std::collections::VecDeque;
use std::time::Duration;

/// Keeps a number of workers from flapping.
///
/// More work needs more workers now. Fewer are enough only when fewer were wanted for the whole delay: between
/// two waves a queue is empty for a moment, and a worker that is drained for that moment has lost its cached
/// rows when the next wave comes. So the number is the highest of those that were wanted within the delay.
#[derive(Debug)]
pub struct Steady {
    delay: Duration,
    /// When what was wanted: in the order of time, each higher than those after it. What a later and higher
    /// one has overtaken can never be the highest again.
    recent: VecDeque<(Duration, u32)>,
}

impl Steady {
    /// Nothing was wanted yet.
    pub const fn new(delay: Duration) -> Self {
        Self { delay, recent: VecDeque::new() }
    }

    /// Notes what is wanted at a time since some start, and returns what to have.
    pub fn follow(&mut self, at: Duration, wanted: u32) -> u32 {
        while self.recent.back().is_some_and(|(_, earlier)| *earlier <= wanted) {
            self.recent.pop_back();
        }
        self.recent.push_back((at, wanted));
        while self.recent.front().is_some_and(|(then, _)| at.saturating_sub(*then) > self.delay) {
            self.recent.pop_front();
        }
        self.recent.front().map_or(wanted, |(_, highest)| *highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_at_once_and_down_after_the_delay() {
        let mut steady = Steady::new(Duration::from_secs(60));
        // Second, wanted, expected.
        let story = [
            (0, 1, 1),
            (5, 4, 4),
            (10, 2, 4),
            (15, 3, 4),
            (65, 1, 4),
            // The four was wanted more than 60 s ago; the three was not.
            (66, 1, 3),
            (75, 1, 3),
            (76, 1, 1),
            (77, 8, 8),
        ];
        for (second, wanted, expected) in story {
            assert_eq!(steady.follow(Duration::from_secs(second), wanted), expected, "second {second}");
        }
    }

    #[test]
    fn without_a_delay_it_follows() {
        let mut steady = Steady::new(Duration::ZERO);
        for (second, wanted) in [(0, 3), (1, 1), (2, 5), (3, 2)] {
            assert_eq!(steady.follow(Duration::from_secs(second), wanted), wanted);
        }
    }
}
