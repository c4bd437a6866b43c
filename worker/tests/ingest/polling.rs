//! When an ingest queue is polled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_process::drain::{DrainStarter, drain};
use postonce_process::meter::Meter;
use postonce_shared::config::IngestQueue;
use postonce_shared::testing::prelude::*;
use postonce_worker::config::WorkerConfig;
use postonce_worker::ingest::Ingest;
use tokio::task::JoinHandle;

use crate::ingest::fixture::{VISIBILITY, orders_queue};
use crate::posting::fixture::config;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The doorbell of a process that knows some other listening processes.
struct KnowingDoorbell(LocalDoorbell, u32);

#[async_trait]
impl Doorbell for KnowingDoorbell {
    fn ring(&self, queue: &QueueName) {
        self.0.ring(queue);
    }

    async fn rung(&self, kind: &str) -> BTreeSet<QueueName> {
        self.0.rung(kind).await
    }

    fn other_listeners(&self) -> u32 {
        self.1
    }
}

/// Processes that poll one ingest queue, on one clock that stands still until a test advances it.
struct Polled {
    world: Arc<TestWorld>,
    store: Store,
    control: Arc<Control>,
    doorbells: Vec<Arc<KnowingDoorbell>>,
    drains: Vec<DrainStarter>,
    tasks: Vec<JoinHandle<()>>,
}

impl Polled {
    fn start(workers: u32) -> Self {
        let world = Arc::new(TestWorld::new(1));
        let (mut store, control) = (MemoryStore::new(world.clone()), Arc::<Control>::default());
        control.apply(&mut store);
        let mut polled =
            Self { world, store, control, doorbells: Vec::new(), drains: Vec::new(), tasks: Vec::new() };
        (0..workers).for_each(|_| polled.start_worker(workers - 1));
        polled
    }

    fn start_worker(&mut self, others: u32) {
        let doorbell = Arc::new(KnowingDoorbell(LocalDoorbell::default(), others));
        let bank = Bank::new(self.store.clone(), self.world.clone(), doorbell.clone(), seal(), 1);
        let config = WorkerConfig { ingest: vec![orders_queue()], ..config(VISIBILITY) };
        let ingest = Ingest::new(&bank, &Arc::new(Meter::default()), &config);
        let (starter, drain) = drain();
        self.tasks.push(tokio::spawn(async move { ingest.run(&drain).await }));
        self.doorbells.push(doorbell);
        self.drains.push(starter);
    }

    /// Advances the clock in steps, and runs all tasks after each.
    async fn pass(&self, time: Duration, step: Duration) {
        settle().await;
        let mut passed = Duration::ZERO;
        while passed < time {
            self.world.advance(step);
            passed += step;
            settle().await;
        }
    }

    /// A message becomes a dead letter when it is received.
    async fn send(&self, delay: Duration) {
        let IngestQueue { queue, .. } = orders_queue();
        self.store.queue.send(&queue, b"not an order", delay).await.unwrap();
    }

    async fn handled(&self) -> usize {
        self.store.dead_letters.list(false, None, 100).await.unwrap().items.len()
    }

    fn polls(&self) -> usize {
        self.control.count("WorkQueue::receive")
    }
}

/// Runs all tasks until they wait.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_idle_queue_is_polled_less_than_1500_times_a_day_by_all_workers_together() {
    for workers in [1, 4] {
        let polled = Polled::start(workers);
        polled.pass(24 * 60 * MINUTE, SECOND).await;
        let polls = polled.polls();
        assert!((1300..1500).contains(&polls), "{polls} polls by {workers} workers");
    }
}

#[tokio::test]
async fn a_message_is_received_at_the_next_poll_and_the_next_one_soon_after() {
    let polled = Polled::start(1);
    polled.pass(10 * MINUTE, SECOND).await;
    polled.send(Duration::ZERO).await;
    polled.pass(MINUTE, SECOND).await;
    assert_eq!(polled.handled().await, 1);
    polled.send(Duration::ZERO).await;
    polled.doorbells[0].ring(&orders_queue().queue);
    settle().await;
    assert_eq!(polled.handled().await, 2);
    // The delay is short again.
    let polls = polled.polls();
    polled.pass(30 * SECOND, SECOND).await;
    assert!(polled.polls() >= polls + 4, "{} polls", polled.polls() - polls);
    let burst = 70;
    for _ in 0..burst {
        polled.send(Duration::ZERO).await;
    }
    polled.doorbells[0].ring(&orders_queue().queue);
    settle().await;
    settle().await;
    assert_eq!(polled.handled().await, 2 + burst, "receives follow each other while there are messages");
}

#[tokio::test]
async fn a_ring_polls_at_once_and_only_for_its_own_queue() {
    let polled = Polled::start(1);
    polled.pass(10 * MINUTE, SECOND).await;
    polled.send(Duration::ZERO).await;
    let polls = polled.polls();
    polled.doorbells[0].ring(&QueueName::of_ingest("others").unwrap());
    settle().await;
    assert_eq!((polled.handled().await, polled.polls()), (0, polls));
    polled.doorbells[0].ring(&orders_queue().queue);
    settle().await;
    assert_eq!(polled.handled().await, 1);
}

#[tokio::test]
async fn an_unreachable_queue_is_polled_with_back_off_and_again_when_it_answers() {
    let polled = Polled::start(1);
    polled.send(Duration::ZERO).await;
    polled.control.fail(&["WorkQueue::receive"]);
    polled.pass(10 * MINUTE, SECOND).await;
    let polls = polled.polls();
    assert!((100..300).contains(&polls), "{polls} polls in 10 minutes");
    for _ in 0..100 {
        polled.doorbells[0].ring(&orders_queue().queue);
        settle().await;
    }
    assert_eq!(polled.polls(), polls, "a ring does not shorten the delay");
    polled.control.heal();
    polled.pass(6 * SECOND, SECOND).await;
    assert_eq!(polled.handled().await, 1);
}

#[tokio::test]
async fn a_message_that_cannot_be_handled_now_is_received_when_it_is_visible_again() {
    let polled = Polled::start(1);
    polled.send(Duration::ZERO).await;
    polled.control.set_once("DeadLetters::add", Effect::unavailable);
    // Its visibility timeout passes. The delays between polls would be longer by then.
    polled.pass(VISIBILITY + 3 * SECOND, SECOND).await;
    assert_eq!(polled.handled().await, 1);
}

#[tokio::test]
async fn polling_ends_when_a_drain_starts() {
    let mut polled = Polled::start(1);
    polled.pass(MINUTE, SECOND).await;
    polled.drains.remove(0).start();
    settle().await;
    let polls = polled.polls();
    assert!(polled.tasks[0].is_finished());
    polled.send(Duration::ZERO).await;
    polled.pass(2 * MINUTE, SECOND).await;
    assert_eq!(polled.polls(), polls);
}
