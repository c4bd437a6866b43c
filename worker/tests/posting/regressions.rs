//! Promises that were once broken: each test here failed before the code kept its sentence.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::domain::decision::AccountCommit;
use postonce_shared::domain::ids::{AccountKey, TransactionKey};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Ledger, StoredTransaction};
use postonce_shared::ports::queue::{Held, Message, QueueName, WorkQueue};
use postonce_shared::testing::decorators::{LedgerDecorator, WorkQueueDecorator};
use postonce_worker::posting::disposition::Disposition;

use crate::stage::{DEQUEUE_COUNT_MAX, Stage, VISIBILITY, account, opened, queue, settlement, until};

/// A queue whose first receives take place, and whose answers get lost.
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
            // As if the visibility timeout had passed by the next one.
            let _ = self.inner.receive(queue, max, Duration::ZERO).await?;
            return Err(StoreFault::Unavailable { doing: "receiving", source: "timeout".into() });
        }
        self.inner.receive(queue, max, hidden).await
    }
}

#[tokio::test]
async fn receives_whose_answers_were_lost_make_no_dead_letters() {
    let stage = Stage::new().await;
    let _ = stage.submit(1, 1).await;
    let worker = stage.worker_over(|store| {
        let receives_lost = AtomicU32::new(DEQUEUE_COUNT_MAX);
        store.queue = Arc::new(LossyQueue { inner: Arc::clone(&store.queue), receives_lost });
    });
    stage.until_empty().await;
    worker.drain().await;
    assert_eq!((stage.dead().await, stage.balance(1).await), (vec![], "1.00".to_owned()));
}

/// A ledger with a bug that shows with one account, and a row that nobody can read.
struct BadLedger {
    inner: Arc<dyn Ledger>,
    panics_at: Option<AccountKey>,
    damaged: Option<TransactionKey>,
}

fn damage() -> StoreFault {
    StoreFault::Corrupt { doing: "reading a row", source: "a damaged row".into() }
}

#[async_trait]
impl LedgerDecorator for BadLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        assert!(self.panics_at != Some(commit.account()), "a bug");
        if commit.finalizations.iter().any(|last| Some(&last.key) == self.damaged.as_ref()) {
            return Err(damage());
        }
        self.inner.commit(commit).await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        if self.damaged.as_ref() == Some(key) {
            return Err(damage());
        }
        self.inner.transaction(key).await
    }
}

#[tokio::test]
async fn a_message_that_makes_its_worker_panic_drags_no_other_message_along() {
    let stage = Stage::new().await;
    for number in 1..=3 {
        let _ = stage.submit(number, number).await;
    }
    let worker = stage.worker_over(|store| {
        let (inner, panics_at) = (Arc::clone(&store.ledger), Some(account(1)));
        store.ledger = Arc::new(BadLedger { inner, panics_at, damaged: None });
    });
    stage.until_empty().await;
    worker.drain().await;
    assert_eq!(stage.dead().await, [account(1)]);
    assert_eq!([stage.balance(2).await, stage.balance(3).await], ["1.00", "1.00"]);
}

#[tokio::test]
async fn a_listener_that_fell_over_is_not_counted_twice() {
    let stage = Stage::new().await;
    let _ = stage.submit(1, 1).await;
    let worker = stage.worker_over(|store| {
        let (inner, panics_at) = (Arc::clone(&store.ledger), Some(account(1)));
        store.ledger = Arc::new(BadLedger { inner, panics_at, damaged: None });
    });
    stage.until_empty().await;
    assert_eq!(worker.meter.listeners(&queue()).look().max, 1);
    worker.drain().await;
}

#[tokio::test]
async fn a_message_whose_row_nobody_can_read_leaves_the_queue_as_a_dead_letter() {
    let stage = Stage::new().await;
    let damaged = stage.submit(1, 1).await.key;
    let worker = stage.worker_over(|store| {
        let (inner, damaged) = (Arc::clone(&store.ledger), Some(damaged));
        store.ledger = Arc::new(BadLedger { inner, panics_at: None, damaged });
    });
    until("it lies in the dead letters", async || !stage.dead().await.is_empty()).await;
    stage.until_empty().await;
    worker.drain().await;
}

#[tokio::test]
async fn who_lost_the_lease_sets_nothing_aside_and_takes_nothing_apart() {
    let stage = Stage::new().await;
    let work = stage.submit(1, 1).await;
    let bank = stage.bank_over(|_| {});
    let received = bank.store.queue.receive(&queue(), 1, Duration::ZERO).await.unwrap().remove(0);
    let delivery = opened(received);
    // Somebody else has it now, and is about to post it.
    let other = bank.store.queue.receive(&queue(), 1, VISIBILITY).await.unwrap();
    assert_eq!(other.len(), 1);
    assert_eq!(delivery.renew(&*bank.store.queue, &queue(), VISIBILITY).await.unwrap(), Held::Lost);
    let settlement = settlement(&bank);
    let dead = Disposition::DeadLetter { item: Box::new(work.clone()), reason: "too often".to_owned() };
    let _ = settlement.apply(&delivery, dead).await;
    assert_eq!(stage.dead().await, []);
    let _ = settlement.apply(&delivery, Disposition::Split { rest: vec![work.clone(), work] }).await;
    assert_eq!(stage.depth().await, 1);
}
