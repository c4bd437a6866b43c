//! What was counted in a run, and what was found. Cheap to clone; all clones count together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Findings that are kept; more say nothing new.
const FINDINGS_KEPT_MAX: usize = 100;

/// Which kind of process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kill {
    /// A web process.
    Web,
    /// A worker process.
    Worker,
}

/// The counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Web processes that were killed.
    pub webs_killed: u64,
    /// Worker processes that were killed.
    pub workers_killed: u64,
    /// Times at which more than one process was killed at once.
    pub killed_together: u64,
    /// Processes that were asked to end, drained, and exited with 0.
    pub drained: u64,
    /// Processes that were started again.
    pub restarts: u64,
    /// Processes that stood still for longer than their leases.
    pub suspensions: u64,
    /// Times at which somebody else held the lock of the file.
    pub locks_held: u64,
    /// Times at which an operator held the gate, and released it.
    pub gates_held: u64,
    /// Accounts that were opened.
    pub accounts: u64,
    /// Transactions that were acknowledged.
    pub transactions: u64,
    /// Transactions that moved money, as the audit saw them.
    pub posted: u64,
    /// Transactions that were refused for good, as the audit saw them.
    pub rejected: u64,
    /// Requests of clients that were answered with 503 and sent again.
    pub unavailable: u64,
    /// Requests of clients that got no answer and were sent again.
    pub unanswered: u64,
    /// Old requests that were repeated, with the same content.
    pub replays: u64,
    /// Requests that had to be refused, and were.
    pub refusals: u64,
    /// Transactions and statements that were read while everything went on.
    pub reads: u64,
    /// Dead letters of attempts that were killed too often; they were replayed.
    pub replayed_letters: u64,
}

impl Counts {
    /// Processes that were killed.
    pub const fn kills(&self) -> u64 {
        self.webs_killed.saturating_add(self.workers_killed)
    }
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    findings: Vec<String>,
}

/// Counts and findings of one run.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<State>>);

impl Tally {
    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Changes the counts.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.lock().counts);
    }

    /// Notes something that must not be.
    pub fn find(&self, finding: String) {
        let mut state = self.lock();
        if state.findings.len() < FINDINGS_KEPT_MAX {
            state.findings.push(finding);
        }
    }

    /// What was found so far.
    pub fn findings(&self) -> Vec<String> {
        self.lock().findings.clone()
    }

    pub(super) fn killed(&self, kind: Kill) {
        self.count(|counts| {
            let count = match kind {
                Kill::Web => &mut counts.webs_killed,
                Kill::Worker => &mut counts.workers_killed,
            };
            *count = count.saturating_add(1);
        });
    }

    pub(super) fn drained(&self) {
        self.count(|counts| counts.drained = counts.drained.saturating_add(1));
    }

    pub(super) fn restarted(&self) {
        self.count(|counts| counts.restarts = counts.restarts.saturating_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
