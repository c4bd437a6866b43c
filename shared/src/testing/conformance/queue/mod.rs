//! The work queue: at least once, with a lease on what was received.
//!
//! A second is the shortest lease that every store can give, so the cases that wait for one run at
//! the same time. All bodies begin like JSON, as ours do: other bodies belong to foreign producers.

mod bodies;
mod leases;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::case::{Case, PATIENCE};
use crate::ports::Store;
use crate::ports::queue::{Held, Lease, Message, QueueName, RECEIVE_MAX, WorkQueue};

/// The shortest lease.
const SHORT: Duration = Duration::from_secs(1);
/// A lease that does not end before its case does.
const LONG: Duration = Duration::from_secs(300);

/// Checks [`crate::ports::queue::WorkQueue`].
pub async fn queue_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let line = async || Line::new(Case::new(fresh().await));
    a_queue_that_was_never_used_is_empty(&line().await).await;
    a_message_is_received_and_deleted(&line().await).await;
    one_receive_takes_at_most_what_was_asked_for(&line().await).await;
    the_backlog_tells_depth_and_head(&line().await).await;
    queues_do_not_mix(&line().await, &line().await).await;
    concurrent_receivers_never_get_the_same_message(&line().await).await;
    bodies::contract(&line).await;
    leases::contract(&line).await;
}

/// A queue that nobody else uses.
struct Line {
    case: Case,
    name: QueueName,
}

impl Line {
    fn new(case: Case) -> Self {
        let name = QueueName::of_partition(&case.name(), 0);
        Self { case, name }
    }

    fn port(&self) -> &Arc<dyn WorkQueue> {
        &self.case.store.queue
    }

    async fn send(&self, body: &[u8]) {
        self.port().send(&self.name, body, Duration::ZERO).await.unwrap();
    }

    async fn receive(&self, max: usize, visibility: Duration) -> Vec<Message> {
        let messages = self.port().receive(&self.name, max, visibility).await.unwrap();
        assert!(messages.len() <= max, "at most as many messages as were asked for");
        messages
    }

    /// The next message, as soon as there is one.
    async fn next(&self, visibility: Duration) -> Message {
        let promise = "a visible message is received";
        self.case.eventually(promise, async || self.receive(1, visibility).await.pop()).await
    }

    async fn extend(&self, lease: &Lease, body: &[u8], visibility: Duration) -> Held<Lease> {
        self.port().extend(&self.name, lease, body, visibility).await.unwrap()
    }

    async fn delete(&self, lease: &Lease) -> Held<()> {
        self.port().delete(&self.name, lease).await.unwrap()
    }

    /// Waits until there are so many messages, visible and not. The depth may be approximate.
    async fn depth(&self, expected: u64) {
        let look = async || {
            let depth = self.port().backlog(&self.name).await.unwrap().depth;
            (depth == expected).then_some(())
        };
        self.case.eventually(&format!("the depth becomes {expected}"), look).await;
    }
}

async fn a_queue_that_was_never_used_is_empty(line: &Line) {
    assert!(line.receive(RECEIVE_MAX, SHORT).await.is_empty(), "nobody sent anything");
    let backlog = line.port().backlog(&line.name).await.unwrap();
    assert_eq!((backlog.depth, backlog.head_inserted_at), (0, None), "nothing waits");
    let lease = Lease { message_id: line.case.name(), pop_receipt: "none".to_owned() };
    assert_eq!(line.delete(&lease).await, Held::Lost, "what is not there is lost, not a fault");
}

async fn a_message_is_received_and_deleted(line: &Line) {
    line.send(br#"{"v":1}"#).await;
    let message = line.next(LONG).await;
    assert_eq!(message.body, br#"{"v":1}"#, "the body is what was sent");
    assert_eq!(message.dequeue_count, 1, "it is received for the first time");
    let (sent, now) = (message.inserted_at, line.case.world.now());
    let distance = sent.since(now).max(now.since(sent));
    // The store's clock is another one than ours.
    assert!(distance < Duration::from_secs(600), "it tells when it was sent: {sent}, and now is {now}");
    assert!(line.receive(RECEIVE_MAX, LONG).await.is_empty(), "a leased message is invisible");
    line.depth(1).await;
    assert_eq!(line.delete(&message.lease).await, Held::Ours(()), "the lease holds");
    line.depth(0).await;
    assert_eq!(line.delete(&message.lease).await, Held::Lost, "what is deleted is gone");
    let answer = line.extend(&message.lease, b"{}", SHORT).await;
    assert_eq!(answer, Held::Lost, "what is deleted does not come back");
    line.depth(0).await;
}

async fn one_receive_takes_at_most_what_was_asked_for(line: &Line) {
    for index in 0..45 {
        line.send(format!("{{\"index\":{index:02}}}").as_bytes()).await;
    }
    line.depth(45).await;
    let mut bodies = Vec::new();
    let mut ids = BTreeSet::new();
    for max in [1, 3, RECEIVE_MAX] {
        let messages = line.receive(max, LONG).await;
        assert!(!messages.is_empty(), "visible messages are received");
        for message in messages {
            assert!(ids.insert(message.lease.message_id), "each message is received once");
            bodies.push(message.body);
        }
    }
    while bodies.len() < 45 {
        let message = line.next(LONG).await;
        assert!(ids.insert(message.lease.message_id), "each message is received once");
        bodies.push(message.body);
    }
    bodies.sort_unstable();
    let sent = (0..45).map(|index| format!("{{\"index\":{index:02}}}").into_bytes());
    assert_eq!(bodies, sent.collect::<Vec<_>>(), "every message is received");
    assert!(line.receive(RECEIVE_MAX, LONG).await.is_empty(), "and there are no others");
}

async fn the_backlog_tells_depth_and_head(line: &Line) {
    let head = async || line.port().backlog(&line.name).await.unwrap().head_inserted_at;
    line.port().send(&line.name, b"{}", LONG).await.unwrap();
    line.depth(1).await;
    assert_eq!(head().await, None, "a delayed message waits, but is not visible");
    for _ in 0..3 {
        line.send(b"{}").await;
    }
    line.depth(4).await;
    let seen = head().await.expect("three messages are visible");
    let mut leased = Vec::new();
    while leased.len() < 3 {
        leased.push(line.next(LONG).await);
    }
    assert!(leased.iter().any(|message| message.inserted_at == seen), "the head is one of the messages");
    line.depth(4).await;
    assert_eq!(head().await, None, "leased messages wait, but are not visible");
    for message in leased {
        assert_eq!(line.delete(&message.lease).await, Held::Ours(()), "the lease holds");
    }
    line.depth(1).await;
}

async fn queues_do_not_mix(one: &Line, other: &Line) {
    // Two partitions of the same work, and the same partition of other work.
    let sibling = Line { case: Case::new(one.case.store.clone()), name: sibling_of(&one.name) };
    let lines = [one, other, &sibling];
    for (index, line) in lines.iter().enumerate() {
        line.send(format!("{{\"line\":{index}}}").as_bytes()).await;
    }
    for (index, line) in lines.iter().enumerate() {
        let message = line.next(LONG).await;
        assert_eq!(message.body, format!("{{\"line\":{index}}}").into_bytes(), "each queue has its own");
        assert!(line.receive(RECEIVE_MAX, LONG).await.is_empty(), "and nothing else");
        line.depth(1).await;
        for stranger in lines.iter().filter(|stranger| stranger.name != line.name) {
            let answer = stranger.extend(&message.lease, b"{}", Duration::ZERO).await;
            assert_eq!(answer, Held::Lost, "a lease is prolonged on its own queue only");
            let answer = stranger.delete(&message.lease).await;
            assert_eq!(answer, Held::Lost, "a lease holds on its own queue only");
        }
        assert_eq!(line.delete(&message.lease).await, Held::Ours(()), "where it still does");
    }
}

fn sibling_of(name: &QueueName) -> QueueName {
    let (work, _) = name.as_str().rsplit_once('-').expect("a queue has a partition");
    QueueName::of_partition(work, 1)
}

async fn concurrent_receivers_never_get_the_same_message(line: &Line) {
    const COUNT: usize = 60;
    for index in 0..COUNT {
        line.send(format!("{{\"index\":{index}}}").as_bytes()).await;
    }
    let received: Arc<Mutex<Vec<Message>>> = Arc::default();
    let receivers = (0..6).map(|_| {
        let received = Arc::clone(&received);
        let line = Line { case: Case::new(line.case.store.clone()), name: line.name.clone() };
        async move {
            let start = line.case.world.uptime();
            while received.lock().len() < COUNT {
                let waited = line.case.world.uptime().saturating_sub(start);
                assert!(waited < PATIENCE, "visible messages are received, but not within {waited:?}");
                let messages = line.receive(5, LONG).await;
                received.lock().extend(messages);
            }
        }
    });
    line.case.at_once(receivers).await;
    let received = received.lock();
    let ids: BTreeSet<&str> = received.iter().map(|message| message.lease.message_id.as_str()).collect();
    assert_eq!((ids.len(), received.len()), (COUNT, COUNT), "a leased message has one holder");
    assert!(received.iter().all(|message| message.dequeue_count == 1), "each was received once");
}
