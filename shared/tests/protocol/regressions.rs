//! Promises that were once broken: each test here failed before the code kept its sentence.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::backoff::REPAIR;
use postonce_shared::domain::account::Versioned;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::messaging::envelope::{self, Envelope};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Ledger, Marks, StoredTransaction};
use postonce_shared::ports::queue::{BODY_BYTES_MAX, Message};
use postonce_shared::ports::sync_store::SyncStore;
use postonce_shared::ports::world::World;
use postonce_shared::protocol::dead_letters::Decided;
use postonce_shared::protocol::group_commit::{Flush, GroupCommit};
use postonce_shared::protocol::order_numbers::OrderNumbers;
use postonce_shared::protocol::recover::RecoveryScope;
use postonce_shared::testing::conformance::sealed::{envelope_in, held_in, resealed, seal};
use postonce_shared::testing::decorators::{LedgerDecorator, SyncStoreDecorator};

use crate::guards::SilentLedger;
use crate::stage::{
    Countdown, Stage, TroubledLedger, TroubledQueue, account, deposit, key, queue, register, submit,
    withdrawal,
};

fn world() -> Arc<dyn World> {
    Arc::new(SystemWorld::new())
}

/// Accepts a transaction whose send is lost.
async fn forget(stage: &Stage, message: u128) {
    let web = stage.process_over(|store| {
        let sends_lost = Countdown::of(1);
        store.queue = Arc::new(TroubledQueue { inner: Arc::clone(&store.queue), sends_lost });
    });
    assert!(submit(&web, message, deposit("1.00")).await.is_err());
}

async fn receive_one(stage: &Stage) -> Message {
    let ports = stage.store.ports();
    ports.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0)
}

#[tokio::test]
async fn all_that_is_unqueued_is_recovered_and_not_only_the_first() {
    let stage = Stage::new().await;
    for message in 1..=3 {
        forget(&stage, message).await;
    }
    let recovered = stage.process().repair.recover(RecoveryScope::Unqueued).await.unwrap();
    assert_eq!((recovered.looked_at, recovered.enqueued), (3, 3));
}

#[tokio::test]
async fn a_repair_whose_send_failed_is_tried_again_at_the_next_look() {
    let world = Arc::new(TestWorld::new(1));
    let stage = Stage::in_world(world.clone()).await;
    forget(&stage, 7).await;
    world.advance(REPAIR.first);
    let away = stage.process_over(|store| {
        let sends_lost = Countdown::of(1);
        store.queue = Arc::new(TroubledQueue { inner: Arc::clone(&store.queue), sends_lost });
    });
    assert!(away.repair.consider(&stage.stored(7).await).await.is_err());
    assert!(stage.process().repair.consider(&stage.stored(7).await).await.unwrap());
}

#[tokio::test]
async fn work_whose_own_message_waits_at_the_head_is_not_enqueued_again() {
    let world = Arc::new(TestWorld::new(1));
    let stage = Stage::in_world(world.clone()).await;
    forget(&stage, 7).await;
    // The way to the queue takes a moment, as it does outside of tests.
    world.advance(Duration::from_millis(5));
    assert!(submit(&stage.process(), 7, deposit("1.00")).await.is_ok());
    world.advance(REPAIR.first);
    assert!(!stage.process().repair.consider(&stage.stored(7).await).await.unwrap());
}

#[tokio::test]
async fn numbers_given_back_after_they_were_reported_do_not_break_the_books() {
    let store = MemoryStore::new(world()).sync;
    let numbers = OrderNumbers::new(Arc::clone(&store), world());
    let taken = numbers.take(75).await.unwrap();
    // After three quarters of a range a second one is fetched for certain, and 75 are reported.
    let fetched = async {
        while register(&store).await.reserved == 100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), fetched).await.expect("a second range");
    tokio::task::yield_now().await;
    // None of them was needed: all of the work was rejected.
    numbers.give_back(taken);
    numbers.close().await.unwrap();
    let register = register(&store).await;
    assert!(register.issued <= register.reserved, "{} of {} issued", register.issued, register.reserved);
}

#[tokio::test]
async fn closing_the_numbers_twice_changes_nothing() {
    let store = MemoryStore::new(world()).sync;
    let numbers = OrderNumbers::new(Arc::clone(&store), world());
    let _ = numbers.take(3).await.unwrap();
    numbers.close().await.unwrap();
    let once = register(&store).await;
    assert!(numbers.close().await.is_ok(), "nothing is left to give back");
    assert_eq!(register(&store).await, once);
}

/// A store of values that falls over a bug at first.
struct PanickySync {
    inner: Arc<dyn SyncStore>,
    panics: AtomicU32,
}

#[async_trait]
impl SyncStoreDecorator for PanickySync {
    fn inner(&self) -> &dyn SyncStore {
        &*self.inner
    }

    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        let left = self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "a bug");
        self.inner.get(name).await
    }
}

#[tokio::test]
async fn a_fetch_of_numbers_that_panics_does_not_end_all_posting() {
    let inner = MemoryStore::new(world()).sync;
    let sync = Arc::new(PanickySync { inner, panics: AtomicU32::new(1) });
    let numbers = OrderNumbers::new(sync, world());
    assert!(numbers.next().await.is_err());
    assert!(numbers.next().await.is_ok());
}

#[tokio::test]
async fn a_discard_that_failed_leaves_the_mark_that_keeps_repair_away() {
    let stage = Stage::new().await;
    let _ = submit(&stage.process(), 7, deposit("1.00")).await.unwrap();
    let message = receive_one(&stage).await;
    let bank = stage.process_over(|store| {
        let mut ledger = TroubledLedger::over(&store.ledger);
        ledger.commits_lost = Countdown::of(1);
        store.ledger = Arc::new(ledger);
    });
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "it could not be posted")
        .await
        .unwrap();
    let _ = bank.store.queue.delete(&queue(), &message.lease).await.unwrap();
    assert!(bank.dead_letters.discard(&message.lease.message_id, "operator").await.is_err());
    assert!(stage.stored(7).await.marks.dead_letter, "its letter is open");
}

#[tokio::test]
async fn a_replay_that_sends_nothing_does_not_say_that_it_is_done() {
    let stage = Stage::new().await;
    let _ = submit(&stage.process(), 7, deposit("1.00")).await.unwrap();
    let mut envelope = envelope_in(&receive_one(&stage).await.body);
    // The log does not know it: it was put back to an older state, say.
    envelope.items[0].key = key(8);
    let bank = stage.process();
    bank.store.queue.send(&queue(), &envelope.encode(&seal()), Duration::ZERO).await.unwrap();
    let message = receive_one(&stage).await;
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "it was never accepted")
        .await
        .unwrap();
    let _ = bank.store.queue.delete(&queue(), &message.lease).await.unwrap();
    let before = stage.queued().await;
    let decided = bank.dead_letters.replay(&message.lease.message_id, "operator").await.unwrap();
    assert!(decided != Decided::Done || stage.queued().await > before, "nothing was sent");
}

#[tokio::test]
async fn one_unreadable_item_does_not_keep_its_neighbour_from_being_discarded() {
    let stage = Stage::new().await;
    for message in [7, 8] {
        let _ = submit(&stage.process(), message, deposit("1.00")).await.unwrap();
    }
    let items = stage.receive().await;
    let body = String::from_utf8(Envelope::of(items, None).encode(&seal())).unwrap();
    let body = body.replacen("deposit", "deposed", 1);
    let bank = stage.process();
    bank.store.queue.send(&queue(), &resealed(body.as_bytes()), Duration::ZERO).await.unwrap();
    let message = receive_one(&stage).await;
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "it cannot be read")
        .await
        .unwrap();
    let decided = bank.dead_letters.discard(&message.lease.message_id, "operator").await.unwrap();
    assert_eq!(decided, Decided::Done);
    let outcome = stage.outcome(8).await;
    assert!(
        matches!(outcome, Some(Outcome::Rejected { reason: RejectReason::Discarded, .. })),
        "{outcome:?}"
    );
}

/// A ledger with one row that nobody can read.
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
async fn a_message_whose_row_nobody_can_read_can_be_set_aside() {
    let stage = Stage::new().await;
    let _ = submit(&stage.process(), 7, deposit("1.00")).await.unwrap();
    let message = receive_one(&stage).await;
    let bank = stage.process_over(|store| {
        store.ledger = Arc::new(DamagedLedger { inner: Arc::clone(&store.ledger), damaged: key(7) });
    });
    let set_aside =
        bank.dead_letters.set_aside(&queue(), &message, &held_in(&message.body), "its row is damaged").await;
    assert!(set_aside.is_ok(), "else the message stays on the queue for ever: {set_aside:?}");
}

#[tokio::test]
async fn one_damaged_row_does_not_keep_its_neighbours_from_being_posted() {
    let stage = Stage::new().await;
    for message in [7, 8] {
        let _ = submit(&stage.process(), message, deposit("1.00")).await.unwrap();
    }
    let work = stage.receive().await;
    let bank = stage.process_over(|store| {
        store.ledger = Arc::new(DamagedLedger { inner: Arc::clone(&store.ledger), damaged: key(7) });
    });
    // A stale commit: the rows have to be read.
    let ledger = stage.store.ports().ledger;
    assert!(ledger.mark(&key(8), &work[1].revision, Marks::default()).await.unwrap().is_some());
    let settled = bank.poster.post(account(), work).await;
    let neighbour = settled.iter().find(|(settled, _)| *settled == key(8)).unwrap();
    assert!(neighbour.1.is_ok(), "{:?}", neighbour.1);
}

#[tokio::test]
async fn a_long_trace_does_not_burst_the_message() {
    let stage = Stage::new().await;
    let bank = stage.process();
    for message in 0..300 {
        let _ = submit(&bank, message, deposit("1.00")).await.unwrap();
    }
    let mut work = Vec::new();
    while work.len() < 300 {
        work.extend(stage.receive().await);
    }
    let trace = "0".repeat(1000);
    let envelopes = envelope::pack(&work, Some(&trace));
    assert!(envelopes.iter().all(|envelope| envelope.encode(&seal()).len() <= BODY_BYTES_MAX));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_falls_idle_takes_nobody_along() {
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
async fn patience_ends_although_the_log_does_not_answer() {
    let stage = Stage::new().await;
    let bank = stage.process_over(|store| store.ledger = Arc::new(SilentLedger(Arc::clone(&store.ledger))));
    let patience = Some(Duration::from_millis(60));
    let asked = bank.acceptor.submit(key(1), deposit("1.00"), None, patience);
    let answer = tokio::time::timeout(Duration::from_secs(5), asked).await;
    assert!(answer.is_ok(), "the promise was made, and is never told");
}

#[tokio::test]
async fn a_fault_of_the_first_page_does_not_refuse_what_the_account_can_pay_after_it() {
    let stage = Stage::new().await;
    let bank = stage.process_over(|store| {
        let mut ledger = TroubledLedger::over(&store.ledger);
        ledger.commits_lost = Countdown::of(1);
        store.ledger = Arc::new(ledger);
    });
    let mut work = Vec::new();
    for message in 0..99 {
        let last = message == 98;
        let wish = if last { withdrawal("50.00") } else { deposit("1.00") };
        let _ = submit(&bank, message, wish).await.unwrap();
        work.extend(stage.receive().await);
    }
    let _ = bank.poster.post(account(), work.clone()).await;
    let _ = bank.poster.post(account(), work).await;
    let outcome = stage.outcome(98).await;
    assert!(matches!(outcome, Some(Outcome::Posted { .. })), "{outcome:?}");
}
