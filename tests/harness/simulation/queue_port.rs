//! The work queue of one process: at-least-once, unordered, and sometimes late.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::batches::messages::COUNT;
use postonce_shared::messaging::envelope::{Body, Content, WORK};
use postonce_shared::testing::prelude::*;

use super::batches::mistakes;
use super::faults::{Fault, length};
use super::mutations::Mutation;
use super::network::{StoreRequest, now};
use super::ports::StoreConnection;
use super::process_world::ProcessWorld;
use super::processes::RING_SECRET;
use super::seal_mutations::{as_received, as_written};

/// Number of receipts after which [`Mutation::DropAfterReceipts`] drops a message.
const RECEIPTS_MAX: u32 = 4;

/// The connection of a process to the queues.
pub struct QueueConnection(pub Arc<StoreConnection>);

impl QueueConnection {
    /// In some runs, stores all work as payloads, which the bank does only for large groups.
    async fn claimed(&self, body: &[u8]) -> Vec<u8> {
        let StoreConnection { network, process_id, .. } = &*self.0;
        let seal = seal_of(RING_SECRET);
        let Ok(Body::Content(Content::Work(envelope))) = Body::decode(body, &seal) else {
            return body.to_vec();
        };
        if !network.claims_work {
            return body.to_vec();
        }
        let world: Arc<dyn World> = Arc::new(ProcessWorld::new(network.scheduler.clone(), *process_id, 0));
        let claims = ClaimCheck::new(&StoreConnection::ports(network, *process_id, &world), &seal, world);
        claims.put(envelope).await.map_or_else(|_| body.to_vec(), |claimed| claimed.encode(&seal))
    }
}

#[async_trait]
impl WorkQueue for QueueConnection {
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        let network = &self.0.network;
        let late = if network.injects(Fault::MessageLate) {
            length(Fault::MessageLate, &network.scheduler)
        } else {
            Duration::ZERO
        };
        let copies = if network.injects(Fault::MessageTwice) { 2 } else { 1 };
        let body =
            if queue.kind() == WORK { as_written(&self.0, self.claimed(body).await) } else { body.to_vec() };
        let (name, kept) = (queue.clone(), body);
        if queue.kind() == COUNT {
            network.auditor.batches(|batches| batches.reports(&kept));
        }
        let sent = self.0.request(StoreRequest::write("send", queue), move |network| {
            for _ in 0..copies {
                now(network.raw.queue.send(&name, &kept, delay.saturating_add(late)))?;
                network.auditor.sent(&kept);
            }
            Ok(())
        });
        match sent.await {
            Err(_) if self.0.makes(Mutation::AnswerBeforeQueue) => Ok(()),
            sent => sent,
        }
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let StoreConnection { network, process_id, .. } = &*self.0;
        network.auditor.receives(*process_id);
        let visibility = if network.injects(Fault::LeaseCut) {
            network.scheduler.up_to(visibility.checked_div(4).unwrap_or_default())
        } else {
            visibility
        };
        let (name, connection) = (queue.clone(), Arc::clone(&self.0));
        let mut messages = self
            .0
            .request(StoreRequest::write_once("receive", queue), move |network| {
                let mut messages = now(network.raw.queue.receive(&name, max, visibility))?;
                for message in &messages {
                    network.auditor.received(message);
                }
                let drops = |message: &Message| {
                    connection.makes(Mutation::DropAfterReceipts) && message.dequeue_count > RECEIPTS_MAX
                };
                for message in &messages {
                    if connection.makes(Mutation::DeleteBeforeCommit) || drops(message) {
                        let _deleted = now(network.raw.queue.delete(&name, &message.lease))?;
                        network.auditor.deleted(&message.lease.message_id);
                    }
                }
                messages.retain(|message| !drops(message));
                Ok(messages)
            })
            .await?;
        for message in &mut messages {
            let id = &message.lease.message_id;
            network.auditor.letters(|letters, _| letters.received(*process_id, id, &message.body));
            if queue.kind() == WORK {
                message.body = as_received(&self.0, std::mem::take(&mut message.body));
            } else {
                mistakes::received(&self.0, &message.body);
            }
        }
        if messages.len() > 1 && network.injects(Fault::Reordered) {
            for last in (1..messages.len()).rev() {
                let other = network.scheduler.below(u64::try_from(last).unwrap_or(0).saturating_add(1));
                messages.swap(last, usize::try_from(other).unwrap_or(last));
            }
        }
        Ok(messages)
    }

    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        let body = if queue.kind() == WORK { as_written(&self.0, body.to_vec()) } else { body.to_vec() };
        let (name, kept) = (queue.clone(), lease.clone());
        let StoreConnection { network, process_id, .. } = &*self.0;
        network.auditor.letters(|letters, in_flight| {
            letters.writes(*process_id, &kept.message_id, &body, in_flight);
        });
        self.0
            .request(StoreRequest::write("extend", &lease.message_id), move |network| {
                let held = now(network.raw.queue.extend(&name, &kept, &body, visibility))?;
                match &held {
                    Held::Ours(_) => network.auditor.extended(&kept.message_id, &body),
                    Held::Lost => network.count(Fault::StaleReceipt),
                }
                Ok(held)
            })
            .await
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        let (name, kept) = (queue.clone(), lease.clone());
        self.0
            .request(StoreRequest::write("delete", &lease.message_id), move |network| {
                let held = now(network.raw.queue.delete(&name, &kept))?;
                match held {
                    Held::Ours(()) => network.auditor.deleted(&kept.message_id),
                    Held::Lost => network.count(Fault::StaleReceipt),
                }
                Ok(held)
            })
            .await
    }

    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        let name = queue.clone();
        self.0
            .request(StoreRequest::read("backlog", queue), move |network| {
                now(network.raw.queue.backlog(&name))
            })
            .await
    }
}
