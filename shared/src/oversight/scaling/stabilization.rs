//! Follows the wanted number of workers upward immediately, and downward after a delay.

use std::collections::VecDeque;
use std::time::Duration;

/// Keeps the number of workers from oscillating.
///
/// The result is the maximum of the numbers wanted within the delay: more work needs more workers immediately, but
/// workers are stopped only if fewer were wanted during the whole delay. Between two bursts a queue is empty for a
/// moment, and a worker stopped then would lose its cache before the next burst.
#[derive(Debug)]
pub struct StabilizationWindow {
    delay: Duration,
    /// Times and wanted numbers in time order, each number higher than all later ones. A number followed by a higher
    /// one can never be the maximum again.
    recent: VecDeque<(Duration, u32)>,
}

impl StabilizationWindow {
    /// Creates the filter with this delay.
    pub const fn new(delay: Duration) -> Self {
        Self { delay, recent: VecDeque::new() }
    }

    /// Records the number wanted at a time (since any fixed start), and returns the number to run.
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
    fn it_follows_upward_at_once_and_downward_after_the_delay() {
        let mut window = StabilizationWindow::new(Duration::from_secs(60));
        // Second, wanted, result.
        let steps = [
            (0, 1, 1),
            (5, 4, 4),
            (10, 2, 4),
            (15, 3, 4),
            (65, 1, 4),
            // The 4 was wanted more than 60 s ago, the 3 was not.
            (66, 1, 3),
            (75, 1, 3),
            (76, 1, 1),
            (77, 8, 8),
        ];
        for (second, wanted, expected) in steps {
            assert_eq!(window.follow(Duration::from_secs(second), wanted), expected, "second {second}");
        }
    }

    #[test]
    fn without_a_delay_it_follows_at_once() {
        let mut window = StabilizationWindow::new(Duration::ZERO);
        for (second, wanted) in [(0, 3), (1, 1), (2, 5), (3, 2)] {
            assert_eq!(window.follow(Duration::from_secs(second), wanted), wanted);
        }
    }
}
