//! How many commits each chunk of a process has in progress. A slow store gets slower with every further request, until none
//! is answered in time. So faults of commits that were in progress together halve the number, and it grows again by one after
//! as many commits, like the congestion window of TCP (RFC 5681, section 3.1).

use parking_lot::Mutex;

use crate::posting::singles::COMMITS_MAX;

/// The number of commits at once, which the chunks of a process adapt together.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Window>);

#[derive(Debug)]
struct Window {
    commits: usize,
    /// Commits that succeeded since the number last changed.
    successes: usize,
    /// How often the number was halved.
    halvings: u64,
}

impl Pace {
    /// Starts with [`COMMITS_MAX`].
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Window { commits: COMMITS_MAX, successes: 0, halvings: 0 }))
    }

    /// Returns how many commits a chunk may have in progress: at least one.
    pub(super) fn commits(&self) -> usize {
        self.0.lock().commits
    }

    /// Returns how often the number was halved. A commit notes it when it begins.
    pub(super) fn halvings(&self) -> u64 {
        self.0.lock().halvings
    }

    /// Records that commits succeeded.
    pub(super) fn speed_up(&self) {
        let mut window = self.0.lock();
        window.successes = window.successes.saturating_add(1);
        if window.successes >= window.commits {
            window.commits = window.commits.saturating_add(1).min(COMMITS_MAX);
            window.successes = 0;
        }
    }

    /// Records that a commit failed that began after that many halvings. It has no effect if another fault of the commits that
    /// were in progress with it was recorded before.
    pub(super) fn slow_down(&self, halvings: u64) {
        let mut window = self.0.lock();
        if window.halvings == halvings {
            window.commits = window.commits.div_ceil(2);
            window.successes = 0;
            window.halvings = window.halvings.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_halved_by_a_fault_and_grows_slowly() {
        let pace = Pace::new();
        assert_eq!(pace.commits(), COMMITS_MAX);
        for expected in [32, 16, 8, 4, 2, 1, 1] {
            let begun = pace.halvings();
            // Of commits that were in progress together.
            for _ in 0..3 {
                pace.slow_down(begun);
                assert_eq!(pace.commits(), expected);
            }
        }
        for expected in [2, 2, 3, 3, 3, 4] {
            pace.speed_up();
            assert_eq!(pace.commits(), expected);
        }
        (0..COMMITS_MAX.pow(2)).for_each(|_| pace.speed_up());
        assert_eq!(pace.commits(), COMMITS_MAX);
    }
}
