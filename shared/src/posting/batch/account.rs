//! The items of one account: their next commit and their results.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::domain::batch::{BatchKey, Item, ItemOutcome, ItemResult, ItemStatus};
use crate::domain::decision::{Decided, Pending, Submission, Work};
use crate::domain::ids::{AccountKey, MessageId, TransactionKey};
use crate::domain::journal::PAGE_ENTRIES_MAX;
use crate::domain::origin::Origin;
use crate::domain::time::Timestamp;
use crate::domain::transaction::{BatchLine, Outcome};
use crate::ports::ledger::StoredTransaction;
use crate::posting::writer::{Group, Order};

/// The items of one account without a result, with their known rows.
pub(super) struct Open<'a> {
    pub(super) account: AccountKey,
    /// The results of the settled items.
    pub(super) results: Vec<ItemResult>,
    /// Whether the last joint commit of the account was written.
    pub(super) is_written: bool,
    key: &'a BatchKey,
    accepted_at: Timestamp,
    items: VecDeque<Item>,
    /// Known rows of taken keys.
    rows: BTreeMap<MessageId, StoredTransaction>,
}

/// The content of the next commit on an account.
#[derive(Default)]
pub(super) struct Lines {
    /// Accepted transactions that the commit makes final.
    pub(super) accepted: Vec<Work>,
    /// The lines of their items, in the same order.
    accepted_lines: Vec<u32>,
    /// New transactions that the commit inserts.
    pub(super) new: Vec<Submission>,
    /// Number of items at the front of the queue that were examined and kept; some may wait for the row of another one.
    items: usize,
}

impl Lines {
    pub(super) const fn len(&self) -> usize {
        self.accepted.len().saturating_add(self.new.len())
    }

    pub(super) fn keys(&self) -> Vec<TransactionKey> {
        let accepted = self.accepted.iter().map(Work::key);
        accepted.chain(self.new.iter().map(|new| &new.key)).cloned().collect()
    }
}

impl<'a> Open<'a> {
    /// Creates the items of an account in a batch that was received at `accepted_at`, in their order.
    pub(super) fn new(
        key: &'a BatchKey,
        accepted_at: Timestamp,
        account: AccountKey,
        items: VecDeque<Item>,
    ) -> Self {
        Self {
            account,
            results: Vec::new(),
            is_written: false,
            key,
            accepted_at,
            items,
            rows: BTreeMap::new(),
        }
    }

    /// Returns whether all items have their results.
    pub(super) fn is_finished(&self) -> bool {
        self.items.is_empty()
    }

    /// Records the row of a taken key. Returns whether it is new or has changed.
    pub(super) fn note_row(&mut self, row: StoredTransaction) -> bool {
        let revision = row.revision.clone();
        let before = self.rows.insert(row.submission.key.message, row);
        before.is_none_or(|before| before.revision != revision)
    }

    /// Settles the items with known final rows and returns the content of the next commit; `None` if all items are
    /// settled. An item with a repeated key waits for the row of the first item with this key.
    pub(super) fn next_lines(&mut self) -> Option<Lines> {
        let (mut group, mut keys, mut kept) = (Lines::default(), BTreeSet::new(), Vec::new());
        while group.len() < PAGE_ENTRIES_MAX
            && let Some(item) = self.items.pop_front()
        {
            let row = self.rows.get(&item.message);
            if let Some(result) = row.and_then(|row| self.result_of(&item, row)) {
                self.results.push(result);
                continue;
            }
            if keys.insert(item.message) {
                match row.and_then(StoredTransaction::work) {
                    Some(work) => {
                        group.accepted.push(work);
                        group.accepted_lines.push(item.line);
                    }
                    None => group.new.push(self.new_work(&item)),
                }
            }
            kept.push(item);
        }
        group.items = kept.len();
        self.put_back(kept);
        (!self.is_finished()).then_some(group)
    }

    /// Builds the group for the writer, transactions with rows first. A patient caller waits for accepted transactions
    /// that the account may need to pay with, but not for ever, since it can always have some.
    pub(super) fn group(&self, lines: &Lines, is_patient: bool) -> Group {
        let accepted = lines.accepted.iter().cloned().map(Pending::from);
        let pending = accepted.chain(lines.new.iter().cloned().map(Pending::from)).collect();
        let waits = is_patient && lines.accepted.is_empty();
        let order = if waits { Order::RejectAfterAccepted } else { Order::Any };
        Group::new(self.account, pending, order)
    }

    fn put_back(&mut self, items: Vec<Item>) {
        items.into_iter().rev().for_each(|item| self.items.push_front(item));
    }

    fn new_work(&self, item: &Item) -> Submission {
        Submission {
            key: TransactionKey {
                account: self.account,
                partner: self.key.partner.clone(),
                message: item.message,
            },
            instruction: item.instruction.clone(),
            accepted_at: self.accepted_at,
            batch_line: Some(BatchLine { batch: self.key.batch, line: item.line }),
            origin: Origin::default(),
        }
    }

    /// Returns the result that follows from a row; `None` if it has the content of the item and is not final.
    fn result_of(&self, item: &Item, row: &StoredTransaction) -> Option<ItemResult> {
        let result = |status, outcome| ItemResult { line: item.line, message: item.message, status, outcome };
        let own = BatchLine { batch: self.key.batch, line: item.line };
        if !item.instruction.matches(&row.fingerprint) {
            return Some(result(ItemStatus::Refused, ItemOutcome::KeyReused));
        }
        let outcome = row.outcome.as_ref()?;
        let status = match outcome {
            _ if row.submission.batch_line != Some(own) => ItemStatus::Replayed,
            Outcome::Posted { .. } => ItemStatus::Posted,
            Outcome::Rejected { .. } => ItemStatus::Rejected,
        };
        Some(result(status, reported(outcome)))
    }

    /// Records the outcomes of a written commit.
    pub(super) fn finish(&mut self, lines: &Lines, decided: &[Decided]) {
        let mut accepted_lines = lines.accepted_lines.iter().copied();
        let mut done = BTreeSet::new();
        for Decided { pending, outcome } in decided {
            let own = pending.submission.batch_line.map(|it| it.line).filter(|_| !pending.is_stored());
            let Some(line) = own.or_else(|| accepted_lines.next()) else { continue };
            let status = match outcome {
                // It was accepted before, by a request.
                _ if pending.is_stored() => ItemStatus::Replayed,
                Outcome::Posted { .. } => ItemStatus::Posted,
                Outcome::Rejected { .. } => ItemStatus::Rejected,
            };
            let message = pending.key().message;
            self.results.push(ItemResult { line, message, status, outcome: reported(outcome) });
            done.insert(line);
        }
        let looked_at = self.items.drain(..lines.items.min(self.items.len()));
        let kept = looked_at.filter(|item| !done.contains(&item.line)).collect();
        self.put_back(kept);
    }
}

fn reported(outcome: &Outcome) -> ItemOutcome {
    match outcome {
        Outcome::Posted { order_number, balance_after, .. } => {
            ItemOutcome::Posted { order_number: *order_number, balance_after: *balance_after }
        }
        Outcome::Rejected { reason, .. } => ItemOutcome::Rejected(*reason),
    }
}
