use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::ports::archive::{Archive, Damaged, Readable, UserRange};
use postonce_shared::protocol::recover::{Recovered, RecoveryScope};
use postonce_shared::protocol::recovery_horizon::RecoveredUntil;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{Fixture, deposit, key, queue, submit};

const MINUTE: Duration = Duration::from_secs(60);

/// A transaction whose process ended before it sent the message.
async fn unsent() -> (Fixture, Arc<TestWorld>) {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    fixture.forget(7).await;
    (fixture, world)
}

async fn consider(fixture: &Fixture) -> bool {
    fixture.process().repair.enqueue_if_due(&fixture.stored(7).await).await.unwrap()
}

#[tokio::test]
async fn unsent_work_is_enqueued_after_ten_minutes_and_then_at_growing_intervals() {
    let (fixture, world) = unsent().await;
    world.advance(9 * MINUTE);
    assert!(!consider(&fixture).await, "its message may still be underway");
    world.advance(MINUTE);
    assert!(consider(&fixture).await);
    assert_eq!(fixture.lose_messages().await, 1);
    assert!(!consider(&fixture).await, "at most once in ten minutes");
    world.advance(19 * MINUTE);
    assert!(!consider(&fixture).await, "the second time after twenty minutes");
    world.advance(MINUTE);
    assert!(consider(&fixture).await);
}

#[tokio::test]
async fn a_process_sends_work_until_that_is_confirmed_although_its_client_does_not_retry() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let web = fixture.process_over(|store| lose(store, "WorkQueue::send", 3));
    assert!(!web.acceptor.has_unsent_work());
    assert!(submit(&web, 7, deposit("1.00")).await.is_err());
    assert!(web.acceptor.has_unsent_work());
    let mut waited = Duration::ZERO;
    while web.acceptor.has_unsent_work() {
        world.advance(Duration::from_secs(1));
        waited += Duration::from_secs(1);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(waited < 2 * MINUTE, "the work is not sent");
    }
    assert_eq!(fixture.queued().await, 1);
}

#[tokio::test]
async fn a_request_that_is_cancelled_or_gets_no_answer_of_the_log_is_sent_by_its_process() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let web = fixture.process_over(|store| lose_answers(store, "Ledger::accept", 1));
    assert!(submit(&web, 7, deposit("1.00")).await.is_err(), "it is stored, but the answer is lost");
    {
        let mut cancelled = Box::pin(submit(&web, 8, deposit("1.00")));
        assert!(futures::poll!(&mut cancelled).is_pending(), "the insert has begun");
    }
    for _ in 0..30 {
        world.advance(Duration::from_secs(1));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert!(!web.acceptor.has_unsent_work());
    assert_eq!(fixture.receive().await.len(), 2);
}

#[tokio::test]
async fn only_one_of_several_concurrent_repairs_enqueues() {
    let (fixture, world) = unsent().await;
    world.advance(10 * MINUTE);
    let stored = fixture.stored(7).await;
    let (one, two) = (fixture.process(), fixture.process());
    let (first, second) =
        futures::join!(one.repair.enqueue_if_due(&stored), two.repair.enqueue_if_due(&stored));
    assert!(first.unwrap() != second.unwrap());
    assert_eq!(fixture.queued().await, 1);
}

#[tokio::test]
async fn repair_does_not_grow_a_backlog() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    world.advance(60 * MINUTE);
    assert!(!consider(&fixture).await, "its message is still at the head of the queue");
    assert_eq!(fixture.queued().await, 1);
}

#[tokio::test]
async fn repair_enqueues_neither_dead_letters_nor_final_transactions() {
    let (fixture, world) = unsent().await;
    world.advance(60 * MINUTE);
    let stored = fixture.stored(7).await;
    let ledger = fixture.store.ports().ledger;
    let dead = Marks { dead_letter: true, ..Marks::default() };
    assert!(ledger.mark(&key(7), &stored.revision, dead).await.unwrap().is_some());
    assert!(!consider(&fixture).await);
    assert_eq!(fixture.process().repair.recover(RecoveryScope::Unqueued).await.unwrap().enqueued, 0);
    let work = fixture.stored(7).await.work().unwrap();
    let _ = fixture.process().poster.post(work.submission.key.account, vec![work]).await;
    assert!(!consider(&fixture).await);
}

#[tokio::test]
async fn recovery_of_unqueued_work_covers_the_whole_log() {
    let (fixture, _world) = unsent().await;
    let bank = fixture.process();
    let recover = async |scope| {
        let Recovered { examined, enqueued, damaged, until: _ } = bank.repair.recover(scope).await.unwrap();
        (examined, enqueued, damaged)
    };
    assert_eq!(recover(RecoveryScope::Old).await, (1, 0, 0));
    assert_eq!(recover(RecoveryScope::Unqueued).await, (1, 1, 0));
    assert_eq!(
        bank.repair.recover(RecoveryScope::Unqueued).await.unwrap().enqueued,
        0,
        "its message is underway now"
    );
    assert_eq!(bank.store.queue.backlog(&queue()).await.unwrap().depth, 1);
}

#[tokio::test]
async fn a_recovery_proves_until_when_all_work_is_final_or_has_a_message_of_its_own() {
    let (fixture, world) = unsent().await;
    let bank = fixture.process();
    let accepted_at = fixture.stored(7).await.submission.accepted_at;
    let recovered = RecoveredUntil::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
    // The clocks of the sender of a message and of the process that accepted its work differ by at most that.
    let difference = 15 * MINUTE;
    assert!(!recovered.covers(accepted_at.before(difference * 9)).await.unwrap(), "there was no recovery");
    let recover = async || bank.repair.recover(RecoveryScope::Old).await.unwrap().enqueued;
    world.advance(9 * MINUTE);
    assert_eq!(recover().await, 0);
    let millisecond = Duration::from_millis(1);
    assert!(!recovered.covers(accepted_at.before(difference)).await.unwrap(), "its work was left");
    assert!(recovered.covers(accepted_at.before(difference + millisecond)).await.unwrap());
    world.advance(6 * MINUTE);
    assert_eq!(recover().await, 1);
    assert!(recovered.covers(accepted_at).await.unwrap());
    assert!(!recovered.covers(accepted_at.after(millisecond)).await.unwrap(), "messages may be sent now");
    // An earlier time does not replace a later one.
    recovered.record(accepted_at).await.unwrap();
    assert!(recovered.covers(accepted_at).await.unwrap());
    world.advance(MINUTE);
    assert_eq!(recover().await, 0, "it is not due again");
    assert!(
        !recovered.covers(accepted_at.after(MINUTE)).await.unwrap(),
        "the mark of a repair does not prove that its message exists"
    );
}

#[tokio::test]
async fn a_recovery_by_command_enqueues_work_behind_a_message_whose_payload_may_be_lost() {
    let (fixture, world) = unsent().await;
    let bank = fixture.process();
    bank.store.queue.send(&queue(), b"a claim", Duration::ZERO).await.unwrap();
    world.advance(10 * MINUTE);
    let recover = async |scope| bank.repair.recover(scope).await.unwrap();
    assert_eq!(recover(RecoveryScope::Old).await.enqueued, 0);
    assert_eq!(recover(RecoveryScope::Unqueued).await.enqueued, 0);
    let recovered = recover(RecoveryScope::All).await;
    assert_eq!((recovered.enqueued, recovered.until), (1, Some(world.now())));
}

/// An archive that divides the store, and in which one transaction cannot be read.
struct DamagedArchive(Arc<dyn Archive>, AtomicU32);

#[async_trait]
impl ArchiveDecorator for DamagedArchive {
    fn inner(&self) -> &dyn Archive {
        &*self.0
    }

    fn has_index_of_accepted(&self) -> bool {
        false
    }

    async fn accepted(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let mut listing = self.0.accepted(range, cursor, limit).await?;
        for item in &mut listing.items {
            if item.as_ref().is_ok_and(|stored| stored.submission.key == key(7)) {
                *item = Err(Damaged { place: "a row".to_owned(), cause: "of a test".to_owned() });
            }
        }
        Ok(listing)
    }
}

#[tokio::test]
async fn a_damaged_transaction_does_not_end_a_recovery() {
    let (fixture, world) = unsent().await;
    fixture.forget(8).await;
    let archive = Arc::new(DamagedArchive(fixture.store.ports().archive, AtomicU32::new(0)));
    let bank = fixture.process_over(|store| store.archive = archive.clone());
    world.advance(10 * MINUTE);
    let recovered = bank.repair.recover(RecoveryScope::Old).await.unwrap();
    assert_eq!((recovered.examined, recovered.enqueued, recovered.damaged), (1, 1, 1));
    assert_eq!(archive.1.load(Ordering::Relaxed), 64, "many ranges, side by side");
}

#[tokio::test]
async fn a_recovery_while_the_gate_is_held_proves_nothing_about_open_work() {
    let (fixture, world) = unsent().await;
    let bank = fixture.process();
    let accepted_at = fixture.stored(7).await.submission.accepted_at;
    Gate::new(&bank.store, &bank.world)
        .set(GateState::Held { release_at: None }, &GateAct::by("a test"))
        .await
        .unwrap();
    world.advance(60 * MINUTE);
    assert_eq!(bank.repair.recover(RecoveryScope::Old).await.unwrap().enqueued, 0);
    let recovered = RecoveredUntil::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
    assert!(!recovered.covers(accepted_at).await.unwrap());
}
