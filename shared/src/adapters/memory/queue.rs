//! The work queues. Each message has a time, by the world's uptime, from which it is visible. Receiving a message postpones
//! this time and issues a new receipt. Only the newest receipt is valid, even after the message became visible again.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::{MemoryStore, Tables};
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::operations::{PriceKind, Service};
use crate::ports::queue::{BODY_BYTES_MAX, Backlog, Held, Lease, Message, QueueName, RECEIVE_MAX, WorkQueue};

/// The messages of each queue by their ids, which increase.
pub(super) type Queues = BTreeMap<QueueName, BTreeMap<String, StoredMessage>>;

/// A message in a queue, leased or not.
pub(super) struct StoredMessage {
    body: Vec<u8>,
    inserted_at: Timestamp,
    dequeue_count: u32,
    /// By the world's uptime, so that a step of the wall clock does not show or hide a message.
    visible_from: Duration,
    /// `None` until the message is received for the first time.
    pop_receipt: Option<String>,
}

impl MemoryStore {
    fn count_queue(&self, name: &'static str) {
        self.count(Service::Queue, name, PriceKind::Queue);
    }
}

#[async_trait]
impl WorkQueue for MemoryStore {
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        check_size(body, "sending a message")?;
        self.count_queue("send");
        let message = StoredMessage {
            body: body.to_vec(),
            inserted_at: self.world.now(),
            dequeue_count: 0,
            visible_from: self.world.uptime().saturating_add(delay),
            pop_receipt: None,
        };
        self.step(|Tables { queues, numbers, .. }| {
            let id = format!("message-{:020}", numbers.next());
            queues.entry(queue.clone()).or_default().insert(id, message);
        });
        Ok(())
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        assert!((1..=RECEIVE_MAX).contains(&max), "a receive of {max} messages is not possible");
        self.count_queue("receive");
        let now = self.world.uptime();
        Ok(self.step(|Tables { queues, numbers, .. }| {
            let Some(messages) = queues.get_mut(queue) else { return Vec::new() };
            let ids: Vec<String> = visible(messages, now).into_iter().take(max).cloned().collect();
            let mut received = Vec::with_capacity(ids.len());
            for message_id in ids {
                let message = messages.get_mut(&message_id).expect("the id was found in this step");
                let pop_receipt = format!("receipt-{}", numbers.next());
                message.dequeue_count = message.dequeue_count.saturating_add(1);
                message.visible_from = now.saturating_add(visibility);
                message.pop_receipt = Some(pop_receipt.clone());
                received.push(Message {
                    lease: Lease { message_id, pop_receipt },
                    body: message.body.clone(),
                    dequeue_count: message.dequeue_count,
                    inserted_at: message.inserted_at,
                });
            }
            received
        }))
    }

    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        check_size(body, "extending a message")?;
        self.count_queue("update");
        let now = self.world.uptime();
        Ok(self.step(|Tables { queues, numbers, .. }| {
            let Some(message) = held(queues, queue, lease) else { return Held::Lost };
            let pop_receipt = format!("receipt-{}", numbers.next());
            message.body = body.to_vec();
            message.visible_from = now.saturating_add(visibility);
            message.pop_receipt = Some(pop_receipt.clone());
            Held::Ours(Lease { message_id: lease.message_id.clone(), pop_receipt })
        }))
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        self.count_queue("delete");
        Ok(self.step(|Tables { queues, .. }| {
            if held(queues, queue, lease).is_none() {
                return Held::Lost;
            }
            queues.entry(queue.clone()).or_default().remove(&lease.message_id);
            Held::Ours(())
        }))
    }

    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        self.count_queue("metadata");
        let now = self.world.uptime();
        Ok(self.step(|Tables { queues, .. }| {
            let Some(messages) = queues.get(queue) else { return Backlog::default() };
            let head = visible(messages, now).into_iter().next().and_then(|id| messages.get(id));
            Backlog {
                depth: u64::try_from(messages.len()).unwrap_or(u64::MAX),
                head_inserted_at: head.map(|message| message.inserted_at),
                oldest_inserted_at: messages.values().map(|message| message.inserted_at).min(),
            }
        }))
    }
}

fn check_size(body: &[u8], doing: &'static str) -> Result<(), StoreFault> {
    if body.len() <= BODY_BYTES_MAX {
        return Ok(());
    }
    let source = format!("a body of {} bytes does not fit a queue", body.len()).into();
    Err(StoreFault::Refused { doing, source })
}

/// Returns the ids of the visible messages, ordered by the time at which they became visible, then by their ids.
fn visible(messages: &BTreeMap<String, StoredMessage>, now: Duration) -> Vec<&String> {
    let mut visible: Vec<(Duration, &String)> = messages
        .iter()
        .filter(|(_, message)| message.visible_from <= now)
        .map(|(id, message)| (message.visible_from, id))
        .collect();
    visible.sort_unstable();
    visible.into_iter().map(|(_, id)| id).collect()
}

/// Returns the message if the lease has its newest receipt.
fn held<'a>(queues: &'a mut Queues, queue: &QueueName, lease: &Lease) -> Option<&'a mut StoredMessage> {
    let message = queues.get_mut(queue)?.get_mut(&lease.message_id)?;
    (message.pop_receipt.as_ref() == Some(&lease.pop_receipt)).then_some(message)
}
