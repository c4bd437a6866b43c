//! Regression tests: each of them failed before the defect that it shows was fixed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::testing::prelude::*;
use postonce_worker::posting::disposition::Disposition;

use crate::posting::fixture::{
    DEQUEUE_COUNT_MAX, Fixture, Settling, VISIBILITY, account, opened, queue, until,
};

/// A queue whose first receives take effect, but whose responses are lost.
struct LossyQueue {
    inner: Arc<dyn WorkQueue>,
    receives_lost: AtomicU32,
}

#[async_trait]
impl WorkQueueDecorator for LossyQueue {
    fn inner(&self) -> &dyn WorkQueue {
        &*self.inner
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        hidden: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let lost = &self.receives_lost;
        if lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            // As if the visibility timeout had passed before the next receive.
            let _ = self.inner.receive(queue, max, Duration::ZERO).await?;
            return Err(StoreFault::Unavailable { doing: "receiving", source: "timeout".into() });
        }
        self.inner.receive(queue, max, hidden).await
    }
}

#[tokio::test]
async fn receives_whose_answers_were_lost_make_no_dead_letters() {
    let fixture = Fixture::new().await;
    let _ = fixture.submit(1, 1).await;
    let worker = fixture.worker_over(|store| {
        let receives_lost = AtomicU32::new(DEQUEUE_COUNT_MAX);
        store.queue = Arc::new(LossyQueue { inner: Arc::clone(&store.queue), receives_lost });
    });
    fixture.until_empty().await;
    worker.drain().await;
    assert_eq!((fixture.dead_letter_accounts().await, fixture.balance(1).await), (vec![], "1.00".to_owned()));
}

/// A ledger with a bug that one account triggers, and with an unreadable row.
struct BadLedger {
    inner: Arc<dyn Ledger>,
    panics_at: Option<AccountKey>,
    damaged: Option<TransactionKey>,
}

fn corruption() -> StoreFault {
    StoreFault::Corrupt { doing: "reading a row", source: "a damaged row".into() }
}

#[async_trait]
impl LedgerDecorator for BadLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        assert!(self.panics_at != Some(commit.account()), "a bug");
        if commit.stored().iter().any(|last| Some(&last.pending.submission.key) == self.damaged.as_ref()) {
            return Err(corruption());
        }
        self.inner.commit(commit).await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        if self.damaged.as_ref() == Some(key) {
            return Err(corruption());
        }
        self.inner.transaction(key).await
    }
}

#[tokio::test]
async fn a_message_that_makes_its_worker_panic_sets_no_other_message_aside() {
    let fixture = Fixture::new().await;
    for number in 1..=3 {
        let _ = fixture.submit(number, number).await;
    }
    let worker = fixture.worker_over(|store| {
        let (inner, panics_at) = (Arc::clone(&store.ledger), Some(account(1)));
        store.ledger = Arc::new(BadLedger { inner, panics_at, damaged: None });
    });
    fixture.until_empty().await;
    worker.drain().await;
    assert_eq!(fixture.dead_letter_accounts().await, [account(1)]);
    assert_eq!([fixture.balance(2).await, fixture.balance(3).await], ["1.00", "1.00"]);
}

#[tokio::test]
async fn a_listener_that_panicked_is_not_counted_twice() {
    let fixture = Fixture::new().await;
    let _ = fixture.submit(1, 1).await;
    let worker = fixture.worker_over(|store| {
        let (inner, panics_at) = (Arc::clone(&store.ledger), Some(account(1)));
        store.ledger = Arc::new(BadLedger { inner, panics_at, damaged: None });
    });
    fixture.until_empty().await;
    assert_eq!(worker.meter.listeners(&queue()).snapshot().max, 1);
    worker.drain().await;
}

#[tokio::test]
async fn a_message_with_an_unreadable_row_becomes_a_dead_letter() {
    let fixture = Fixture::new().await;
    let damaged = fixture.submit(1, 1).await.submission.key;
    let worker = fixture.worker_over(|store| {
        let (inner, damaged) = (Arc::clone(&store.ledger), Some(damaged));
        store.ledger = Arc::new(BadLedger { inner, panics_at: None, damaged });
    });
    until("there is a dead letter", async || !fixture.dead_letter_accounts().await.is_empty()).await;
    fixture.until_empty().await;
    worker.drain().await;
}

#[tokio::test]
async fn a_worker_that_lost_the_lease_sets_nothing_aside_and_splits_no_envelope() {
    let fixture = Fixture::new().await;
    let work = fixture.submit(1, 1).await;
    let bank = fixture.bank_over(|_| {});
    let received = bank.store.queue.receive(&queue(), 1, Duration::ZERO).await.unwrap().remove(0);
    let delivery = opened(received);
    // Another worker has received it, and is about to post it.
    let other = bank.store.queue.receive(&queue(), 1, VISIBILITY).await.unwrap();
    assert_eq!(other.len(), 1);
    assert_eq!(delivery.renew(&*bank.store.queue, &queue(), VISIBILITY).await.unwrap(), Held::Lost);
    let settling = Settling::of(&bank);
    let settlement = settling.settlement();
    let dead = Disposition::DeadLetter { item: Box::new(work.clone()), reason: "too often".to_owned() };
    let _ = settlement.apply(&delivery, dead).await;
    assert_eq!(fixture.dead_letter_accounts().await, []);
    let _ = settlement.apply(&delivery, Disposition::Split { rest: vec![work.clone(), work] }).await;
    assert_eq!(fixture.depth().await, 1);
}
