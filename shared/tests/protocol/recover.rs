use std::sync::Arc;
use std::time::Duration;

use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::cluster::gate::{Gate, GateState};
use postonce_shared::ports::ledger::Marks;
use postonce_shared::protocol::recover::{Recovered, RecoveryScope};
use postonce_shared::protocol::recovered::RecoveredUntil;

use crate::fixture::{Countdown, Fixture, UnreliableQueue, deposit, key, queue, submit};

const MINUTE: Duration = Duration::from_secs(60);

/// A store with one accepted transaction whose message was never sent.
async fn unsent() -> (Fixture, Arc<TestWorld>) {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let web = fixture.process_over(|store| {
        let sends_lost = Countdown::of(1);
        store.queue = Arc::new(UnreliableQueue { inner: Arc::clone(&store.queue), sends_lost });
    });
    assert!(submit(&web, 7, deposit("1.00")).await.is_err());
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
    let _ = fixture.process().poster.post(work.key.account, vec![work]).await;
    assert!(!consider(&fixture).await);
}

#[tokio::test]
async fn recovery_of_unqueued_work_covers_the_whole_log() {
    let (fixture, _world) = unsent().await;
    let bank = fixture.process();
    assert_eq!(
        bank.repair.recover(RecoveryScope::Old).await.unwrap(),
        Recovered { examined: 1, enqueued: 0 }
    );
    assert_eq!(
        bank.repair.recover(RecoveryScope::Unqueued).await.unwrap(),
        Recovered { examined: 1, enqueued: 1 }
    );
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
    let accepted_at = fixture.stored(7).await.transaction.accepted_at;
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
    assert!(recovered.covers(accepted_at.after(MINUTE)).await.unwrap(), "but has its own message");
}

#[tokio::test]
async fn a_recovery_while_the_gate_is_held_proves_nothing_about_open_work() {
    let (fixture, world) = unsent().await;
    let bank = fixture.process();
    let accepted_at = fixture.stored(7).await.transaction.accepted_at;
    Gate::new(&bank.store, &bank.world).set(GateState::Held { release_at: None }).await.unwrap();
    world.advance(60 * MINUTE);
    assert_eq!(bank.repair.recover(RecoveryScope::Old).await.unwrap().enqueued, 0);
    let recovered = RecoveredUntil::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
    assert!(!recovered.covers(accepted_at).await.unwrap());
}
