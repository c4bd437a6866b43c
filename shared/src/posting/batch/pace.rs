//! The number of commits that each chunk of a process has in progress. A store that is slow gets slower with every
//! further request, until none is answered in time. Faults of commits that were in progress together therefore halve
//! the number. It grows by one after as many successes, like the congestion window of TCP (RFC 5681, section 3.1).

use parking_lot::Mutex;

use crate::posting::commit_permits::COMMITS_MAX;

/// The number of concurrent commits of a chunk, adapted by all chunks of a process together.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Window>);

#[derive(Debug)]
struct Window {
    commits: usize,
    /// Commits that succeeded since the number last changed.
    successes: usize,
    /// Number of times that `commits` was halved.
    halvings: u64,
}

impl Pace {
    /// Starts with [`COMMITS_MAX`].
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Window { commits: COMMITS_MAX, successes: 0, halvings: 0 }))
    }

    /// Returns the number of commits that a chunk may have in progress, at least one.
    pub(super) fn commits(&self) -> usize {
        self.0.lock().commits
    }

    /// Returns the number of halvings. A commit remembers it when it begins.
    pub(super) fn halvings(&self) -> u64 {
        self.0.lock().halvings
    }

    /// Records a success.
    pub(super) fn speed_up(&self) {
        let mut window = self.0.lock();
        window.successes = window.successes.saturating_add(1);
        if window.successes >= window.commits {
            window.commits = window.commits.saturating_add(1).min(COMMITS_MAX);
            window.successes = 0;
        }
    }

    /// Records the failure of a commit that began after that many halvings. Failures of concurrent commits count once.
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
