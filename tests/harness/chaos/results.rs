//! The counts and findings of a run. Clones share them.

use std::sync::Arc;

use parking_lot::Mutex;
/// Maximum number of findings that are kept.
const FINDINGS_KEPT_MAX: usize = 100;

/// The kind of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessKind {
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
    /// How often more than one process was killed at once.
    pub killed_together: u64,
    /// Processes that were sent SIGTERM, drained, and exited with 0.
    pub drained: u64,
    /// Processes that were started again.
    pub restarts: u64,
    /// Processes that were suspended for longer than their leases.
    pub suspensions: u64,
    /// How often another connection held the lock of the file.
    pub locks_held: u64,
    /// How often an operator held and released the gate.
    pub gates_held: u64,
    /// Accounts that were opened.
    pub accounts: u64,
    /// Transactions that were acknowledged.
    pub transactions: u64,
    /// Transactions that were acknowledged first to a client that waited.
    pub waited: u64,
    /// Transactions that web processes posted or rejected at once. What a process did shortly before it was killed is
    /// not counted.
    pub posted_at_once: u64,
    /// Transactions that were posted, by the audit.
    pub posted: u64,
    /// Transactions that were rejected, by the audit.
    pub rejected: u64,
    /// Requests of partners that were answered with 503 and sent again.
    pub unavailable: u64,
    /// Requests of partners that got no answer and were sent again.
    pub unanswered: u64,
    /// Requests that were repeated with the same content.
    pub replays: u64,
    /// Requests that had to be refused, and were.
    pub refusals: u64,
    /// Transactions and statements that were read during the fault phase.
    pub reads: u64,
    /// Batches that were acknowledged.
    pub batches: u64,
    /// Items of batches whose results were read.
    pub batch_items: u64,
    /// Dead letters of attempts that were killed too often, and that were replayed.
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
pub struct RunResults(Arc<Mutex<State>>);

impl RunResults {
    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.0.lock().counts.clone()
    }

    /// Changes the counts.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().counts);
    }

    /// Adds a finding.
    pub fn report(&self, finding: String) {
        let mut state = self.0.lock();
        if state.findings.len() < FINDINGS_KEPT_MAX {
            state.findings.push(finding);
        }
    }

    /// The findings so far.
    pub fn findings(&self) -> Vec<String> {
        self.0.lock().findings.clone()
    }

    pub(super) fn killed(&self, kind: ProcessKind) {
        self.count(|counts| {
            let count = match kind {
                ProcessKind::Web => &mut counts.webs_killed,
                ProcessKind::Worker => &mut counts.workers_killed,
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
}
