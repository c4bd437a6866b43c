//! The work queues. A queue is created when the first message is sent to it, and counts as empty before.
//!
//! Sends are retried until they are confirmed, because duplicate messages are harmless. A receive is not retried if the
//! request may have arrived. The messages of a lost response become visible again after their visibility timeout.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_storage_queues::{NumberOfMessages, PopReceipt, PopReceiptClient};

use super::attempt::{RequestFault, Retries};
use super::client::Queues;
use super::known_queues::{KnownQueues, QUEUE_NOT_FOUND};
use super::message_text::{decode, encode};
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::queue::{Backlog, Held, Lease, Message, QueueName, RECEIVE_MAX, WorkQueue};
use crate::ports::world::World;

/// Time to live of messages, so that they practically never expire: the longest that the crate can express, 68 years.
const TIME_TO_LIVE: Duration = Duration::from_secs(2_147_483_647);
/// Maximum visibility timeout of the service.
const VISIBILITY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(super) struct AzureQueue {
    pub(super) world: Arc<dyn World>,
    pub(super) queues: Queues,
    pub(super) known: KnownQueues,
}

impl AzureQueue {
    /// Returns the client for a message, or `None` if no message can have this id. The ids of the service consist of
    /// hexadecimal digits and `-`. An id such as `..` would be removed from the URL, and a DELETE would then clear the
    /// whole queue.
    fn message(&self, queue: &QueueName, lease: &Lease) -> Option<PopReceiptClient> {
        let Lease { message_id, pop_receipt } = lease;
        let plain = message_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let client =
            || self.queues.client(queue).pop_receipt_client(PopReceipt::new(message_id, pop_receipt));
        (plain && !message_id.is_empty()).then(client)
    }

    async fn put(&self, queue: &QueueName, text: &str, delay: Duration) -> Result<(), RequestFault> {
        let client = self.queues.client(queue);
        let put = async || {
            let asked = self.known.ask(queue);
            let message = client.put_message(text).visibility_timeout(delay).ttl(TIME_TO_LIVE);
            let sent = message.await.map(drop).map_err(RequestFault::from);
            self.known.note(queue, asked, &sent);
            sent
        };
        match put().await {
            Err(failure) if failure.has_code(QUEUE_NOT_FOUND) => {
                self.create_queue(queue).await?;
                put().await
            }
            answer => answer,
        }
    }

    async fn create_queue(&self, queue: &QueueName) -> Result<(), RequestFault> {
        match self.queues.client(queue).create().await.map_err(RequestFault::from) {
            // Another process may have created the queue.
            Err(failure) if !failure.has_code("QueueAlreadyExists") => Err(failure),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Creates the queue if it is missing, and returns whether it was. Creating alone would also succeed if it exists.
    async fn create_if_missing(&self, queue: &QueueName) -> Result<bool, RequestFault> {
        match self.queues.client(queue).get_metadata().await.map_err(RequestFault::from) {
            Ok(_) => Ok(false),
            Err(failure) if failure.has_code(QUEUE_NOT_FOUND) => {
                self.create_queue(queue).await.map(|()| true)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn depth(&self, queue: &QueueName) -> Result<u64, RequestFault> {
        let asked = self.known.ask(queue);
        let read = self.queues.client(queue).get_metadata().await.map_err(RequestFault::from);
        self.known.note(queue, asked, &read);
        match read {
            Ok(answer) => Ok(u64::try_from(answer.approximate_messages_count).unwrap_or(u64::MAX)),
            Err(failure) if failure.has_code(QUEUE_NOT_FOUND) => Ok(0),
            Err(failure) => Err(failure),
        }
    }

    async fn head(&self, queue: &QueueName) -> Result<Option<Timestamp>, RequestFault> {
        match self
            .queues
            .client(queue)
            .peek_messages()
            .number_of_messages(1)
            .await
            .map_err(RequestFault::from)
        {
            Ok(answer) => {
                Ok(answer.messages.first().map(|message| at(message.insertion_time.unix_timestamp())))
            }
            Err(failure) if failure.has_code(QUEUE_NOT_FOUND) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

#[async_trait]
impl WorkQueue for AzureQueue {
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        let doing = "sending a message";
        let (text, delay) = (text_of(body, doing)?, whole_seconds(delay));
        let mut retries = Retries::new(&self.world);
        let sent = retries.retry_write(|| self.put(queue, &text, delay)).await;
        sent.map_err(|failure| retries.fault(failure, doing))
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let Some(max) = u8::try_from(max.min(RECEIVE_MAX)).ok().filter(|max| *max > 0) else {
            return Ok(Vec::new());
        };
        // Zero is not allowed here, because the message would immediately be received again.
        let visibility = whole_seconds(visibility).max(Duration::from_secs(1));
        let client = self.queues.client(queue);
        let mut retries = Retries::new(&self.world);
        loop {
            let request = client
                .get_messages()
                .number_of_messages(NumberOfMessages::new(max))
                .visibility_timeout(visibility);
            let asked = self.known.ask(queue);
            let received = request.await.map_err(RequestFault::from);
            self.known.note(queue, asked, &received);
            let failure = match received {
                Ok(answer) => return Ok(answer.messages.into_iter().map(to_message).collect()),
                Err(failure) if failure.has_code(QUEUE_NOT_FOUND) => return Ok(Vec::new()),
                Err(failure) => failure,
            };
            if !matches!(failure, RequestFault::Unsent(_)) || !retries.wait_for_retry().await {
                return Err(failure.into_fault("receiving messages"));
            }
        }
    }

    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        let doing = "extending a message";
        let (text, visibility) = (text_of(body, doing)?, whole_seconds(visibility));
        let Some(message) = self.message(queue, lease) else { return Ok(Held::Lost) };
        let mut retries = Retries::new(&self.world);
        loop {
            let failure = match message.update(text.clone(), visibility).await.map_err(RequestFault::from) {
                Ok(answer) => {
                    let message_id = lease.message_id.clone();
                    return Ok(Held::Ours(Lease { message_id, pop_receipt: answer.pop_receipt }));
                }
                Err(failure) if is_lost(&failure) => return Ok(Held::Lost),
                Err(failure) => failure,
            };
            // Not retried if the request may have arrived. The old receipt would then be invalid, and the retry would
            // report a lost lease although this process holds it.
            if !matches!(failure, RequestFault::Unsent(_)) || !retries.wait_for_retry().await {
                return Err(failure.into_fault(doing));
            }
        }
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        let Some(message) = self.message(queue, lease) else { return Ok(Held::Lost) };
        let mut retries = Retries::new(&self.world);
        loop {
            let failure = match message.delete().await.map_err(RequestFault::from) {
                Ok(_) => return Ok(Held::Ours(())),
                // The message is gone because an attempt whose response was lost deleted it.
                Err(failure) if retries.is_unclear() && failure.has_code("MessageNotFound") => {
                    return Ok(Held::Ours(()));
                }
                Err(failure) if is_lost(&failure) => return Ok(Held::Lost),
                Err(failure) => failure,
            };
            retries.record_failure(&failure);
            if matches!(failure, RequestFault::Answered(_)) || !retries.wait_for_retry().await {
                return Err(retries.fault(failure, "deleting a message"));
            }
        }
    }

    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        let doing = "reading the backlog of a queue";
        let mut retries = Retries::new(&self.world);
        let depth = retries.retry_read(|| self.depth(queue)).await;
        let depth = depth.map_err(|failure| failure.into_fault(doing))?;
        if depth == 0 {
            return Ok(Backlog::default());
        }
        let head = retries.retry_read(|| self.head(queue)).await;
        let head_inserted_at = head.map_err(|failure| failure.into_fault(doing))?;
        Ok(Backlog { depth, head_inserted_at, oldest_inserted_at: head_inserted_at })
    }

    async fn create(&self, queue: &QueueName) -> Result<bool, StoreFault> {
        let mut retries = Retries::new(&self.world);
        let asked = self.known.ask(queue);
        let created = retries.retry_write(|| self.create_if_missing(queue)).await;
        self.known.note(queue, asked, &created);
        created.map_err(|failure| retries.fault(failure, "creating a queue"))
    }

    async fn deleted(&self) -> BTreeSet<QueueName> {
        self.known.deleted().await
    }
}

fn text_of(body: &[u8], doing: &'static str) -> Result<String, StoreFault> {
    encode(body).map_err(|source| StoreFault::Refused { doing, source: Box::new(source) })
}

/// Returns whether the message was deleted, or received by another process.
fn is_lost(failure: &RequestFault) -> bool {
    failure.has_status(404) || failure.has_code("PopReceiptMismatch")
}

/// Rounds up to whole seconds, the unit of the service. If a message is hidden for too long, it is only delayed; if it
/// is hidden too briefly, the lease is lost.
fn whole_seconds(duration: Duration) -> Duration {
    let begun = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(begun)).min(VISIBILITY_MAX)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_ms(seconds.saturating_mul(1000))
}

fn to_message(message: azure_storage_queues::operations::Message) -> Message {
    Message {
        inserted_at: at(message.insertion_time.unix_timestamp()),
        dequeue_count: u32::try_from(message.dequeue_count).unwrap_or(u32::MAX),
        lease: Lease { message_id: message.message_id, pop_receipt: message.pop_receipt },
        body: decode(message.message_text),
    }
}
