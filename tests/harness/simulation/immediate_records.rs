//! Checks of requests that are posted immediately.
//!
//! The order within a process: a process that sent an insert of a transaction, or acknowledged it, before it received a request
//! for the same account, does not post the request immediately while the transaction is accepted. This guarantee ends two
//! visibility timeouts after the process received the transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use postonce_shared::testing::prelude::*;

use super::records::{AuditRecords, Checked, Content, TransactionRecord, check};
use super::scheduler::ProcessId;

/// The requests, inserts and acknowledgments of each process in order, and its commits in progress.
#[derive(Debug, Default)]
pub struct ImmediateRecords {
    /// Time for which a process remembers its open work.
    limit: Duration,
    /// Number of events so far.
    events: u64,
    /// First receipt of each request by each process: the number of the event, and the time.
    submitted: BTreeMap<(ProcessId, TransactionKey), (u64, Duration)>,
    /// Number of the event in which each process first sent an insert or an acknowledgment.
    queued: BTreeMap<(ProcessId, AccountKey), BTreeMap<TransactionKey, u64>>,
    in_progress: BTreeMap<ProcessId, usize>,
}

impl ImmediateRecords {
    /// Creates empty records for processes that remember their open work for this time.
    pub fn new(limit: Duration) -> Self {
        Self { limit, ..Self::default() }
    }

    fn next_event(&mut self) -> u64 {
        self.events = self.events.saturating_add(1);
        self.events
    }

    /// Records that a process receives a request.
    pub fn submitted(&mut self, process_id: ProcessId, key: &TransactionKey, now: Duration) {
        let event = self.next_event();
        self.submitted.entry((process_id, key.clone())).or_insert((event, now));
    }

    /// Records that a process sends an insert or an acknowledgment.
    pub fn queued(&mut self, process_id: ProcessId, key: &TransactionKey) {
        let event = self.next_event();
        self.queued.entry((process_id, key.account)).or_default().entry(key.clone()).or_insert(event);
    }

    /// Returns a description of the accepted transactions that the commit of a process must not overtake, if there are any.
    pub fn overtaken(
        &self,
        process_id: ProcessId,
        commit: &AccountCommit,
        now: Duration,
        is_accepted: impl Fn(&TransactionKey) -> bool,
    ) -> Option<String> {
        let received = |key: &TransactionKey| self.submitted.get(&(process_id, key.clone())).copied();
        let queued = self.queued.get(&(process_id, commit.account()))?;
        for insertion in commit.inserted() {
            let Some((submitted, _)) = received(&insertion.pending.submission.key) else { continue };
            let is_before = |(key, event): &(&TransactionKey, &u64)| {
                let is_remembered =
                    received(key).is_some_and(|(_, since)| now < since.saturating_add(self.limit));
                **event < submitted && is_remembered && is_accepted(key)
            };
            if let Some((before, _)) = queued.iter().find(is_before) {
                let number = process_id.number();
                return Some(format!(
                    "process {number} posts {} before its own {before}",
                    insertion.pending.submission.key
                ));
            }
        }
        None
    }

    /// Records the start of a commit.
    pub fn begins(&mut self, process_id: ProcessId) {
        let count = self.in_progress.entry(process_id).or_default();
        *count = count.saturating_add(1);
    }

    /// Records the end of a commit, or of its process.
    pub fn ends(&mut self, process_id: ProcessId) {
        let count = self.in_progress.entry(process_id).or_default();
        *count = count.saturating_sub(1);
    }

    /// Returns the number of commits in progress.
    pub fn in_progress(&self, process_id: ProcessId) -> usize {
        self.in_progress.get(&process_id).copied().unwrap_or(0)
    }
}

impl AuditRecords {
    /// Records a row that a commit inserted with its outcome. The outcome is checked later, like that of every other row.
    pub fn inserted(
        &mut self,
        key: &TransactionKey,
        row: Option<StoredTransaction>,
        is_written: bool,
    ) -> Checked {
        if let Some(record) = self.transactions.get(key) {
            return check(!is_written, || format!("{key} was inserted, and the log had {record:?}"));
        }
        check(row.is_some() == is_written, || format!("the row of {key} is {row:?} after its commit"))?;
        let Some(row) = row else { return Ok(()) };
        let content = Content::of(&row.submission.instruction);
        let requested = self.requested.get(key).is_some_and(|contents| contents.contains(&content));
        check(requested, || format!("{key} was posted with {content:?}, which no client requested"))?;
        self.transactions.insert(key.clone(), TransactionRecord::of(content));
        Ok(())
    }

    /// Returns whether the transaction is in the log and not final.
    pub fn is_accepted(&self, key: &TransactionKey) -> bool {
        self.transactions.get(key).is_some_and(|record| record.outcome.is_none())
    }

    /// Checks that a commit reported as done left its own outcome in a row.
    pub fn done(&self, key: &TransactionKey, outcome: &Outcome, row: Option<&StoredTransaction>) -> Checked {
        let left = row.and_then(|row| row.outcome.as_ref());
        check(left == Some(outcome), || {
            format!("the commit of {key} as {outcome:?} is done; its row is {row:?}")
        })
    }

    /// Checks that a commit on a store without order checks rejects nothing for its balance, because a transaction of another
    /// process might pay for it.
    pub fn rejects_nothing_for_its_balance(&self, commit: &AccountCommit) -> Checked {
        let for_balance = |outcome: &Outcome| match outcome {
            Outcome::Posted { .. } => false,
            Outcome::Rejected { reason, .. } => {
                matches!(reason, RejectReason::InsufficientFunds | RejectReason::AmountOutOfRange)
            }
        };
        commit.inserted().iter().try_for_each(|insertion| {
            check(!for_balance(&insertion.outcome), || {
                format!(
                    "{} was rejected at once, although accepted transactions may pay it",
                    insertion.pending.submission.key
                )
            })
        })
    }

    /// Checks that all other transactions of the account are final or in the dead letters.
    pub fn overtakes_nothing(
        &self,
        commit: &AccountCommit,
        is_dead_letter: impl Fn(&TransactionKey) -> bool,
    ) -> Checked {
        let waits = |(key, record): &(&TransactionKey, &TransactionRecord)| {
            key.account == commit.account() && record.outcome.is_none() && !is_dead_letter(key)
        };
        self.transactions.iter().find(waits).map_or(Ok(()), |(waiting, _)| {
            Err(format!("a commit on {} was written before the accepted {waiting}", commit.account()))
        })
    }
}
