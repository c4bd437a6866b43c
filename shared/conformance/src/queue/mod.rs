//! Tests of the work queue: at least once, with a lease on received messages.
//!
//! A second is the shortest lease of every store, so the cases that wait for a lease run concurrently. All bodies
//! begin like JSON objects, as envelopes do; other bodies come from direct producers.

mod bodies;
mod leases;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::case::{Case, TIMEOUT};
use postonce_shared::testing::prelude::*;

/// The shortest lease.
const SHORT: Duration = Duration::from_secs(1);
/// A lease that outlasts its case.
const LONG: Duration = Duration::from_secs(300);

/// Tests an implementation of [`postonce_shared::ports::queue::WorkQueue`].
pub async fn queue_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let queue = async || TestQueue::new(Case::new(fresh().await));
    a_queue_that_was_never_used_is_empty(&queue().await).await;
    a_message_is_received_and_deleted(&queue().await).await;
    a_receive_returns_at_most_the_requested_number(&queue().await).await;
    the_backlog_has_depth_and_head(&queue().await).await;
    queues_are_independent(&queue().await, &queue().await).await;
    an_ingest_queue_is_a_queue_like_any_other(&queue().await).await;
    concurrent_receivers_receive_different_messages(&queue().await).await;
    bodies::contract(&queue).await;
    leases::contract(&queue).await;
}

/// A queue that no other test uses.
struct TestQueue {
    case: Case,
    name: QueueName,
}

impl TestQueue {
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
        assert!(messages.len() <= max, "a receive returns at most `max` messages");
        messages
    }

    /// Waits for the next message.
    async fn next(&self, visibility: Duration) -> Message {
        let condition = "a visible message is received";
        self.case.eventually(condition, async || self.receive(1, visibility).await.pop()).await
    }

    async fn extend(&self, lease: &Lease, body: &[u8], visibility: Duration) -> Held<Lease> {
        self.port().extend(&self.name, lease, body, visibility).await.unwrap()
    }

    async fn delete(&self, lease: &Lease) -> Held<()> {
        self.port().delete(&self.name, lease).await.unwrap()
    }

    /// Waits until the depth has this value, which includes invisible messages. The depth may be approximate.
    async fn depth(&self, expected: u64) {
        let check = async || {
            let depth = self.port().backlog(&self.name).await.unwrap().depth;
            (depth == expected).then_some(())
        };
        self.case.eventually(&format!("the depth becomes {expected}"), check).await;
    }
}

async fn a_queue_that_was_never_used_is_empty(queue: &TestQueue) {
    assert!(queue.receive(RECEIVE_MAX, SHORT).await.is_empty(), "the queue is empty");
    let backlog = queue.port().backlog(&queue.name).await.unwrap();
    assert_eq!((backlog.depth, backlog.head_inserted_at), (0, None), "the backlog is empty");
    let lease = Lease { message_id: queue.case.name(), pop_receipt: "none".to_owned() };
    assert_eq!(queue.delete(&lease).await, Held::Lost, "the lease of a missing message is lost");
}

async fn a_message_is_received_and_deleted(queue: &TestQueue) {
    queue.send(br#"{"v":1}"#).await;
    let message = queue.next(LONG).await;
    assert_eq!(message.body, br#"{"v":1}"#, "the body is unchanged");
    assert_eq!(message.dequeue_count, 1, "the message is received for the first time");
    let (sent, now) = (message.inserted_at, queue.case.world.now());
    let distance = sent.since(now).max(now.since(sent));
    // The clock of the store differs from ours.
    assert!(distance < Duration::from_secs(600), "the insertion time is {sent}, and now is {now}");
    assert!(queue.receive(RECEIVE_MAX, LONG).await.is_empty(), "a leased message is invisible");
    queue.depth(1).await;
    assert_eq!(queue.delete(&message.lease).await, Held::Ours(()), "the lease is valid");
    queue.depth(0).await;
    assert_eq!(queue.delete(&message.lease).await, Held::Lost, "a deleted message cannot be deleted again");
    let answer = queue.extend(&message.lease, b"{}", SHORT).await;
    assert_eq!(answer, Held::Lost, "a deleted message cannot be extended");
    queue.depth(0).await;
}

async fn a_receive_returns_at_most_the_requested_number(queue: &TestQueue) {
    for index in 0..45 {
        queue.send(format!("{{\"index\":{index:02}}}").as_bytes()).await;
    }
    queue.depth(45).await;
    let mut bodies = Vec::new();
    let mut ids = BTreeSet::new();
    for max in [1, 3, RECEIVE_MAX] {
        let messages = queue.receive(max, LONG).await;
        assert!(!messages.is_empty(), "visible messages are received");
        for message in messages {
            assert!(ids.insert(message.lease.message_id), "each message is received once");
            bodies.push(message.body);
        }
    }
    while bodies.len() < 45 {
        let message = queue.next(LONG).await;
        assert!(ids.insert(message.lease.message_id), "each message is received once");
        bodies.push(message.body);
    }
    bodies.sort_unstable();
    let sent = (0..45).map(|index| format!("{{\"index\":{index:02}}}").into_bytes());
    assert_eq!(bodies, sent.collect::<Vec<_>>(), "every message is received");
    assert!(queue.receive(RECEIVE_MAX, LONG).await.is_empty(), "there are no further messages");
}

async fn the_backlog_has_depth_and_head(queue: &TestQueue) {
    let head = async || queue.port().backlog(&queue.name).await.unwrap().head_inserted_at;
    queue.port().send(&queue.name, b"{}", LONG).await.unwrap();
    queue.depth(1).await;
    assert_eq!(head().await, None, "a delayed message is not visible");
    for _ in 0..3 {
        queue.send(b"{}").await;
    }
    queue.depth(4).await;
    let head_inserted_at = head().await.expect("three messages are visible");
    let mut leased = Vec::new();
    while leased.len() < 3 {
        leased.push(queue.next(LONG).await);
    }
    assert!(
        leased.iter().any(|message| message.inserted_at == head_inserted_at),
        "the head is one of the messages"
    );
    queue.depth(4).await;
    assert_eq!(head().await, None, "leased messages are not visible");
    let backlog = queue.port().backlog(&queue.name).await.unwrap();
    let oldest = leased.iter().map(|message| message.inserted_at).min().unwrap();
    assert!(backlog.oldest_inserted_at.is_none_or(|known| known <= oldest), "{backlog:?}");
    for message in leased {
        assert_eq!(queue.delete(&message.lease).await, Held::Ours(()), "the lease is valid");
    }
    queue.depth(1).await;
}

async fn queues_are_independent(one: &TestQueue, other: &TestQueue) {
    // Two queues of the same kind, and one of another kind.
    let sibling = TestQueue { case: Case::new(one.case.store.clone()), name: sibling_of(&one.name) };
    let queues = [one, other, &sibling];
    for (index, queue) in queues.iter().enumerate() {
        queue.send(format!("{{\"line\":{index}}}").as_bytes()).await;
    }
    for (index, queue) in queues.iter().enumerate() {
        let message = queue.next(LONG).await;
        assert_eq!(
            message.body,
            format!("{{\"line\":{index}}}").into_bytes(),
            "each queue has its own messages"
        );
        assert!(queue.receive(RECEIVE_MAX, LONG).await.is_empty(), "each queue has one message");
        queue.depth(1).await;
        for other_queue in queues.iter().filter(|other_queue| other_queue.name != queue.name) {
            let answer = other_queue.extend(&message.lease, b"{}", Duration::ZERO).await;
            assert_eq!(answer, Held::Lost, "a lease can be extended on its own queue only");
            let answer = other_queue.delete(&message.lease).await;
            assert_eq!(answer, Held::Lost, "a lease is valid on its own queue only");
        }
        assert_eq!(queue.delete(&message.lease).await, Held::Ours(()), "the lease is valid on its own queue");
    }
}

/// An ingest queue has the name that its operator gave it, which may be like that of a queue of the bank.
async fn an_ingest_queue_is_a_queue_like_any_other(own: &TestQueue) {
    let name = QueueName::of_ingest(own.name.as_str()).expect("the name of a case is allowed");
    let ingest = TestQueue { case: Case::new(own.case.store.clone()), name };
    a_queue_that_was_never_used_is_empty(&ingest).await;
    let _is_new = ingest.port().create(&ingest.name).await.unwrap();
    assert!(!ingest.port().create(&ingest.name).await.unwrap(), "it exists");
    queues_are_independent(&ingest, own).await;
    for body in [b"<UserAccountTransaction/>".as_slice(), b"user|account|id|1.00", b"PGEvPg==", b"{}"] {
        ingest.send(body).await;
        let message = ingest.next(SHORT).await;
        assert_eq!(message.body, body, "the body is unchanged");
        let Held::Ours(lease) = ingest.extend(&message.lease, body, LONG).await else { panic!("lost") };
        assert_eq!(ingest.delete(&lease).await, Held::Ours(()), "the lease is valid");
    }
    ingest.depth(0).await;
}

fn sibling_of(name: &QueueName) -> QueueName {
    let (work, _) = name.as_str().rsplit_once('-').expect("a queue has a partition");
    match name.ingest() {
        Some(name) => QueueName::of_ingest(&format!("{name}-sibling")).expect("the name is allowed"),
        None => QueueName::of_partition(work, 1),
    }
}

async fn concurrent_receivers_receive_different_messages(queue: &TestQueue) {
    const COUNT: usize = 60;
    for index in 0..COUNT {
        queue.send(format!("{{\"index\":{index}}}").as_bytes()).await;
    }
    let received: Arc<Mutex<Vec<Message>>> = Arc::default();
    let receivers = (0..6).map(|_| {
        let received = Arc::clone(&received);
        let queue = TestQueue { case: Case::new(queue.case.store.clone()), name: queue.name.clone() };
        async move {
            let start = queue.case.world.uptime();
            while received.lock().len() < COUNT {
                let waited = queue.case.world.uptime().saturating_sub(start);
                assert!(waited < TIMEOUT, "the messages are not received within {waited:?}");
                let messages = queue.receive(5, LONG).await;
                received.lock().extend(messages);
            }
        }
    });
    queue.case.concurrently(receivers).await;
    let received = received.lock();
    let ids: BTreeSet<&str> = received.iter().map(|message| message.lease.message_id.as_str()).collect();
    assert_eq!((ids.len(), received.len()), (COUNT, COUNT), "each message is received once");
    assert!(received.iter().all(|message| message.dequeue_count == 1), "each message has been received once");
}
