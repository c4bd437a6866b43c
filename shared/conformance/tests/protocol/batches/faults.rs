//! Accounts whose commits meet transient faults are tried again, without the rest of their chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use postonce_shared::backoff::BATCH_COMMIT;
use postonce_shared::batches::messages::Named;
use postonce_shared::testing::prelude::*;

use super::rig::{ACCOUNTS, Rig, batch_key, item, queues};
use crate::protocol::fixture::{apply_gate, deposit};

/// A ledger whose next commits are written, and answered with a fault.
struct Unanswered {
    ledger: Arc<dyn Ledger>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    faults_left: AtomicUsize,
    commits: AtomicUsize,
    rows_read: AtomicUsize,
}

#[async_trait]
impl LedgerDecorator for Unanswered {
    fn inner(&self) -> &dyn Ledger {
        &*self.ledger
    }

    fn joint_steps(&self) -> Option<&dyn JointSteps> {
        None
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.counts.commits.fetch_add(1, Ordering::SeqCst);
        let committed = self.ledger.commit(commit).await?;
        let left = &self.counts.faults_left;
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(faults::unavailable());
        }
        Ok(committed)
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        self.counts.rows_read.fetch_add(1, Ordering::SeqCst);
        self.ledger.transaction(key).await
    }
}

/// A batch with two items of each account in one chunk, which is ready to be posted, and a process whose first commits
/// meet `faults`.
async fn chunk_with_faults(faults: usize) -> (Rig, Vec<Item>, Bank, Arc<Counts>, Named) {
    let rig = Rig::new().await;
    let items: Vec<Item> = (1..=10)
        .map(|line| item(line, u128::from(line) % ACCOUNTS + 1, 100 + u128::from(line), deposit("1.00")))
        .collect();
    let _ = rig.submit(&rig.process(), &batch_key(1), &items).await.unwrap();
    rig.step(&rig.process(), &queues()[0]).await;
    let messages = rig.take(&queues()[1]).await;
    assert_eq!(messages.len(), 1);
    let named = Named::decode(&messages[0].body).unwrap();
    let counts = Arc::new(Counts { faults_left: AtomicUsize::new(faults), ..Counts::default() });
    let counted = Arc::clone(&counts);
    let bank = rig.process_over(|store| {
        store.ledger = Arc::new(Unanswered { ledger: Arc::clone(&store.ledger), counts: counted });
    });
    (rig, items, bank, counts, named)
}

#[tokio::test]
async fn a_chunk_goes_on_after_a_few_faults_and_reads_only_the_rows_of_their_commits() {
    for faults in [1, 2, 5, 7] {
        let (rig, items, bank, counts, named) = chunk_with_faults(faults).await;
        rig.while_time_passes(bank.batches.process(&named)).await.expect("no fault of the chunk");
        let reads = counts.rows_read.load(Ordering::SeqCst);
        let of_accounts = faults.min(5);
        assert!(reads <= 2 * 2 * of_accounts, "{faults} faults: {reads} rows were read");
        rig.run(&bank).await;
        rig.check(&batch_key(1), &items).await;
    }
}

#[tokio::test]
async fn a_chunk_stops_when_all_fails_or_the_gate_is_held() {
    let (rig, items, bank, counts, named) = chunk_with_faults(usize::MAX).await;
    assert!(rig.while_time_passes(bank.batches.process(&named)).await.is_err());
    let most = 5 * usize::try_from(BATCH_COMMIT.attempts).unwrap();
    let commits = counts.commits.load(Ordering::SeqCst);
    assert!((6..=most).contains(&commits), "{commits} commits");

    counts.commits.store(0, Ordering::SeqCst);
    apply_gate(&bank, GateValue { epoch: 1, state: GateState::Held { release_at: None } });
    rig.while_time_passes(bank.batches.process(&named)).await.unwrap();
    assert_eq!(counts.commits.load(Ordering::SeqCst), 0, "no commit begins while the gate is held");

    counts.faults_left.store(0, Ordering::SeqCst);
    apply_gate(&bank, GateValue { epoch: 2, state: GateState::Released });
    rig.run(&bank).await;
    rig.check(&batch_key(1), &items).await;
}
