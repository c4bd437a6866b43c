//! The counts and findings of a run, which clones share.

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

/// Counts of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Killed web processes.
    pub webs_killed: u64,
    /// Killed worker processes.
    pub workers_killed: u64,
    /// Times that several processes were killed at once.
    pub killed_together: u64,
    /// Processes that drained after SIGTERM, and exited with 0.
    pub drained: u64,
    /// Restarted processes.
    pub restarts: u64,
    /// Suspensions of a process for longer than its leases.
    pub suspensions: u64,
    /// Times that another connection held the lock of the file.
    pub locks_held: u64,
    /// Times that an operator held and released the gate.
    pub gates_held: u64,
    /// Opened accounts.
    pub accounts: u64,
    /// Acknowledged transactions.
    pub transactions: u64,
    /// Transactions first acknowledged to a client that waited.
    pub waited: u64,
    /// Transactions that web processes posted or rejected immediately. Those shortly before a kill are not counted.
    pub posted_at_once: u64,
    /// Posted transactions, by the audit.
    pub posted: u64,
    /// Rejected transactions, by the audit.
    pub rejected: u64,
    /// Requests of partners that got 503 and were sent again.
    pub unavailable: u64,
    /// Requests of partners that got no response and were sent again.
    pub unanswered: u64,
    /// Requests repeated with the same content.
    pub replays: u64,
    /// Requests that had to be refused, and were.
    pub refusals: u64,
    /// Reads of transactions and statements during the fault phase.
    pub reads: u64,
    /// Acknowledged batches.
    pub batches: u64,
    /// Items of batches whose results were read.
    pub batch_items: u64,
    /// Replayed dead letters, whose attempts were killed too often.
    pub replayed_letters: u64,
}

impl Counts {
    /// Returns the number of killed processes.
    pub const fn kills(&self) -> u64 {
        self.webs_killed.saturating_add(self.workers_killed)
    }
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    findings: Vec<String>,
}

/// Shared counts and findings of one run.
#[derive(Debug, Clone, Default)]
pub struct RunResults(Arc<Mutex<State>>);

impl RunResults {
    /// Returns the counts so far.
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

    /// Returns the findings so far.
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
