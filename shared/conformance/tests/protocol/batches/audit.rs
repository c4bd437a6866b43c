//! The audit of batches: what is damaged in a record, or between a record and its rows, is found.

use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::oversight::verify::{Extent, Finding, FindingKind, Totals, Verifier, Watcher};
use postonce_shared::ports::archive::{Archive, Readable, RowContent, StoredRow, UserRange};
use postonce_shared::testing::prelude::*;

use super::payroll;
use super::rig::{Rig, batch_key};

#[derive(Default)]
struct Recorder(Mutex<Vec<Finding>>);

impl Watcher for Recorder {
    fn found(&self, finding: &Finding) {
        self.0.lock().push(finding.clone());
    }

    fn progressed(&self, _: &Totals) {}
}

type Change = fn(&mut Vec<Readable<StoredTransaction>>);

/// An archive with changed transactions.
struct ChangedRows(Arc<dyn Archive>, Change);

#[async_trait]
impl ArchiveDecorator for ChangedRows {
    fn inner(&self) -> &dyn Archive {
        &*self.0
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        let Listing { items, next } = self.0.rows(range, cursor, limit).await?;
        let change = |row: Readable<StoredRow>| match row {
            Ok(StoredRow { account, content: RowContent::Transaction(stored) }) => {
                let mut changed = vec![*stored];
                (self.1)(&mut changed);
                let row =
                    |stored| Ok(StoredRow { account, content: RowContent::Transaction(Box::new(stored)) });
                changed.into_iter().map(row).collect()
            }
            row => vec![row],
        };
        Ok(Listing { items: items.into_iter().flat_map(change).collect(), next })
    }

    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        let mut listing = self.0.stored_transactions(account, cursor, limit).await?;
        (self.1)(&mut listing.items);
        Ok(listing)
    }
}

/// A bank with five batches: three are completed, one is being posted, and one is cancelled.
async fn bank() -> Rig {
    let rig = Rig::new().await;
    let bank = rig.process();
    for batch in 1..=3 {
        // Lines of the later batches are replays.
        let items = payroll(100 * u32::try_from(batch).unwrap());
        let _ = rig.submit(&bank, &batch_key(batch), &items).await.unwrap();
        rig.run(&bank).await;
    }
    let _ = rig.submit(&bank, &batch_key(4), &payroll(400)).await.unwrap();
    let _ = bank.batches.cancel(&batch_key(4)).await.unwrap();
    let _ = rig.submit(&bank, &batch_key(5), &payroll(500)).await.unwrap();
    let [split_queue, post_queue, _] = super::queues();
    rig.step(&bank, &split_queue).await;
    rig.step(&bank, &post_queue).await;
    rig
}

/// Returns the kinds of the findings about batches, and the batches.
async fn audit(
    rig: &Rig,
    rows: Change,
    batches_at_once: usize,
) -> (u64, Vec<(FindingKind, Option<BatchKey>)>) {
    let ports = rig.fixture.store.ports();
    let store = Store { archive: Arc::new(ChangedRows(ports.archive.clone(), rows)), ..ports };
    let watcher = Recorder::default();
    let concurrency = NonZeroUsize::new(8).unwrap();
    let extent = Extent { account: None, concurrency, batches_at_once: batches_at_once.try_into().unwrap() };
    let verifier = Verifier::new(&store, Arc::clone(&rig.fixture.world), &watcher);
    let totals = rig.while_time_passes(verifier.run(extent)).await.unwrap();
    let found =
        watcher.0.into_inner().into_iter().filter(|finding| finding.kind.code().starts_with("batch_"));
    (totals.batches, found.map(|finding| (finding.kind, finding.batch)).collect())
}

/// Checks the findings with several windows and with one.
async fn check(rig: &Rig, rows: Change, expected: &[(FindingKind, u128)]) {
    for batches_at_once in [1, 2, 3, 6] {
        let (batches, mut found) = audit(rig, rows, batches_at_once).await;
        found.sort();
        let mut expected: Vec<_> =
            expected.iter().map(|(kind, batch)| (*kind, Some(batch_key(*batch)))).collect();
        expected.sort();
        assert_eq!(found, expected, "{batches_at_once} batches at once");
        assert!(batches >= 4);
    }
}

/// Changes the stored record of a batch.
async fn rewrite(rig: &Rig, batch: u128, change: impl FnOnce(String) -> Option<String>) {
    let records = rig.fixture.store.ports().records;
    let id = format!("shop-{:032x}", batch);
    let stored = records.find(Collection::Batches, &id).await.unwrap().unwrap();
    match change(stored.value) {
        Some(body) => {
            drop(records.save(Collection::Batches, &id, &body, Some(&stored.revision)).await.unwrap());
        }
        None => records.remove(Collection::Batches, &id).await.unwrap(),
    }
}

#[tokio::test]
async fn sound_batches_give_no_finding() {
    let rig = bank().await;
    check(&rig, |_| (), &[]).await;
    assert_eq!(audit(&rig, |_| (), 100).await.0, 5);
}

#[tokio::test]
async fn a_damaged_record_is_unreadable() {
    let rig = bank().await;
    rewrite(&rig, 1, |_| Some("{}".to_owned())).await;
    rewrite(&rig, 5, |body| Some(body.replace("\"v\":1", "\"v\":99"))).await;
    check(&rig, |_| (), &[(FindingKind::BatchUnreadable, 1), (FindingKind::BatchUnreadable, 5)]).await;
}

#[tokio::test]
async fn rows_of_a_batch_without_a_record_are_found() {
    let rig = bank().await;
    rewrite(&rig, 3, |_| None).await;
    check(&rig, |_| (), &[(FindingKind::BatchMissing, 3)]).await;
    let rig = bank().await;
    rewrite(&rig, 5, |_| None).await;
    check(&rig, |_| (), &[(FindingKind::BatchMissing, 5)]).await;
}

fn is_line(stored: &Readable<StoredTransaction>, wanted: u32) -> bool {
    stored.as_ref().is_ok_and(|stored| stored.submission.batch_line.is_some_and(|own| own.line == wanted))
}

#[tokio::test]
async fn a_missing_row_and_one_that_is_not_final_are_found() {
    let rig = bank().await;
    check(&rig, |rows| rows.retain(|stored| !is_line(stored, 17)), &[(FindingKind::BatchIncomplete, 1)])
        .await;
    let not_final: Change = |rows| {
        let rows = rows.iter_mut().filter(|stored| is_line(stored, 150)).flatten();
        rows.for_each(|stored| stored.outcome = None);
    };
    check(&rig, not_final, &[(FindingKind::BatchIncomplete, 2)]).await;
    // A batch that is not completed has no totals to compare.
    check(&rig, |rows| rows.retain(|stored| !is_line(stored, 450)), &[]).await;
}

#[tokio::test]
async fn rows_with_other_sums_and_changed_totals_are_found() {
    let rig = bank().await;
    // A posted row of the first batch becomes one of the second.
    let moved: Change = |rows| {
        let rows = rows.iter_mut().flatten().filter(|stored| stored.status() == TransactionStatus::Posted);
        for own in rows.filter_map(|stored| stored.submission.batch_line.as_mut()).filter(|own| own.line == 1)
        {
            own.batch = batch_key(2).batch;
        }
    };
    check(&rig, moved, &[(FindingKind::BatchIncomplete, 1), (FindingKind::BatchTotals, 2)]).await;
    let batch = rig.batch(&batch_key(3)).await;
    let Phase::Completed { totals, .. } = &batch.phase else { panic!("{:?}", batch.phase) };
    let posted = totals.of(ItemStatus::Posted);
    let sum = posted.sums.values().next().unwrap();
    let (before, after) = (format!("\"{sum}\""), format!("\"{}\"", sum + 1));
    rewrite(&rig, 3, |body| Some(body.replace(&before, &after))).await;
    check(&rig, |_| (), &[(FindingKind::BatchTotals, 3)]).await;
}
