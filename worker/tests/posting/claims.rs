//! Work that lies in the payload store, step by step: nothing is removed before it is final, nothing
//! waits for what is settled, and what a person gets to see is the work itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::AccountKey;
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::messaging::claim_check::ClaimCheck;
use postonce_shared::messaging::envelope::seal::Purpose;
use postonce_shared::messaging::envelope::{Body, Claim, Envelope};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::payload_store::PayloadStore;
use postonce_shared::ports::queue::{Held, Lease, QueueName, WorkQueue};
use postonce_shared::testing::conformance::sealed::{envelope_in, seal, unsealed};
use postonce_shared::testing::decorators::{PayloadStoreDecorator, WorkQueueDecorator};
use postonce_worker::background_task::BackgroundTask as _;
use postonce_worker::listening::delivery::Delivery;
use postonce_worker::listening::handler::Handler as _;
use postonce_worker::meter::Meter;
use postonce_worker::posting::posting_handler::PostingHandler;
use postonce_worker::upkeep::payload_sweep::PayloadSweep;

use crate::stage::{DEQUEUE_COUNT_MAX, Stage, account, config, handle, instruction, outage};

/// Enough for a payload.
const MANY: u128 = 700;
const VISIBILITY: Duration = Duration::from_secs(20);

/// What the ports were asked to do, and what is away.
#[derive(Default)]
struct Watch {
    steps: Mutex<Vec<&'static str>>,
    payloads_away: AtomicBool,
    deletes_away: AtomicBool,
}

struct WatchedPayloads(Arc<dyn PayloadStore>, Arc<Watch>);

impl WatchedPayloads {
    fn check(&self) -> Result<(), StoreFault> {
        if self.1.payloads_away.load(Ordering::SeqCst) { Err(outage()) } else { Ok(()) }
    }
}

#[async_trait]
impl PayloadStoreDecorator for WatchedPayloads {
    fn inner(&self) -> &dyn PayloadStore {
        &*self.0
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault> {
        self.check()?;
        self.0.get(name).await
    }

    async fn delete(&self, name: &str) -> Result<(), StoreFault> {
        self.check()?;
        self.1.steps.lock().push("remove payload");
        self.0.delete(name).await
    }
}

struct WatchedQueue(Arc<dyn WorkQueue>, Arc<Watch>);

#[async_trait]
impl WorkQueueDecorator for WatchedQueue {
    fn inner(&self) -> &dyn WorkQueue {
        &*self.0
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        if self.1.deletes_away.load(Ordering::SeqCst) {
            return Err(outage());
        }
        self.1.steps.lock().push("delete message");
        self.0.delete(queue, lease).await
    }
}

/// A worker that handles what is there when it is told to.
struct Rounds {
    watch: Arc<Watch>,
    meter: Arc<Meter>,
    posting: PostingHandler,
}

impl Rounds {
    async fn handle_next(&self, stage: &Stage<TestWorld>) {
        stage.handle_next(&self.posting, VISIBILITY).await;
    }
}

async fn stage() -> (Stage<TestWorld>, Rounds) {
    let watch = Arc::new(Watch::default());
    let watched = Stage::still_over(|store| {
        store.payloads = Arc::new(WatchedPayloads(Arc::clone(&store.payloads), Arc::clone(&watch)));
        store.queue = Arc::new(WatchedQueue(Arc::clone(&store.queue), Arc::clone(&watch)));
    });
    let (stage, meter) = (watched.await, Arc::new(Meter::default()));
    let posting = PostingHandler::new(&stage.bank(), Arc::clone(&meter), &config(VISIBILITY));
    (stage, Rounds { watch, meter, posting })
}

/// Work that was accepted, on accounts by the number of the message.
async fn accepted(stage: &Stage<TestWorld>, messages: impl Iterator<Item = (u128, AccountKey)>) -> Vec<Work> {
    let details = Details::from_stored(Some("r".repeat(140)), BTreeMap::new(), String::new());
    let deposit = Instruction { details, ..instruction(TransactionKind::Deposit) };
    let mut work = Vec::new();
    for (message, account) in messages {
        work.push(stage.accept_as(deposit.clone(), account, message).await);
    }
    work
}

async fn many(stage: &Stage<TestWorld>) -> Vec<Work> {
    accepted(stage, (1..=MANY).map(|number| (number, account(1)))).await
}

/// Puts work in a payload, and a claim on it on the queue.
async fn send_claim(stage: &Stage<TestWorld>, work: Vec<Work>) -> String {
    let claims = ClaimCheck::new(&stage.store, &seal(), stage.world.clone());
    let envelope = claims.put(Envelope::of(work, None)).await.unwrap();
    stage.send_body(&envelope.encode(&seal())).await;
    envelope.payload.unwrap()
}

async fn payload_count(stage: &Stage<TestWorld>) -> usize {
    stage.store.payloads.list("", None, 100).await.unwrap().items.len()
}

#[tokio::test]
async fn a_payload_is_removed_when_its_work_is_final_and_before_its_message() {
    let (stage, rounds) = stage().await;
    let work = many(&stage).await;
    send_claim(&stage, work).await;
    rounds.handle_next(&stage).await;
    assert_eq!(stage.balance(1).await, "700.00");
    assert_eq!((stage.depth().await, payload_count(&stage).await), (0, 0));
    assert_eq!(rounds.watch.steps.lock().as_slice(), ["remove payload", "delete message"]);
}

#[tokio::test]
async fn a_claim_on_nothing_is_settled() {
    let (stage, rounds) = stage().await;
    let work = many(&stage).await;
    send_claim(&stage, work).await;
    // The worker dies after it removed the payload; its message comes again.
    rounds.watch.deletes_away.store(true, Ordering::SeqCst);
    rounds.handle_next(&stage).await;
    assert_eq!((stage.depth().await, payload_count(&stage).await), (1, 0));
    rounds.watch.deletes_away.store(false, Ordering::SeqCst);
    rounds.handle_next(&stage).await;
    assert_eq!((stage.depth().await, rounds.meter.settled_before.get()), (0, 1));
    assert_eq!((stage.balance(1).await.as_str(), stage.letters().await.len()), ("700.00", 0));
}

#[tokio::test]
async fn a_claim_that_was_sent_twice_posts_once() {
    let (stage, rounds) = stage().await;
    let work = many(&stage).await;
    let name = send_claim(&stage, work).await;
    stage.send_body(&Claim::on(name).encode(&seal())).await;
    rounds.handle_next(&stage).await;
    rounds.handle_next(&stage).await;
    assert_eq!(stage.balance(1).await, "700.00");
    assert_eq!((stage.depth().await, stage.letters().await.len()), (0, 0));
}

#[tokio::test]
async fn a_payload_store_that_is_away_costs_no_receipt_and_holds_up_nobody() {
    let (stage, rounds) = stage().await;
    let work = many(&stage).await;
    send_claim(&stage, work).await;
    rounds.watch.payloads_away.store(true, Ordering::SeqCst);
    for round in 1..=3 * DEQUEUE_COUNT_MAX {
        let plain = accepted(&stage, std::iter::once((10_000 + u128::from(round), account(1)))).await;
        stage.send_body(&Envelope::of(plain, None).encode(&seal())).await;
        rounds.handle_next(&stage).await;
        assert_eq!(stage.balance(1).await, format!("{round}.00"), "what stands in its message goes on");
    }
    assert_eq!((stage.depth().await, stage.letters().await.len()), (1, 0));
    rounds.watch.payloads_away.store(false, Ordering::SeqCst);
    let message = stage.receive(VISIBILITY).await.remove(0);
    let Ok(Body::Claim(claim)) = Body::decode(&message.body, &seal()) else { panic!("it is still a claim") };
    assert_eq!((message.dequeue_count, claim.forgiven), (7, 6));
    stage.world.advance(VISIBILITY * 2);
    rounds.handle_next(&stage).await;
    assert_eq!(stage.balance(1).await, "706.00");
    assert_eq!((stage.depth().await, payload_count(&stage).await), (0, 0));
}

#[tokio::test]
async fn a_payload_that_cannot_be_removed_is_left_to_the_sweep() {
    let (stage, rounds) = stage().await;
    let work = many(&stage).await;
    send_claim(&stage, work).await;
    let message = stage.receive(VISIBILITY).await.remove(0);
    let content = rounds.posting.read(&message).await;
    rounds.watch.payloads_away.store(true, Ordering::SeqCst);
    let _ = handle(&rounds.posting, vec![Delivery::new(message, content)]).await;
    assert_eq!(stage.balance(1).await, "700.00");
    assert_eq!((stage.depth().await, payload_count(&stage).await), (0, 1));
}

#[tokio::test]
async fn a_damaged_payload_is_for_a_person() {
    let (stage, rounds) = stage().await;
    stage.store.payloads.put("work-7", b"neither gzip nor work").await.unwrap();
    let body = Claim::on("work-7".to_owned()).encode(&seal());
    stage.send_body(&body).await;
    rounds.handle_next(&stage).await;
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("the payload work-7 is damaged"), "{}", letters[0].reason);
    assert_eq!((letters[0].body.as_slice(), payload_count(&stage).await), (body.as_slice(), 1), "it is kept");
    assert_eq!(stage.depth().await, 0);
}

#[tokio::test]
async fn items_that_nobody_can_read_hide_none_of_their_neighbors() {
    let (stage, rounds) = stage().await;
    let work = many(&stage).await;
    let body = String::from_utf8(unsealed(&Envelope::of(work, None).encode(&seal()))).unwrap();
    let strange = body.replacen("deposit", "depot", 300).into_bytes();
    let strange = seal().seal(Purpose::Payload("work-7"), strange);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut gzip, &strange).unwrap();
    stage.store.payloads.put("work-7", &gzip.finish().unwrap()).await.unwrap();
    stage.send_body(&Claim::on("work-7".to_owned()).encode(&seal())).await;
    rounds.handle_next(&stage).await;
    rounds.handle_next(&stage).await;
    assert_eq!(stage.balance(1).await, "400.00");
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(String::from_utf8(letters[0].body.clone()).unwrap().matches("depot").count(), 300);
    assert_eq!((stage.depth().await, payload_count(&stage).await), (0, 0), "all of it is in other places");
}

#[tokio::test]
async fn a_small_rest_moves_into_the_message_and_ends_as_a_letter_with_its_work() {
    let (stage, rounds) = stage().await;
    let mut work = many(&stage).await;
    let bad = accepted(&stage, std::iter::once((9999, account(99)))).await.remove(0);
    work.insert(350, bad.clone());
    send_claim(&stage, work).await;
    rounds.handle_next(&stage).await;
    assert_eq!((stage.balance(1).await.as_str(), payload_count(&stage).await), ("700.00", 1));
    let message = stage.receive(VISIBILITY).await.remove(0);
    assert_eq!(envelope_in(&message.body).items, std::slice::from_ref(&bad));
    for _ in 0..2 * DEQUEUE_COUNT_MAX {
        stage.world.advance(VISIBILITY * 2);
        rounds.handle_next(&stage).await;
    }
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(envelope_in(&letters[0].body).items, [bad]);
}

#[tokio::test]
async fn a_large_rest_stays_claimed_as_a_whole() {
    let (stage, rounds) = stage().await;
    let mut work = many(&stage).await;
    let bad = accepted(&stage, (20_000..20_300).map(|number| (number, account(99)))).await;
    work.extend(bad);
    let name = send_claim(&stage, work).await;
    rounds.handle_next(&stage).await;
    assert_eq!((stage.balance(1).await.as_str(), payload_count(&stage).await), ("700.00", 1));
    let message = stage.receive(VISIBILITY).await.remove(0);
    let Ok(Body::Claim(claim)) = Body::decode(&message.body, &seal()) else { panic!("it is still a claim") };
    assert_eq!(claim, Claim::on(name));
    // Past its receipts what is not final goes in messages of its own, and the sweep gets the payload.
    stage.world.advance(VISIBILITY * 2);
    rounds.handle_next(&stage).await;
    assert_eq!((stage.depth().await, payload_count(&stage).await), (1000, 1));
    assert_eq!(stage.balance(1).await, "700.00");
}

#[tokio::test]
async fn a_worker_sweeps_once_a_day() {
    let (stage, rounds) = stage().await;
    let work = many(&stage).await;
    send_claim(&stage, work.clone()).await;
    rounds.handle_next(&stage).await;
    let sweeping = PayloadSweep::new(&stage.bank());
    let orphan = ClaimCheck::new(&stage.store, &seal(), stage.world.clone())
        .put(Envelope::of(work, None))
        .await
        .unwrap();
    assert!(orphan.payload.is_some() && payload_count(&stage).await == 1);
    stage.world.advance(Duration::from_secs(3600));
    assert!(sweeping.is_due(), "within the first hour");
    sweeping.run().await;
    assert_eq!((sweeping.is_due(), payload_count(&stage).await), (false, 1), "it is too young");
    stage.world.advance(Duration::from_secs(24 * 3600 - 1));
    assert!(!sweeping.is_due());
    stage.world.advance(Duration::from_secs(1));
    assert!(sweeping.is_due());
    sweeping.run().await;
    assert_eq!(payload_count(&stage).await, 0);
}
