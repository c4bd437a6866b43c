//! Messages of batches that were received too often: each is tried and settled before the next, and a batch whose work
//! ends its processes is stopped.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::pending;
use postonce_process::background_task::BackgroundTask as _;
use postonce_shared::batches::BatchFault;
use postonce_shared::batches::messages::{
    BatchMessageError, Named, POST, attempts_in, post_queue, split_queue, with_attempts,
};
use postonce_shared::batches::records::BatchRecords;
use postonce_shared::cluster::attempts::{Attempt, Attempts};
use postonce_shared::domain::batch::{
    Batch, BatchKey, Digest, Document, HindranceReason, OnInvalid, OperationCounts, Tally,
};
use postonce_shared::protocol::dead_letters::ResolveOutcome;
use postonce_shared::testing::prelude::*;
use postonce_shared::testing::registered::entry;
use postonce_worker::batches::upkeep::BatchUpkeep;
use postonce_worker::batches::{BatchHandler, Initiator, Processor, Role};
use postonce_worker::listening::delivery::Delivery;
use postonce_worker::listening::handler::Handler as _;
use postonce_worker::listening::lone_attempts::ATTEMPTS_MIN;
use uuid::Uuid;

use crate::posting::fixture::{Fixture, config};
use crate::posting::lone_attempts::{Process, VALID_FOR};

const VISIBILITY: Duration = Duration::from_secs(20);
/// Receipts of a message of a batch until it is tried alone.
const RECEIPTS_MAX: usize = 5;
/// The chunk that ends each process that handles it.
const KILLER: u32 = 7;

/// Does nothing with chunks; one of them never ends, so that a test can end the process meanwhile.
struct Chunks(Bank);

#[async_trait]
impl Role for Chunks {
    type Work = Named;

    const NAME: &'static str = POST;
    const MESSAGES_AT_ONCE: usize = 32;

    fn decode(&self, body: &[u8]) -> Result<Named, BatchMessageError> {
        Named::decode(body)
    }

    fn batch(work: &Named) -> &BatchKey {
        &work.key
    }

    fn parts(work: &Named) -> Vec<Vec<u8>> {
        Processor::parts(work)
    }

    async fn work(&self, work: &[&Named]) -> Vec<Result<(), Arc<BatchFault>>> {
        let mut results = Vec::new();
        for named in work {
            let found = self.0.batches.records.find(&named.key).await.unwrap();
            let is_stopped = found.is_some_and(|found| found.value.stop().is_some());
            if named.chunks.contains(&KILLER) && !is_stopped {
                pending::<()>().await;
            }
            results.push(Ok(()));
        }
        results
    }
}

/// The address of a store, as the causes of its faults contain it.
const ADDRESS: &str = "https://bank.table.core.windows.net/ledger";

/// Fails at chunk 1 with a transient fault, and at others with a permanent one.
struct Failing;

#[async_trait]
impl Role for Failing {
    type Work = Named;

    const NAME: &'static str = POST;
    const MESSAGES_AT_ONCE: usize = 32;

    fn decode(&self, body: &[u8]) -> Result<Named, BatchMessageError> {
        Named::decode(body)
    }

    fn batch(work: &Named) -> &BatchKey {
        &work.key
    }

    async fn work(&self, work: &[&Named]) -> Vec<Result<(), Arc<BatchFault>>> {
        let fault = |named: &&Named| {
            let (doing, source) = ("reading a chunk", ADDRESS.into());
            let is_transient = named.chunks == [1];
            let fault = if is_transient {
                StoreFault::Unavailable { doing, source }
            } else {
                StoreFault::Corrupt { doing, source }
            };
            Err(Arc::new(fault.into()))
        };
        work.iter().map(fault).collect()
    }
}

fn key() -> BatchKey {
    BatchKey { partner: PartnerId::parse("shop").unwrap(), batch: BatchId::from_uuid(Uuid::from_u128(3)) }
}

fn queue() -> QueueName {
    post_queue(0, 1)
}

struct Setup(Fixture<TestWorld>);

impl Setup {
    async fn process(&self) -> (Process, BatchHandler<Chunks>) {
        let bank = self.0.bank();
        let handler = BatchHandler::new(Chunks(bank.clone()), &bank, &Arc::default(), &config(VISIBILITY));
        (Process::register(bank).await, handler)
    }

    /// A batch that no initiator has split.
    async fn new() -> Self {
        let fixture = Fixture::with_still_clock().await;
        let (digest, now) = (Digest([0; 32]), fixture.world.now());
        let document = Document {
            upload: Uuid::from_u128(4),
            parts: digest,
            content: digest,
            valid: Tally::default(),
            invalid: 0,
        };
        let batch = Batch::received(key(), OnInvalid::Refuse, document, now, OperationCounts::default());
        let records = fixture.bank().batches.records;
        let _ = records.save(&batch, None).await.unwrap();
        records.open(&key(), now).await.unwrap();
        Self(fixture)
    }

    async fn send(&self, chunks: &[u32]) {
        let body = Named::of(key(), chunks.to_vec()).encode();
        self.0.store.queue.send(&queue(), &body, Duration::ZERO).await.unwrap();
    }

    async fn receive(&self, queue: &QueueName) -> Vec<Message> {
        self.0.store.queue.receive(queue, 32, VISIBILITY * 2).await.unwrap()
    }

    async fn receive_too_often(&self) {
        for _ in 0..RECEIPTS_MAX {
            self.receive(&queue()).await;
            self.0.world.advance(VISIBILITY * 3);
        }
    }

    async fn depth(&self, queue: &QueueName) -> u64 {
        self.0.store.queue.backlog(queue).await.unwrap().depth
    }

    /// Receives, handles and settles messages as a session does.
    async fn handle<R: Role>(&self, handler: &BatchHandler<R>, queue: &QueueName) {
        let mut deliveries = Vec::new();
        for message in self.receive(queue).await {
            let content = handler.read(&message).await;
            deliveries.push(Delivery::new(message, content));
        }
        let (done, _) = handler.handle(queue, deliveries).await;
        let _ = handler.settle(queue, done).await;
    }

    /// A new process handles messages, and ends during the work of one of them.
    async fn end_while_handling(&self) {
        let (_process, handler) = self.process().await;
        assert!(self.handle(&handler, &queue()).now_or_never().is_none(), "it works");
        self.0.world.advance(VISIBILITY * 3);
    }

    async fn stop(&self) -> Option<Uuid> {
        let found = self.0.bank().batches.records.find(&key()).await.unwrap();
        found.unwrap().value.stop()
    }
}

#[tokio::test]
async fn each_message_is_settled_before_the_next_is_tried_alone() {
    let setup = Setup::new().await;
    for chunk in [1, 2, KILLER] {
        setup.send(&[chunk]).await;
    }
    setup.receive_too_often().await;
    setup.send(&[3]).await;
    setup.end_while_handling().await;
    assert_eq!(setup.depth(&queue()).await, 1, "only the message that ended the process is left");
}

#[tokio::test]
async fn a_message_is_divided_before_its_chunks_are_tried_alone() {
    let setup = Setup::new().await;
    setup.send(&[1, KILLER, 2]).await;
    setup.receive_too_often().await;
    let (_process, handler) = setup.process().await;
    setup.handle(&handler, &queue()).await;
    let chunks: Vec<_> =
        setup.receive(&queue()).await.iter().map(|it| Named::decode(&it.body).unwrap().chunks).collect();
    assert_eq!(chunks, [[1], [KILLER], [2]]);
}

#[tokio::test]
async fn a_batch_whose_work_ends_its_processes_is_stopped_until_an_operator_replays_its_dead_letter() {
    let setup = Setup::new().await;
    setup.send(&[KILLER]).await;
    let upkeep = BatchUpkeep::new(&setup.0.bank());
    for _ in 0..RECEIPTS_MAX {
        setup.end_while_handling().await;
    }
    for _ in 0..ATTEMPTS_MIN {
        setup.end_while_handling().await;
        upkeep.run().await;
    }
    assert_eq!(setup.depth(&split_queue()).await, 0, "copies of the message would end more processes");
    setup.0.world.advance(VALID_FOR * 2);
    setup.send(&[KILLER]).await;
    // A copy that another process has not received yet.
    let (_process, handler) = setup.process().await;
    let copy = setup.receive(&queue()).await.pop().unwrap();
    setup.0.world.advance(VISIBILITY * 3);
    let received = setup.receive(&queue()).await;
    let killer = received.into_iter().find(|it| it.lease.message_id != copy.lease.message_id).unwrap();
    let content = handler.read(&killer).await;
    let (done, _) = handler.handle(&queue(), vec![Delivery::new(killer, content)]).await;
    let _ = handler.settle(&queue(), done).await;
    let letters = setup.0.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.starts_with("3 processes ended while they handled"), "{}", letters[0].reason);
    assert!(setup.stop().await.is_some());
    // Neither the copy nor the upkeep leads to another attempt.
    setup.0.world.advance(VISIBILITY * 3);
    setup.handle(&handler, &queue()).await;
    for _ in 0..5 {
        upkeep.run().await;
        setup.0.world.advance(Duration::from_secs(2 * 3600));
    }
    assert_eq!((setup.depth(&queue()).await, setup.depth(&split_queue()).await), (0, 0));
    let bank = setup.0.bank();
    assert_eq!(bank.dead_letters.replay(&letters[0].id, "operator").await.unwrap(), ResolveOutcome::Done);
    let initiator = Initiator(bank.batches.clone());
    let initiator = BatchHandler::new(initiator, &bank, &Arc::default(), &config(VISIBILITY));
    setup.handle(&initiator, &split_queue()).await;
    assert_eq!(setup.stop().await, None);
}

#[tokio::test]
async fn a_batch_shows_what_hinders_it_without_the_causes() {
    for (chunk, reason) in [(1, HindranceReason::StoreUnavailable), (2, HindranceReason::DataUnreadable)] {
        let setup = Setup::new().await;
        setup.send(&[chunk]).await;
        let handler = BatchHandler::new(Failing, &setup.0.bank(), &Arc::default(), &config(VISIBILITY));
        for _ in 0..4 {
            setup.handle(&handler, &queue()).await;
            setup.0.world.advance(Duration::from_secs(600));
        }
        let batch = setup.0.bank().batches.records.find(&key()).await.unwrap().unwrap().value;
        assert_eq!(batch.hindrance.map(|hindrance| hindrance.reason), Some(reason));
        let record = setup.0.store.records.find(Collection::Batches, &BatchRecords::id_of(&key())).await;
        let record = record.unwrap().unwrap().value;
        assert!(record.contains(reason.code()) && !record.contains(ADDRESS), "{record}");
        let letters = setup.0.dead_letters().await;
        assert_eq!(letters.len(), usize::from(chunk != 1));
        assert!(letters.iter().all(|letter| letter.reason.contains(ADDRESS)), "{letters:?}");
    }
}

#[tokio::test]
async fn a_message_of_a_newer_version_waits_for_a_newer_worker() {
    let setup = Setup::new().await;
    let newer = br#"{"v":99,"batch":{"of":"another form"}}"#.to_vec();
    setup.0.store.queue.send(&queue(), &newer, Duration::ZERO).await.unwrap();
    let (_process, handler) = setup.process().await;
    for _ in 0..20 {
        setup.handle(&handler, &queue()).await;
        setup.0.world.advance(Duration::from_secs(600));
    }
    assert_eq!(setup.0.dead_letters().await, [], "however often it was received");
    let message = setup.receive(&queue()).await.remove(0);
    assert_eq!((&message.body, message.dequeue_count), (&newer, 1), "unchanged, and without receipts");
}

#[tokio::test]
async fn no_chunks_are_sent_again_while_messages_of_batches_wait() {
    let setup = Setup::new().await;
    setup.send(&[1]).await;
    let upkeeps = [1, 2].map(|_| BatchUpkeep::new(&setup.0.bank()));
    let run = async || {
        for upkeep in &upkeeps {
            upkeep.run().await;
        }
        setup.depth(&split_queue()).await
    };
    for _ in 0..20 {
        assert_eq!(run().await, 0, "the store is slow, and no message is lost");
        setup.0.world.advance(VISIBILITY);
    }
    // The message may be of another batch.
    setup.0.world.advance(Duration::from_secs(3 * 3600));
    assert_eq!(run().await, 2);
    for _ in 0..20 {
        assert_eq!(run().await, 2, "they have just been asked");
        setup.0.world.advance(VISIBILITY);
    }
    for queue in [queue(), split_queue()] {
        for message in setup.receive(&queue).await {
            let _ = setup.0.store.queue.delete(&queue, &message.lease).await.unwrap();
        }
    }
    assert_eq!(run().await, 1, "without messages, the first one asks at once");
}

#[tokio::test]
async fn a_dead_letter_of_a_batch_contains_no_attempts() {
    let setup = Setup::new().await;
    let body = Named::of(key(), vec![1]).encode();
    let attempt = Attempt { process: entry(&setup.0.bank()).id, attempts_survived: 4 };
    let attempts = Attempts::NONE.with(attempt);
    let recorded = with_attempts(&body, &attempts, &seal());
    assert_eq!(attempts_in(&recorded, &seal()), attempts);
    setup.0.store.queue.send(&split_queue(), &recorded, Duration::ZERO).await.unwrap();
    let bank = setup.0.bank();
    // The parts of the document do not exist.
    let initiator = Initiator(bank.batches.clone());
    let initiator = BatchHandler::new(initiator, &bank, &Arc::default(), &config(VISIBILITY));
    setup.handle(&initiator, &split_queue()).await;
    let letters = setup.0.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert!(attempts_in(&letters[0].body, &seal()).is_empty());
}

#[test]
fn a_seal_that_cannot_be_verified_is_kept() {
    let attempts = Attempts::NONE
        .with(Attempt { process: ProcessId::from_uuid(Uuid::from_u128(1)), attempts_survived: 0 });
    let outcome = br#"{"v":1,"results":""}"#.to_vec();
    let sealed = seal_of("another-secret-of-a-bank").seal(Purpose::ChunkOutcome, outcome.clone());
    assert_eq!(with_attempts(&sealed, &attempts, &seal()), sealed);
    let unsealed = String::from_utf8(with_attempts(br#"{"v":1}"#, &attempts, &seal())).unwrap();
    assert_eq!(attempts_in(unsealed.as_bytes(), &seal()), attempts);
    let forged = unsealed.replacen("00000001", "00000002", 1);
    assert!(attempts_in(forged.as_bytes(), &seal()).is_empty(), "anybody can write to the queue");
    let own = seal().seal(Purpose::ChunkOutcome, outcome);
    let recorded = with_attempts(&own, &attempts, &seal());
    assert!(recorded != own && seal().verify(Purpose::ChunkOutcome, &recorded));
}
