//! Safety polls while other processes ping this one, and after one of them misses its ping.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::testing::prelude::*;
use postonce_worker::config::IdleDelays;

use super::fixture::{Fixture, Process, QUEUES, VISIBILITY, queue};
use super::{MINUTE, NEVER};

/// Validity of a ping.
const PING_VALID: Duration = Duration::from_secs(75);

/// A doorbell that is proven while pings arrive.
struct PingedDoorbell {
    bell: Arc<LocalDoorbell>,
    world: Arc<TestWorld>,
    pinged_at: Mutex<Duration>,
}

#[async_trait]
impl Doorbell for PingedDoorbell {
    fn ring(&self, queue: &QueueName) {
        self.bell.ring(queue);
    }

    async fn rung(&self, kind: &str) -> BTreeSet<QueueName> {
        self.bell.rung(kind).await
    }

    fn proven_until(&self) -> Option<Duration> {
        Some(*self.pinged_at.lock() + PING_VALID).filter(|until| *until > self.world.uptime())
    }
}

/// A process that is pinged every minute.
struct Pinged {
    fixture: Fixture,
    process: Process,
    doorbell: Arc<PingedDoorbell>,
}

impl Pinged {
    fn start(idle_delays: IdleDelays) -> Self {
        let fixture = Fixture::new();
        let bell = Arc::new(LocalDoorbell::default());
        let (world, pinged_at) = (Arc::clone(&fixture.world), Mutex::default());
        let doorbell = Arc::new(PingedDoorbell { bell: Arc::clone(&bell), world, pinged_at });
        let process = fixture.process_rung_by(bell, doorbell.clone(), idle_delays, 8);
        Self { fixture, process, doorbell }
    }

    /// Passes minutes with a ping at the start of each.
    async fn minutes(&self, minutes: u32) {
        for _ in 0..minutes {
            *self.doorbell.pinged_at.lock() = self.fixture.world.uptime();
            self.fixture.pass(MINUTE).await;
        }
    }

    async fn send_to_all_queues(&self) {
        for partition in 0..QUEUES {
            self.fixture.send(partition, &format!("{partition} at {:?}", self.fixture.world.uptime())).await;
        }
    }
}

#[tokio::test]
async fn an_idle_process_that_is_pinged_polls_rarely() {
    let pinged = Pinged::start(IdleDelays::DEFAULT);
    pinged.minutes(20).await;
    let before = pinged.fixture.operations();
    pinged.minutes(12 * 60).await;
    let operations = pinged.fixture.operations() - before;
    // Half a day: 72 polls, and a read of the gate at every third.
    assert!((72..=100).contains(&operations), "{operations} operations");
}

#[tokio::test]
async fn a_missed_ping_makes_the_process_poll_all_queues_and_then_often() {
    let pinged = Pinged::start(IdleDelays::DEFAULT);
    pinged.minutes(30).await;
    let handled = || pinged.process.handler.handled_count();
    pinged.send_to_all_queues().await;
    pinged.fixture.pass(Duration::from_secs(14)).await;
    assert!(handled() < usize::from(QUEUES), "nothing has made it poll all queues");
    pinged.fixture.pass(Duration::from_secs(2)).await;
    assert_eq!(handled(), usize::from(QUEUES), "all queues are polled 75 s after the last ping");

    // As long as pings are missing, a lost ring is found by the polls of each minute.
    pinged.fixture.pass(30 * MINUTE).await;
    pinged.send_to_all_queues().await;
    pinged.fixture.pass(MINUTE * u32::from(QUEUES)).await;
    assert_eq!(handled(), 2 * usize::from(QUEUES));

    // Polls are rare again when pings arrive.
    pinged.minutes(20).await;
    let before = pinged.fixture.operations();
    pinged.minutes(30).await;
    let operations = pinged.fixture.operations() - before;
    assert!(operations <= 6, "{operations} operations in half an hour");
}

#[tokio::test]
async fn messages_of_the_process_that_missed_its_ping_are_found() {
    let pinged = Pinged::start(IdleDelays::DEFAULT);
    pinged.minutes(30).await;
    pinged.fixture.send(1, "received by a process that dies").await;
    // Just before its ping is missed, so that the message is still hidden then.
    pinged.fixture.pass(Duration::from_secs(14)).await;
    let received = pinged.fixture.store.queue.receive(&queue(1), RECEIVE_MAX, VISIBILITY).await.unwrap();
    assert_eq!(received.len(), 1);
    pinged.fixture.pass(Duration::from_secs(23)).await;
    assert_eq!(pinged.process.handler.handled_count(), 1);
}

#[tokio::test]
async fn a_held_process_does_not_poll_when_a_ping_is_missed() {
    let pinged = Pinged::start(IdleDelays { unproven: MINUTE, proven: NEVER, ..IdleDelays::DEFAULT });
    pinged.minutes(5).await;
    let gate = pinged.fixture.gate();
    let held = gate
        .set(
            postonce_shared::cluster::gate::GateState::Held { release_at: None },
            &postonce_shared::cluster::gate::change::GateAct::by("a test"),
        )
        .await
        .unwrap()
        .value;
    pinged.process.process_gate.catch_up(held.epoch).await;
    assert!(!pinged.process.process_gate.is_open());
    pinged.send_to_all_queues().await;
    pinged.fixture.pass(10 * MINUTE).await;
    assert_eq!(pinged.process.handler.handled_count(), 0);
    let released = gate
        .set(
            postonce_shared::cluster::gate::GateState::Released,
            &postonce_shared::cluster::gate::change::GateAct::by("a test"),
        )
        .await
        .unwrap()
        .value;
    let before = pinged.fixture.operations();
    pinged.process.process_gate.catch_up(held.epoch).await;
    assert_eq!(pinged.fixture.operations(), before, "a known epoch causes no read");
    pinged.process.process_gate.catch_up(released.epoch).await;
    pinged.fixture.pass(Duration::from_secs(1)).await;
    assert_eq!(pinged.process.handler.handled_count(), usize::from(QUEUES));
}

#[tokio::test]
async fn one_configured_delay_applies_although_pings_arrive() {
    let pinged = Pinged::start(IdleDelays::fixed(MINUTE));
    pinged.minutes(30).await;
    // Without a ring.
    pinged.send_to_all_queues().await;
    pinged.minutes(QUEUES.into()).await;
    assert_eq!(pinged.process.handler.handled_count(), usize::from(QUEUES));
}
