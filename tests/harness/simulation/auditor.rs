//! The independent auditor. It keeps its own records in plain maps, shares no rule with the bank, and compares the records with
//! the store after every write. The first finding ends the run, so a failure shows the first wrong step and not its
//! consequences.
//!
//! Checks, by the number of the invariant:
//!
//! 1. An entry belongs to a transaction that was accepted and is not final yet, and the row agrees with the entry.
//! 2. An acknowledged transaction has a row in the log, and has work on a queue or in an open dead letter until it is final.
//!    At the end of the run, every acknowledged transaction is final.
//! 3. A final row never changes, and no client receives another outcome.
//! 4. A row keeps the content of the first request. Other content under the same key is refused.
//! 5. At every version of an account, the balance is the sum of the entries, entries are consecutive, and pages are chained.
//!    A withdrawal stays within the limit, and is rejected only if the account could not pay at that version.
//! 6. An order number is issued once, and is below the reserved limit in the register.
//!
//! For the gate: a process that started while the gate was held, or that acknowledged the hold, does not receive messages and
//! does not post requests immediately; at the acknowledgment no such commit is in progress. By the clock of the store, a
//! scheduled release is not early.
//!
//! For requests that are posted immediately, additionally ([`ImmediateRecords`] checks the order within a process):
//!
//! - a commit that inserts a row finds none, and a commit that is reported as done left its own outcomes;
//! - on a store that checks the order, no accepted transaction of the account is overtaken;
//! - on another store, nothing is rejected because of the balance.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use postonce_shared::domain::decision::{AccountCommit, Decided, Submission, UnknownAccountCommit};
use postonce_shared::ports::process_registry::ProcessId as RegistryId;
use postonce_shared::testing::prelude::*;
use serde_json::Value;

use super::batches::auditor::BatchAudit;
use super::batches::ports::is_of_chunk;
use super::event_counts::EventCounts;
use super::gate_audit::GateAudit;
use super::immediate_records::ImmediateRecords;
use super::letters::LetterAudit;
use super::network::now;
use super::records::{AuditRecords, Checked, Content};
use super::scheduler::ProcessId;
use super::work_in_flight::WorkInFlight;

#[derive(Debug, Default)]
struct State {
    records: AuditRecords,
    immediate: ImmediateRecords,
    batches: BatchAudit,
    letters: LetterAudit,
    gate: GateAudit,
    last_started: Option<ProcessId>,
    findings: Vec<String>,
}

/// The auditor of a store.
#[derive(Debug, Default)]
pub struct Auditor(Mutex<State>);

/// A commit of requests that are posted immediately. It is in progress until this value is dropped.
pub struct InProgress {
    auditor: Arc<Auditor>,
    process_id: ProcessId,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.auditor.state().immediate.ends(self.process_id);
    }
}

impl Auditor {
    /// Creates an auditor for processes that remember their open work for this time.
    pub fn new(open_work_limit: Duration) -> Self {
        let state = State { immediate: ImmediateRecords::new(open_work_limit), ..State::default() };
        Self(Mutex::new(state))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Returns the first finding, if there is one.
    pub fn finding(&self) -> Option<String> {
        self.0.lock().findings.first().cloned()
    }

    /// Adds a finding of another check.
    pub fn report(&self, finding: String) {
        self.state().findings.push(finding);
    }

    pub(super) fn check(&self, check: impl FnOnce(&mut AuditRecords) -> Result<(), String>) {
        let mut state = self.state();
        let State { records, findings, .. } = &mut *state;
        if let Err(finding) = check(records) {
            findings.push(finding);
        }
    }

    /// Records that a client sends this instruction, now or later.
    pub fn requested(&self, key: &TransactionKey, instruction: &Instruction) {
        self.check(|records| {
            records.requested(key, Content::of(instruction));
            Ok(())
        });
    }

    /// Records that a process receives a request.
    pub fn submitted(&self, process_id: ProcessId, key: &TransactionKey, now: Duration) {
        self.state().immediate.submitted(process_id, key, now);
    }

    /// Records the response of a process.
    pub fn answered(
        &self,
        process_id: ProcessId,
        key: &TransactionKey,
        instruction: &Instruction,
        answer: &Acceptance,
    ) {
        let content = Content::of(instruction);
        if matches!(answer, Acceptance::Accepted(_)) {
            self.state().immediate.queued(process_id, key);
        }
        self.check(|records| match answer {
            Acceptance::Accepted(accepted) => records.acknowledged(key, &content, accepted),
            Acceptance::KeyReused => records.refused_as_reused(key, &content),
            // The account may be opened at the same time.
            Acceptance::AccountUnknown => Ok(()),
            Acceptance::CurrencyMismatch { .. } => {
                Err(format!("{key} was refused for its currency, which is the currency of the account"))
            }
        });
    }

    /// Records that a process showed this transaction to a client.
    pub fn shown(&self, stored: &StoredTransaction) {
        self.check(|records| records.shown(&stored.submission.key, stored.outcome.as_ref()));
    }

    /// Records that a process sends an insert of these transactions.
    pub fn inserts(&self, process_id: ProcessId, group: &[Submission]) {
        let mut state = self.state();
        group.iter().for_each(|new| state.immediate.queued(process_id, &new.key));
    }

    /// Checks that a process may post the insertions of a commit immediately, now. The commit is in progress until the returned
    /// value is dropped.
    pub fn posts_at_once(
        self: &Arc<Self>,
        raw: &Store,
        process_id: ProcessId,
        commit: &AccountCommit,
        now: Duration,
    ) -> InProgress {
        let mut state = self.state();
        let State { records, immediate, gate, findings, .. } = &mut *state;
        if let Some(forbidden) = gate.forbids(process_id) {
            findings.push(format!("process {} posts at once {forbidden}", process_id.number()));
        }
        if !raw.ledger.checks_order() {
            let is_accepted = |key: &TransactionKey| records.is_accepted(key);
            findings.extend(immediate.overtaken(process_id, commit, now, is_accepted));
        }
        immediate.begins(process_id);
        drop(state);
        InProgress { auditor: Arc::clone(self), process_id }
    }

    /// Checks the rows after an accept.
    pub fn accepted(&self, raw: &Store, group: &[Submission]) {
        self.check(|records| group.iter().try_for_each(|new| records.row(&new.key, row(raw, &new.key))));
    }

    /// Checks the account and the rows after a commit, whether it was written or refused.
    pub fn committed(&self, raw: &Store, commit: &AccountCommit, answer: &Result<Committed, StoreFault>) {
        self.check(|records| {
            let is_written = matches!(answer, Ok(Committed::Done { revision: Some(_) }));
            for insertion in commit.inserted() {
                records.inserted(
                    &insertion.pending.submission.key,
                    row(raw, &insertion.pending.submission.key),
                    is_written,
                )?;
            }
            records.account(raw, commit.account())?;
            for (key, outcome) in commit.outcomes() {
                let row = row(raw, key);
                if matches!(answer, Ok(Committed::Done { .. })) {
                    records.done(key, outcome, row.as_ref())?;
                }
                records.row(key, row)?;
            }
            // A commit of a chunk guarantees the order only on request.
            let promises_order = !is_of_chunk(commit) || commit.after_accepted;
            if !is_written || commit.inserted().is_empty() || !promises_order {
                return Ok(());
            }
            if !raw.ledger.checks_order() {
                return records.rejects_nothing_for_its_balance(commit);
            }
            records.overtakes_nothing(commit, |key| row(raw, key).is_some_and(|row| row.marks.dead_letter))
        });
    }

    /// Checks the rows after rejections of transactions of an account that does not exist.
    pub fn rejected_unknown(&self, raw: &Store, commit: &UnknownAccountCommit, is_written: bool) {
        self.check(|records| {
            for key in commit.decided.iter().map(Decided::key) {
                if is_written {
                    records.inserted(key, row(raw, key), true)?;
                }
                records.row(key, row(raw, key))?;
            }
            Ok(())
        });
    }

    /// Records that a process found that this account does not exist.
    pub fn missed(&self, account: AccountKey) {
        self.check(|records| {
            records.missing.insert(account);
            Ok(())
        });
    }

    /// Runs a check of batches.
    pub fn batches(&self, check: impl FnOnce(&mut BatchAudit) -> Checked) {
        let mut state = self.state();
        let State { batches, findings, .. } = &mut *state;
        if let Err(finding) = check(batches) {
            findings.push(finding);
        }
    }

    /// Returns the counts of events of batches.
    pub fn batch_counts(&self) -> EventCounts {
        self.state().batches.counts.clone()
    }

    /// Returns the acknowledged batches that are not final, and the completed batches whose results no client read.
    pub fn unfinished_batches(&self) -> (Vec<BatchKey>, Vec<BatchKey>) {
        let state = self.state();
        (state.batches.unfinished(), state.batches.unread())
    }

    /// Checks a row after a mark was written.
    pub fn marked(&self, raw: &Store, key: &TransactionKey) {
        self.check(|records| records.row(key, row(raw, key)));
    }

    /// Checks an account after it was opened or its terms were changed.
    pub fn changed(&self, raw: &Store, account: AccountKey) {
        self.check(|records| records.account(raw, account));
    }

    /// Records the content of a payload.
    pub fn payload_stored(&self, name: &str, body: &[u8]) {
        self.state().records.work.payload_stored(name, body);
    }

    /// Records that a message was sent to a queue.
    pub fn sent(&self, body: &[u8]) {
        self.check(|records| {
            let keys = records.work.keys_in(body);
            records.work.sent(keys);
            Ok(())
        });
    }

    /// Records that the adversary had access to these transactions: their work may be missing from now on, until repair sends it
    /// again. At the end of the run, they must be final like all others.
    pub fn tampered(&self, body: &[u8]) {
        self.check(|records| {
            let keys = records.work.keys_in(body);
            records.tampered(keys);
            Ok(())
        });
    }

    /// Checks that this process may receive messages now.
    pub fn receives(&self, process_id: ProcessId) {
        let mut state = self.state();
        let State { gate, findings, .. } = &mut *state;
        if let Some(forbidden) = gate.forbids(process_id) {
            findings.push(format!("process {} receives messages {forbidden}", process_id.number()));
        }
    }

    /// Records that a message was received.
    pub fn received(&self, message: &Message) {
        self.check(|records| {
            let keys = records.work.keys_in(&message.body);
            records.work.received(&message.lease.message_id, keys);
            Ok(())
        });
        self.state().letters.written(&message.lease.message_id, &message.body);
    }

    /// Records the new body of a message.
    pub fn extended(&self, id: &str, body: &[u8]) {
        self.check(|records| {
            let keys = records.work.keys_in(body);
            let removed = records.work.changed(id, keys);
            records.check_work_exists(&removed, "its message was changed")
        });
        self.state().letters.written(id, body);
    }

    /// Records that a message was deleted.
    pub fn deleted(&self, id: &str) {
        self.check(|records| {
            let removed = records.work.deleted(id);
            records.check_work_exists(&removed, "its message was deleted")
        });
    }

    /// Records a new dead letter.
    pub fn set_aside(&self, letter: &DeadLetter) {
        let mut state = self.state();
        let keys = state.records.work.keys_in(&letter.body);
        state.records.work.set_aside(&letter.id, keys);
        let State { records, letters, findings, .. } = &mut *state;
        if let Err(finding) = letters.set_aside(letter, &records.work) {
            findings.push(finding);
        }
    }

    /// Records a fact that the checks of dead letters need.
    pub fn letters(&self, record: impl FnOnce(&mut LetterAudit, &WorkInFlight)) {
        let mut state = self.state();
        let State { records, letters, .. } = &mut *state;
        record(letters, &records.work);
    }

    /// Records that a process crashed.
    pub fn crashed(&self, process: RegistryId) {
        self.state().letters.crashed(process);
    }

    /// Records that a dead letter may have been resolved.
    pub fn resolved(&self, raw: &Store, id: &str) {
        let open = now(raw.dead_letters.find(id)).ok().flatten().is_some_and(|it| it.resolution.is_none());
        if open {
            return;
        }
        self.check(|records| {
            let removed = records.work.resolved(id);
            records.check_work_exists(&removed, "its dead letter was resolved")
        });
    }

    /// Records an issued order number.
    pub fn drawn(&self, number: OrderNumber) {
        self.check(|records| records.number(number.counter()));
    }

    /// Reads a shared value after an attempt to write it, at this time of the store.
    pub fn swapped(&self, raw: &Store, name: &str, at: Timestamp) {
        let value = now(raw.sync.get(name)).ok().flatten().map(|current| current.value);
        let Some(value) = value.and_then(|value| serde_json::from_str::<Value>(&value).ok()) else { return };
        let mut state = self.state();
        let State { records, gate, last_started, findings, .. } = &mut *state;
        match name {
            "gate" => findings.extend(gate.stored(&value, at, *last_started)),
            "order-numbers" => {
                let next = value["next"].as_str().and_then(|next| next.parse().ok());
                records.reserved_below = next.unwrap_or(records.reserved_below);
            }
            _ => {}
        }
    }

    /// Records that an operator starts to release the gate.
    pub fn operator_releases(&self) {
        self.state().gate.operator_releases();
    }

    /// Records that an operator has released the gate.
    pub fn operator_released(&self) {
        self.state().gate.operator_released();
    }

    /// Records that a process started.
    pub fn started(&self, process_id: ProcessId) {
        self.state().last_started = Some(process_id);
    }

    /// Records the epoch of the gate that a process acknowledged.
    pub fn gate_acknowledged(&self, process_id: ProcessId, epoch: u64) {
        let mut state = self.state();
        state.gate.acknowledged(process_id, epoch);
        if state.gate.forbids(process_id).is_some() && state.immediate.in_progress(process_id) > 0 {
            let number = process_id.number();
            state.findings.push(format!("process {number} acknowledged the hold during a commit"));
        }
    }

    /// Returns the acknowledged transactions that are not final.
    pub fn unfinished(&self) -> Vec<TransactionKey> {
        self.state().records.unfinished().cloned().collect()
    }

    /// Checks the whole store at the end of the run.
    pub fn close(&self, raw: &Store, queues: &[QueueName]) {
        self.check(|records| {
            if let Some(key) = records.unfinished().next() {
                return Err(format!("{key} was acknowledged and never became final"));
            }
            for account in records.accounts() {
                records.account(raw, account)?;
                records.whole_journal(raw, account)?;
            }
            for key in records.transactions() {
                records.row(&key, row(raw, &key))?;
            }
            for queue in queues {
                let depth = now(raw.queue.backlog(queue)).map_err(|fault| fault.to_string())?.depth;
                if depth > 0 {
                    return Err(format!("{depth} message(s) were never settled in {queue}"));
                }
            }
            Ok(())
        });
        self.batches(|batches| batches.close(raw));
    }

    /// Returns the numbers of posted and of rejected transactions.
    pub fn outcomes(&self) -> (u64, u64) {
        self.state().records.outcomes()
    }
}

pub(super) fn row(raw: &Store, key: &TransactionKey) -> Option<StoredTransaction> {
    now(raw.ledger.transaction(key)).ok().flatten()
}
