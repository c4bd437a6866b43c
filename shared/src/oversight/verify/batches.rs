//! Checks the batches against the ledger: the totals of a completed batch must match its rows, and every batch that a
//! row refers to must have a record.
//!
//! Records are read before rows, so that all rows of a completed batch are visible. The totals of other batches are not
//! compared. Records are read in windows, so that memory does not grow with their number; for each window after the
//! first, the transactions of all accounts are read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;

use super::finding::{Finding, FindingKind};
use super::{Extent, Verifier, for_each_row};
use crate::batches::records::{BatchRecords, StoredBatch};
use crate::domain::batch::{Batch, BatchKey, ItemStatus, Phase, Tally, Totals};
use crate::domain::instruction::Instruction;
use crate::domain::transaction::TransactionStatus;
use crate::ports::archive::{Readable, RowContent};
use crate::ports::fault::{StoreFault, chain as causes};
use crate::ports::ledger::StoredTransaction;

/// Maximum number of records per request. A record can have 720 KB.
const RECORDS_LIMIT: usize = 50;
/// Maximum number of batches without a record that are looked up again after the rows were read. Of more batches, only
/// the rows are counted.
const UNKNOWN_MAX: usize = 10_000;

/// The batches whose rows are counted in one pass over the accounts.
#[derive(Default)]
pub(super) struct Window {
    /// The last batch before the window.
    after: Option<BatchKey>,
    /// The last batch of the window; `None` for the last window.
    until: Option<BatchKey>,
    /// The id of the last record that was read.
    cursor: Option<String>,
    batches: BTreeMap<BatchKey, Counted>,
    /// Number of rows per batch that had no record when the window was read.
    unknown: BTreeMap<BatchKey, u64>,
    unknown_more: u64,
}

#[derive(Default)]
struct Counted {
    /// The totals if the batch is completed, and whether they match its document.
    completed: Option<(Totals, bool)>,
    /// The posted and rejected rows that the batch inserted.
    rows: Totals,
    /// Number of rows that are not final.
    accepted: u64,
}

impl Counted {
    fn of(batch: &Batch) -> Self {
        let completed = match &batch.phase {
            Phase::Completed { totals, .. } => Some((totals.clone(), totals.sum() == batch.document.valid)),
            Phase::Received | Phase::Splitting | Phase::Posting { .. } | Phase::Cancelled { .. } => None,
        };
        Self { completed, ..Self::default() }
    }

    fn finding(&self, key: &BatchKey) -> Option<Finding> {
        let (totals, is_balanced) = self.completed.as_ref()?;
        let own = |of: &Totals| [ItemStatus::Posted, ItemStatus::Rejected].map(|status| of.of(status));
        let (expected, found) = (own(totals), own(&self.rows));
        let [wanted, there] = [&expected, &found]
            .map(|tallies| tallies.iter().fold(0, |all: u64, it| all.saturating_add(it.count)));
        let finding = |kind| Finding::of(kind, None).of_batch(key);
        if there < wanted || self.accepted > 0 {
            let found = format!("{there}, and {} that are not final", self.accepted);
            return Some(
                finding(FindingKind::BatchIncomplete)
                    .expecting(format!("{wanted} final rows"))
                    .finding(found),
            );
        }
        let is_right = *is_balanced && expected == found;
        let totals =
            finding(FindingKind::BatchTotals).expecting(described(&expected)).finding(described(&found));
        (!is_right).then_some(totals)
    }
}

fn described([posted, rejected]: &[Tally; 2]) -> String {
    let sums = |tally: &Tally| {
        let sums = tally.sums.iter();
        sums.map(|(flow, sum)| format!(", {} {sum} {}", flow.kind, flow.currency)).collect::<String>()
    };
    let (posted_sums, rejected_sums) = (sums(posted), sums(rejected));
    format!("posted {}{posted_sums}; rejected {}{rejected_sums} (minor units)", posted.count, rejected.count)
}

impl Window {
    /// Counts a row that a batch of this window inserted.
    pub(super) fn note(&mut self, stored: &Readable<StoredTransaction>) {
        // An unreadable row is reported with its account.
        let Ok(stored) = stored else { return };
        let Some(line) = stored.submission.batch_line else { return };
        let key = BatchKey { partner: stored.submission.key.partner.clone(), batch: line.batch };
        if self.after.as_ref().is_some_and(|after| key <= *after)
            || self.until.as_ref().is_some_and(|until| key > *until)
        {
            return;
        }
        let Some(batch) = self.batches.get_mut(&key) else {
            if self.unknown.len() < UNKNOWN_MAX || self.unknown.contains_key(&key) {
                let rows = self.unknown.entry(key).or_default();
                *rows = rows.saturating_add(1);
            } else {
                self.unknown_more = self.unknown_more.saturating_add(1);
            }
            return;
        };
        let status = match stored.status() {
            TransactionStatus::Posted => ItemStatus::Posted,
            TransactionStatus::Rejected => ItemStatus::Rejected,
            TransactionStatus::Accepted => {
                batch.accepted = batch.accepted.saturating_add(1);
                return;
            }
        };
        let Instruction { kind, amount, .. } = &stored.submission.instruction;
        batch.rows.record(status, *kind, *amount);
    }
}

impl Verifier<'_> {
    /// Reads the first window of records. Its rows are counted from now on.
    pub(super) async fn read_first_batches(&self, extent: Extent) -> Result<(), StoreFault> {
        self.read_batches(Window::default(), extent).await
    }

    /// Compares the batches with the counted rows, window by window.
    pub(super) async fn check_batches(&self, extent: Extent) -> Result<(), StoreFault> {
        while let Some(window) = self.check_window().await? {
            self.read_batches(window, extent).await?;
            let counted = self.for_each_range(extent.concurrency, async |walk| {
                for_each_row(walk, |_, content| {
                    if let RowContent::Transaction(stored) = content {
                        self.note_batch_row(stored);
                    }
                })
                .await
            });
            counted.await?;
        }
        Ok(())
    }

    /// Reads the records after the previous window.
    async fn read_batches(&self, before: Window, extent: Extent) -> Result<(), StoreFault> {
        let records = BatchRecords::new(Arc::clone(&self.store.records));
        let mut window = Window { cursor: before.cursor, after: before.until, ..Window::default() };
        loop {
            let limit = extent.batches_at_once.get().saturating_sub(window.batches.len()).min(RECORDS_LIMIT);
            if limit == 0 {
                window.until = window.batches.last_key_value().map(|(key, _)| key.clone());
                break;
            }
            let read = || records.list_stored(window.cursor.as_deref(), limit).boxed();
            let found = self.reader.read(read).await?;
            let is_end = found.len() < limit;
            for stored in found {
                self.note_record(&stored, &mut window);
                window.cursor = Some(stored.id);
            }
            if is_end {
                break;
            }
        }
        self.shared.lock().batches = Some(window);
        Ok(())
    }

    fn note_record(&self, StoredBatch { id, key, batch }: &StoredBatch, window: &mut Window) {
        let counted = batch.as_ref().map(Counted::of).unwrap_or_default();
        if let Some(key) = key {
            window.batches.insert(key.clone(), counted);
        }
        if let Err(fault) = batch {
            let finding =
                Finding::of(FindingKind::BatchUnreadable, None).finding(format!("{id}: {}", causes(fault)));
            self.report(&key.iter().fold(finding, Finding::of_batch));
        }
        let totals = &mut self.shared.lock().totals;
        totals.batches = totals.batches.saturating_add(1);
    }

    /// Counts a row that a batch inserted. Called once per row and window.
    pub(super) fn note_batch_row(&self, stored: &Readable<StoredTransaction>) {
        if let Some(window) = &mut self.shared.lock().batches {
            window.note(stored);
        }
    }

    /// Reports the findings of a window, and returns it if there are further batches.
    async fn check_window(&self) -> Result<Option<Window>, StoreFault> {
        let Some(mut window) = self.shared.lock().batches.take() else { return Ok(None) };
        for (key, counted) in std::mem::take(&mut window.batches) {
            if let Some(finding) = counted.finding(&key) {
                self.report(&finding);
            }
        }
        let records = BatchRecords::new(Arc::clone(&self.store.records));
        for (key, rows) in std::mem::take(&mut window.unknown) {
            let finding = match self.reader.read(|| records.find(&key).boxed()).await {
                Ok(Some(_)) => continue,
                Ok(None) => Finding::of(FindingKind::BatchMissing, None).finding(format!("{rows} rows")),
                Err(fault @ StoreFault::Corrupt { .. }) => {
                    Finding::of(FindingKind::BatchUnreadable, None).finding(causes(&fault))
                }
                Err(fault) => return Err(fault),
            };
            self.report(&finding.of_batch(&key));
        }
        if window.unknown_more > 0 {
            let found = format!("{} more rows of batches without a record", window.unknown_more);
            self.report(&Finding::of(FindingKind::More, None).finding(found));
        }
        Ok(window.until.is_some().then_some(window))
    }
}
