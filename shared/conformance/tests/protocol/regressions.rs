//! Regression tests: each of them failed before the defect that it shows was fixed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use postonce_shared::backoff::REPAIR;
use postonce_shared::posting::group_commit::{Flush, GroupCommit};
use postonce_shared::protocol::dead_letters::ResolveOutcome;
use postonce_shared::protocol::recover::RecoveryScope;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{
    Fixture, account, deposit, empty_ledger, key, queue, register, submit, withdrawal,
};
use crate::protocol::mutation_gaps::silence_reads;

fn world() -> Arc<dyn World> {
    Arc::new(SystemWorld::new())
}

/// Accepts a transaction, and loses its send.
async fn accept_unsent(fixture: &Fixture, message: u128) {
    let web = fixture.process_over(|store| lose(store, "WorkQueue::send", 1));
    assert!(submit(&web, message, deposit("1.00")).await.is_err());
}

async fn receive_one(fixture: &Fixture) -> Message {
    let ports = fixture.store.ports();
    ports.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0)
}

#[tokio::test]
async fn all_unqueued_work_is_recovered_and_not_only_the_first_item() {
    let fixture = Fixture::new().await;
    for message in 1..=3 {
        accept_unsent(&fixture, message).await;
    }
    let recovered = fixture.process().repair.recover(RecoveryScope::Unqueued).await.unwrap();
    assert_eq!((recovered.examined, recovered.enqueued), (3, 3));
}

#[tokio::test]
async fn a_repair_whose_send_failed_is_tried_again_by_the_next_process() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    accept_unsent(&fixture, 7).await;
    world.advance(REPAIR.first);
    let unavailable = fixture.process_over(|store| lose(store, "WorkQueue::send", 1));
    assert!(unavailable.repair.enqueue_if_due(&fixture.stored(7).await).await.is_err());
    assert!(fixture.process().repair.enqueue_if_due(&fixture.stored(7).await).await.unwrap());
}

#[tokio::test]
async fn work_whose_message_is_at_the_head_of_the_queue_is_not_enqueued_again() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    accept_unsent(&fixture, 7).await;
    // The send arrives some milliseconds later, as it does over a network.
    world.advance(Duration::from_millis(5));
    assert!(submit(&fixture.process(), 7, deposit("1.00")).await.is_ok());
    world.advance(REPAIR.first);
    assert!(!fixture.process().repair.enqueue_if_due(&fixture.stored(7).await).await.unwrap());
}

#[tokio::test]
async fn numbers_given_back_after_they_were_reported_keep_the_register_consistent() {
    let store = MemoryStore::new(world()).sync;
    let numbers = OrderNumbers::new(Arc::clone(&store), empty_ledger(), world());
    let taken = numbers.take(75).await.unwrap();
    // After three quarters of a range the second one is always fetched, and 75 numbers are reported.
    let fetched = async {
        while register(&store).await.reserved == 100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), fetched).await.expect("a second range is fetched");
    tokio::task::yield_now().await;
    // None of the numbers was needed: all of the work was rejected.
    numbers.give_back(taken);
    numbers.close().await.unwrap();
    let register = register(&store).await;
    assert!(register.issued <= register.reserved, "{} of {} issued", register.issued, register.reserved);
}

#[tokio::test]
async fn closing_the_numbers_twice_changes_nothing() {
    let store = MemoryStore::new(world()).sync;
    let numbers = OrderNumbers::new(Arc::clone(&store), empty_ledger(), world());
    let _ = numbers.take(3).await.unwrap();
    numbers.close().await.unwrap();
    let once = register(&store).await;
    assert!(numbers.close().await.is_ok(), "nothing is left to give back");
    assert_eq!(register(&store).await, once);
}

#[tokio::test]
async fn a_fetch_of_numbers_that_panics_does_not_end_all_posting() {
    let (mut store, is_first) = (MemoryStore::new(world()), AtomicBool::new(true));
    faults::apply(&mut store, move |call| {
        assert!(call != "SyncStore::get" || !is_first.swap(false, Ordering::SeqCst), "a bug");
        Effect::Passes
    });
    let numbers = OrderNumbers::new(store.sync, empty_ledger(), world());
    assert!(numbers.next().await.is_err());
    assert!(numbers.next().await.is_ok());
}

#[tokio::test]
async fn a_replay_that_sends_nothing_is_not_reported_as_done() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let mut envelope = envelope_in(&receive_one(&fixture).await.body);
    // A key that the log does not have, as after a restore of an older state.
    envelope.items[0].submission.key = key(8);
    let bank = fixture.process();
    bank.store.queue.send(&queue(), &envelope.encode(&seal()), Duration::ZERO).await.unwrap();
    let message = receive_one(&fixture).await;
    bank.dead_letters.set_aside(&queue(), &message, &held_in(&message.body), "never accepted").await.unwrap();
    let _ = bank.store.queue.delete(&queue(), &message.lease).await.unwrap();
    let before = fixture.queued().await;
    let decided = bank.dead_letters.replay(&message.lease.message_id, "operator").await.unwrap();
    assert!(decided != ResolveOutcome::Done || fixture.queued().await > before, "nothing was sent");
}

#[tokio::test]
async fn an_unreadable_item_does_not_stop_the_discard_of_the_others() {
    let fixture = Fixture::new().await;
    for message in [7, 8] {
        let _ = submit(&fixture.process(), message, deposit("1.00")).await.unwrap();
    }
    let items = fixture.receive().await;
    let body = String::from_utf8(Envelope::of(items).encode(&seal())).unwrap();
    let body = body.replacen("deposit", "deposed", 1);
    let bank = fixture.process();
    bank.store.queue.send(&queue(), &resealed(body.as_bytes()), Duration::ZERO).await.unwrap();
    let message = receive_one(&fixture).await;
    bank.dead_letters.set_aside(&queue(), &message, &held_in(&message.body), "cannot be read").await.unwrap();
    let decided = bank.dead_letters.discard(&message.lease.message_id, "operator").await.unwrap();
    assert_eq!(decided, ResolveOutcome::Done);
    let outcome = fixture.outcome(8).await;
    assert!(
        matches!(outcome, Some(Outcome::Rejected { reason: RejectReason::Discarded, .. })),
        "{outcome:?}"
    );
}

/// A ledger with one unreadable row.
struct DamagedLedger {
    inner: Arc<dyn Ledger>,
    damaged: TransactionKey,
}

#[async_trait]
impl LedgerDecorator for DamagedLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        if *key == self.damaged {
            return Err(StoreFault::Corrupt { doing: "reading a row", source: "a damaged row".into() });
        }
        self.inner.transaction(key).await
    }
}

#[tokio::test]
async fn a_message_with_an_unreadable_row_can_be_set_aside() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let message = receive_one(&fixture).await;
    let bank = fixture.process_over(|store| {
        store.ledger = Arc::new(DamagedLedger { inner: Arc::clone(&store.ledger), damaged: key(7) });
    });
    let set_aside =
        bank.dead_letters.set_aside(&queue(), &message, &held_in(&message.body), "its row is damaged").await;
    assert!(set_aside.is_ok(), "the message would stay on the queue for ever: {set_aside:?}");
}

#[tokio::test]
async fn a_damaged_row_does_not_stop_the_posting_of_the_others() {
    let fixture = Fixture::new().await;
    for message in [7, 8] {
        let _ = submit(&fixture.process(), message, deposit("1.00")).await.unwrap();
    }
    let work = fixture.receive().await;
    let bank = fixture.process_over(|store| {
        store.ledger = Arc::new(DamagedLedger { inner: Arc::clone(&store.ledger), damaged: key(7) });
    });
    // A stale commit, so that the rows have to be read.
    let ledger = fixture.store.ports().ledger;
    assert!(ledger.mark(&key(8), &work[1].row, Marks::default()).await.unwrap().is_some());
    let settled = bank.poster.post(account(), work).await;
    let other = settled.iter().find(|(settled, _)| *settled == key(8)).unwrap();
    assert!(other.1.is_ok(), "{:?}", other.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_becomes_idle_abandons_no_caller() {
    let flush: Flush<u8, u32, u32> = Arc::new(|_, items| async move { items }.boxed());
    let group = Arc::new(GroupCommit::new(world(), 8, flush));
    let callers = (0..4).map(|_| {
        let group = Arc::clone(&group);
        tokio::spawn(async move {
            let mut abandoned = 0_u32;
            for item in 0..200_000 {
                abandoned = abandoned.saturating_add(u32::from(group.submit(1, item).await.is_err()));
            }
            abandoned
        })
    });
    let abandoned = futures::future::join_all(callers).await;
    let abandoned: Vec<u32> = abandoned.into_iter().map(Result::unwrap).collect();
    assert_eq!(abandoned, [0, 0, 0, 0]);
}

#[tokio::test]
async fn a_wait_ends_at_its_deadline_although_the_log_does_not_answer() {
    let fixture = Fixture::new().await;
    let bank = fixture.process_over(silence_reads);
    let wait = Some(Duration::from_millis(60));
    let asked = bank.acceptor.submit(key(1), deposit("1.00"), Origin::default(), wait);
    let answer = tokio::time::timeout(Duration::from_secs(5), asked).await;
    assert!(answer.is_ok(), "the transaction was accepted, but the request was never answered");
}

#[tokio::test]
async fn a_fault_of_the_first_page_rejects_no_withdrawal_that_it_would_have_covered() {
    let fixture = Fixture::new().await;
    let bank = fixture.process_over(|store| lose(store, "Ledger::commit", 1));
    let mut work = Vec::new();
    for message in 0..99 {
        let last = message == 98;
        let instruction = if last { withdrawal("50.00") } else { deposit("1.00") };
        let _ = submit(&bank, message, instruction).await.unwrap();
        work.extend(fixture.receive().await);
    }
    let _ = bank.poster.post(account(), work.clone()).await;
    let _ = bank.poster.post(account(), work).await;
    let outcome = fixture.outcome(98).await;
    assert!(matches!(outcome, Some(Outcome::Posted { .. })), "{outcome:?}");
}
