//! Properties that mutation testing had found without a test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::protocol::dead_letters::ResolveOutcome;
use postonce_shared::protocol::recover::RecoveryScope;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{
    Fixture, account, deposit, empty_ledger, key, queue, register, submit, withdrawal,
};

#[tokio::test]
async fn a_batch_that_is_final_in_part_posts_the_rest() {
    let fixture = Fixture::new().await;
    let (web, one, two) = (fixture.process(), fixture.process(), fixture.process());
    for message in 1..=3 {
        let _ = submit(&web, message, deposit("1.00")).await.unwrap();
    }
    let work = fixture.receive().await;
    assert!(one.poster.post(account(), vec![work[1].clone()]).await[0].1.is_ok());
    let settled = two.poster.post(account(), work).await;
    assert!(settled.len() == 3 && settled.iter().all(|(_, result)| result.is_ok()));
    for message in 1..=3 {
        assert!(matches!(fixture.outcome(message).await, Some(Outcome::Posted { .. })), "{message}");
    }
    assert_eq!(fixture.account().await.balance.to_string(), "3.00");
}

#[tokio::test]
async fn work_whose_row_was_marked_since_it_was_sent_is_posted() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    let work = fixture.receive().await;
    let marks = Marks { repairs: 1, ..Marks::default() };
    let ledger = fixture.store.ports().ledger;
    assert!(ledger.mark(&key(1), &work[0].row, marks).await.unwrap().is_some());
    assert!(bank.poster.post(account(), work).await[0].1.is_ok());
    assert!(matches!(fixture.outcome(1).await, Some(Outcome::Posted { .. })));
}

#[tokio::test]
async fn a_rejection_uses_up_no_order_number() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let _ = submit(&bank, 1, withdrawal("1.00")).await.unwrap();
    let _ = bank.poster.post(account(), fixture.receive().await).await;
    let _ = submit(&bank, 2, deposit("1.00")).await.unwrap();
    let _ = bank.poster.post(account(), fixture.receive().await).await;
    let Some(Outcome::Posted { order_number, .. }) = fixture.outcome(2).await else { panic!() };
    assert_eq!(order_number.counter(), FIRST_COUNTER);
}

#[tokio::test]
async fn a_posting_to_a_cached_account_reads_nothing() {
    let fixture = Fixture::new().await;
    let (web, worker) = (fixture.process(), fixture.process());
    let reads = || {
        let counts = worker.store.operations.snapshot().into_iter();
        counts.filter(|(operation, _)| operation.name == "get").map(|(_, count)| count).sum::<u64>()
    };
    let mut before = 0;
    for message in 1..=2 {
        before = reads();
        let _ = submit(&web, message, deposit("1.00")).await.unwrap();
        let settled = worker.poster.post(account(), fixture.receive().await).await;
        assert!(settled[0].1.is_ok());
    }
    assert_eq!(reads(), before);
}

#[tokio::test]
async fn accepted_work_rings_the_doorbell() {
    let fixture = Fixture::in_world(Arc::new(TestWorld::new(1))).await;
    let bank = fixture.process();
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    let rung = tokio::time::timeout(
        Duration::from_secs(20),
        bank.doorbell.rung(postonce_shared::messaging::envelope::WORK),
    )
    .await;
    assert_eq!(rung.unwrap(), BTreeSet::from([queue()]));
}

/// Reads of transactions never complete.
pub fn silence_reads(store: &mut Store) {
    faults::apply(store, |call| if call == "Ledger::transaction" { Effect::Hangs } else { Effect::Passes });
}

#[tokio::test]
async fn a_worker_of_the_same_process_announces_outcomes_without_a_read() {
    // The clock stands still, so that the log is never read again.
    let fixture = Fixture::in_world(Arc::new(TestWorld::new(1))).await;
    let bank = fixture.process_over(silence_reads);
    let asked =
        bank.acceptor.submit(key(1), deposit("1.00"), Origin::default(), Some(Duration::from_secs(60)));
    let posted = async {
        loop {
            let work = fixture.receive().await;
            if !work.is_empty() {
                break bank.poster.post(account(), work).await;
            }
            tokio::task::yield_now().await;
        }
    };
    let both = async { futures::join!(asked, posted) };
    let (answer, _) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
    let Ok(Acceptance::Accepted(Accepted { outcome, replayed: false, .. })) = answer else {
        panic!("{answer:?}")
    };
    assert!(matches!(outcome, Some(Outcome::Posted { .. })));
}

#[tokio::test]
async fn the_order_number_of_a_stale_commit_is_not_used_again() {
    let fixture = Fixture::new().await;
    let (web, old, other) = (fixture.process(), fixture.process(), fixture.process());
    for (message, worker) in [(1, &old), (2, &other), (3, &old)] {
        let _ = submit(&web, message, deposit("1.00")).await.unwrap();
        assert!(worker.poster.post(account(), fixture.receive().await).await[0].1.is_ok());
    }
    let Some(Outcome::Posted { order_number, .. }) = fixture.outcome(3).await else { panic!() };
    assert_eq!(order_number.counter(), FIRST_COUNTER + 2, "the number before was part of a write");
}

#[tokio::test]
async fn a_failed_discard_leaves_the_dead_letter_open() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let bank = fixture.process_over(|store| lose(store, "Ledger::commit", 1));
    let message = bank.store.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "cannot be posted")
        .await
        .unwrap();
    let id = &message.lease.message_id;
    assert!(bank.dead_letters.discard(id, "operator").await.is_err());
    assert!(
        fixture.stored(7).await.marks.dead_letter,
        "its dead letter is open, so that repair sends nothing"
    );
    assert_eq!(bank.store.dead_letters.find(id).await.unwrap().unwrap().resolution, None);
    assert_eq!(bank.dead_letters.discard(id, "operator").await.unwrap(), ResolveOutcome::Done);
    assert!(matches!(fixture.outcome(7).await, Some(Outcome::Rejected { .. })));
}

#[tokio::test]
async fn recovery_reads_every_page_of_the_log() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    for message in 0..501 {
        let _ = submit(&bank, message, deposit("1.00")).await.unwrap();
    }
    assert_eq!(bank.repair.recover(RecoveryScope::Old).await.unwrap().examined, 501);
}

#[tokio::test]
async fn numbers_given_back_before_the_close_count_as_lost() {
    let store = MemoryStore::new(Arc::new(SystemWorld::new())).sync;
    let numbers = OrderNumbers::new(Arc::clone(&store), empty_ledger(), Arc::new(SystemWorld::new()));
    let taken = numbers.take(5).await.unwrap();
    numbers.give_back(taken[3..].to_vec());
    numbers.close().await.unwrap();
    let books = register(&store).await;
    assert_eq!((books.reserved, books.issued, books.lost, books.returned), (100, 3, 2, 95));
}

/// A sync store that, when armed, loses the response of a write after another process wrote as well.
struct LossySync {
    inner: Arc<dyn SyncStore>,
    armed: AtomicBool,
    meanwhile: Mutex<Vec<OrderNumber>>,
}

#[async_trait]
impl SyncStoreDecorator for LossySync {
    fn inner(&self) -> &dyn SyncStore {
        &*self.inner
    }

    async fn swap(&self, name: &str, at: Option<&Revision>, value: &str) -> Result<Swapped, StoreFault> {
        let swapped = self.inner.swap(name, at, value).await?;
        if !self.armed.swap(false, Ordering::SeqCst) {
            return Ok(swapped);
        }
        let other = OrderNumbers::new(Arc::clone(&self.inner), empty_ledger(), Arc::new(SystemWorld::new()));
        *self.meanwhile.lock() = other.take(300).await.unwrap();
        Err(StoreFault::Unavailable { doing: "writing a value", source: "timeout".into() })
    }
}

#[tokio::test]
async fn a_close_whose_response_was_lost_returns_no_number_twice() {
    let world = || Arc::new(SystemWorld::new());
    let inner = MemoryStore::new(world()).sync;
    let sync = Arc::new(LossySync {
        inner: Arc::clone(&inner),
        armed: AtomicBool::new(false),
        meanwhile: Mutex::default(),
    });
    let numbers = OrderNumbers::new(sync.clone(), empty_ledger(), world());
    let _ = numbers.take(150).await.unwrap();
    while register(&inner).await.reserved < 450 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    // The close returns the second range of 300, and another process reserves the same 300 …
    sync.armed.store(true, Ordering::SeqCst);
    assert!(numbers.close().await.is_err());
    let meanwhile = sync.meanwhile.lock().clone();
    assert_eq!(meanwhile.first().map(|number| number.counter()), Some(FIRST_COUNTER + 150));
    // … so a third process must get none of them.
    let third = OrderNumbers::new(inner, empty_ledger(), world()).take(1).await.unwrap();
    assert!(!meanwhile.contains(&third[0]), "{} was issued twice", third[0]);
}
