use std::sync::Arc;
use std::time::Duration;

use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::ports::ledger::Marks;
use postonce_shared::protocol::recover::{Recovered, RecoveryScope};

use crate::stage::{Countdown, Stage, TroubledQueue, deposit, key, queue, submit};

const MINUTE: Duration = Duration::from_secs(60);

/// A transaction that was accepted and whose send was lost.
async fn forgotten() -> (Stage, Arc<TestWorld>) {
    let world = Arc::new(TestWorld::new(1));
    let stage = Stage::in_world(world.clone()).await;
    let web = stage.process_over(|store| {
        let sends_lost = Countdown::of(1);
        store.queue = Arc::new(TroubledQueue { inner: Arc::clone(&store.queue), sends_lost });
    });
    assert!(submit(&web, 7, deposit("1.00")).await.is_err());
    (stage, world)
}

async fn consider(stage: &Stage) -> bool {
    stage.process().repair.enqueue_if_due(&stage.stored(7).await).await.unwrap()
}

#[tokio::test]
async fn forgotten_work_is_enqueued_after_ten_minutes_and_then_ever_more_rarely() {
    let (stage, world) = forgotten().await;
    world.advance(9 * MINUTE);
    assert!(!consider(&stage).await, "it may still be on its way");
    world.advance(MINUTE);
    assert!(consider(&stage).await);
    assert_eq!(stage.lose_messages().await, 1);
    assert!(!consider(&stage).await, "once in ten minutes");
    world.advance(19 * MINUTE);
    assert!(!consider(&stage).await, "the second time after twenty");
    world.advance(MINUTE);
    assert!(consider(&stage).await);
}

#[tokio::test]
async fn of_many_who_look_one_enqueues() {
    let (stage, world) = forgotten().await;
    world.advance(10 * MINUTE);
    let stored = stage.stored(7).await;
    let (one, two) = (stage.process(), stage.process());
    let (first, second) =
        futures::join!(one.repair.enqueue_if_due(&stored), two.repair.enqueue_if_due(&stored));
    assert!(first.unwrap() != second.unwrap());
    assert_eq!(stage.queued().await, 1);
}

#[tokio::test]
async fn a_backlog_does_not_grow_by_its_own_repair() {
    let world = Arc::new(TestWorld::new(1));
    let stage = Stage::in_world(world.clone()).await;
    let _ = submit(&stage.process(), 7, deposit("1.00")).await.unwrap();
    world.advance(60 * MINUTE);
    assert!(!consider(&stage).await, "its own message still waits at the head");
    assert_eq!(stage.queued().await, 1);
}

#[tokio::test]
async fn repair_keeps_away_from_dead_letters_and_from_what_is_final() {
    let (stage, world) = forgotten().await;
    world.advance(60 * MINUTE);
    let stored = stage.stored(7).await;
    let ledger = stage.store.ports().ledger;
    let dead = Marks { dead_letter: true, ..Marks::default() };
    assert!(ledger.mark(&key(7), &stored.revision, dead).await.unwrap().is_some());
    assert!(!consider(&stage).await);
    assert_eq!(stage.process().repair.recover(RecoveryScope::Unqueued).await.unwrap().enqueued, 0);
    let work = stage.stored(7).await.work().unwrap();
    let _ = stage.process().poster.post(work.key.account, vec![work]).await;
    assert!(!consider(&stage).await);
}

#[tokio::test]
async fn a_whole_log_is_recovered_where_nothing_can_be_on_its_way() {
    let (stage, _world) = forgotten().await;
    let bank = stage.process();
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
        "now it is on its way"
    );
    assert_eq!(bank.store.queue.backlog(&queue()).await.unwrap().depth, 1);
}
