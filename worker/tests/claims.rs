//! Work that lies in the payload store, step by step: nothing is removed before it is final, nothing
//! waits for what is settled, and what a person gets to see is the work itself.

#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "test code")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_shared::adapters::bell::LocalBell;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::bank::Bank;
use postonce_shared::claim_check::ClaimCheck;
use postonce_shared::domain::account::Account;
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::{
    AccountId, AccountKey, MessageId, Nonce, PartnerId, TransactionKey, UserId,
};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::money::{Amount, Currency, OverdraftLimit};
use postonce_shared::envelope::{self, Body, Claim, Envelope};
use postonce_shared::ports::Store;
use postonce_shared::ports::dead_letters::DeadLetter;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Listing, NewTransaction};
use postonce_shared::ports::payload_store::{PayloadEntry, PayloadStore};
use postonce_shared::ports::queue::{Backlog, Held, Lease, Message, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_worker::delivery::Delivery;
use postonce_worker::errand::Errand as _;
use postonce_worker::handler::Handler as _;
use postonce_worker::meter::Meter;
use postonce_worker::posting::Posting;
use postonce_worker::receivers::Bounds;
use postonce_worker::sweeping::Sweeping;
use postonce_worker::worker::WorkerConfig;
use uuid::Uuid;

/// Enough for a payload.
const MANY: u128 = 700;
const DEQUEUE_COUNT_MAX: u32 = 2;
const VISIBILITY: Duration = Duration::from_secs(20);

fn account(number: u128) -> AccountKey {
    let user = UserId::from_uuid(Uuid::from_u128(1));
    AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(number)) }
}

fn queue() -> QueueName {
    envelope::queues(1)[0].clone()
}

fn fault() -> StoreFault {
    StoreFault::Unavailable { doing: "testing", source: "switched off".into() }
}

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
        if self.1.payloads_away.load(Ordering::SeqCst) { Err(fault()) } else { Ok(()) }
    }
}

#[async_trait]
impl PayloadStore for WatchedPayloads {
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault> {
        self.0.put(name, body).await
    }
    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault> {
        self.check()?;
        self.0.get(name).await
    }
    async fn delete(&self, name: &str) -> Result<(), StoreFault> {
        self.check()?;
        self.1.steps.lock().unwrap().push("remove payload");
        self.0.delete(name).await
    }
    async fn list(&self, p: &str, c: Option<&str>, l: usize) -> Result<Listing<PayloadEntry>, StoreFault> {
        self.0.list(p, c, l).await
    }
}

struct WatchedQueue(Arc<dyn WorkQueue>, Arc<Watch>);

#[async_trait]
impl WorkQueue for WatchedQueue {
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        self.0.send(queue, body, delay).await
    }
    async fn receive(&self, q: &QueueName, max: usize, hidden: Duration) -> Result<Vec<Message>, StoreFault> {
        self.0.receive(q, max, hidden).await
    }
    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        hidden: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        self.0.extend(queue, lease, body, hidden).await
    }
    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        if self.1.deletes_away.load(Ordering::SeqCst) {
            return Err(fault());
        }
        self.1.steps.lock().unwrap().push("delete message");
        self.0.delete(queue, lease).await
    }
    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        self.0.backlog(queue).await
    }
}

struct Stage {
    world: Arc<TestWorld>,
    store: Store,
    watch: Arc<Watch>,
    meter: Arc<Meter>,
    posting: Posting,
}

impl Stage {
    async fn new() -> Self {
        let world = Arc::new(TestWorld::new(1));
        let watch = Arc::new(Watch::default());
        let mut store = MemoryStore::new(world.clone());
        store.payloads = Arc::new(WatchedPayloads(Arc::clone(&store.payloads), Arc::clone(&watch)));
        store.queue = Arc::new(WatchedQueue(Arc::clone(&store.queue), Arc::clone(&watch)));
        let eur = Currency::parse("EUR").unwrap();
        let new = Account::open(account(1), eur, OverdraftLimit::none(eur), None, world.now());
        let _ = store.accounts.open(&new).await.unwrap();
        let bank = Bank::new(store.clone(), world.clone(), Arc::new(LocalBell::default()), 1);
        let config = WorkerConfig {
            visibility_timeout: VISIBILITY,
            dequeue_count_max: DEQUEUE_COUNT_MAX,
            idle_delay_max: Duration::from_millis(100),
            receivers: Bounds { floor: NonZeroUsize::MIN, ceiling: NonZeroUsize::MIN },
            legacy_partner: None,
            held: false,
        };
        let meter = Arc::new(Meter::default());
        let posting = Posting::new(&bank, Arc::clone(&meter), &config);
        Self { world, store, watch, meter, posting }
    }

    /// Work that was accepted, on accounts by the number of the message.
    async fn accepted(&self, messages: impl Iterator<Item = (u128, AccountKey)>) -> Vec<Work> {
        let mut work = Vec::new();
        for (number, account) in messages {
            let message = MessageId::from_uuid(Uuid::from_u128(number));
            let key = TransactionKey { account, partner: PartnerId::parse("shop").unwrap(), message };
            let amount = Amount::parse("1.00", Currency::parse("EUR").unwrap()).unwrap();
            let details = Details::from_stored(Some("r".repeat(140)), BTreeMap::new(), String::new());
            let instruction = Instruction { kind: TransactionKind::Deposit, amount, details };
            let nonce = Nonce::from_uuid(Uuid::from_u128(number));
            let new = NewTransaction { key: key.clone(), instruction, accepted_at: self.world.now(), nonce };
            let _ = self.store.ledger.accept(&[new]).await.unwrap();
            work.push(self.store.ledger.transaction(&key).await.unwrap().unwrap().work().unwrap());
        }
        work
    }

    async fn many(&self) -> Vec<Work> {
        self.accepted((1..=MANY).map(|number| (number, account(1)))).await
    }

    /// Puts work in a payload, and a claim on it on the queue.
    async fn send_claim(&self, work: Vec<Work>) -> String {
        let claims = ClaimCheck::new(&self.store, self.world.clone());
        let envelope = claims.put(Envelope::of(work, None)).await.unwrap();
        self.send(&envelope.encode()).await;
        envelope.payload.unwrap()
    }

    async fn send(&self, body: &[u8]) {
        self.store.queue.send(&queue(), body, Duration::ZERO).await.unwrap();
    }

    async fn receive(&self) -> Vec<Message> {
        self.store.queue.receive(&queue(), 32, VISIBILITY).await.unwrap()
    }

    /// Receives what is there and handles it, as a session does; then waits until all of it is back.
    async fn round(&self) {
        let mut deliveries = Vec::new();
        for message in self.receive().await {
            let content = self.posting.read(&message).await;
            deliveries.push(Delivery::new(message, content));
        }
        let _ = self.posting.handle(&queue(), deliveries).await;
        self.world.advance(VISIBILITY + Duration::from_secs(1));
    }

    async fn balance(&self) -> String {
        self.store.ledger.account(account(1)).await.unwrap().unwrap().value.balance.to_string()
    }

    async fn depth(&self) -> u64 {
        self.store.queue.backlog(&queue()).await.unwrap().depth
    }

    async fn payload_count(&self) -> usize {
        self.store.payloads.list("", None, 100).await.unwrap().items.len()
    }

    async fn letters(&self) -> Vec<DeadLetter> {
        self.store.dead_letters.list(true, None, 100).await.unwrap().items
    }
}

#[tokio::test]
async fn a_payload_is_removed_when_its_work_is_final_and_before_its_message() {
    let stage = Stage::new().await;
    let work = stage.many().await;
    stage.send_claim(work).await;
    stage.round().await;
    assert_eq!(stage.balance().await, "700.00");
    assert_eq!((stage.depth().await, stage.payload_count().await), (0, 0));
    assert_eq!(stage.watch.steps.lock().unwrap().as_slice(), ["remove payload", "delete message"]);
}

#[tokio::test]
async fn a_claim_on_nothing_is_settled() {
    let stage = Stage::new().await;
    let work = stage.many().await;
    stage.send_claim(work).await;
    // The worker dies after it removed the payload; its message comes again.
    stage.watch.deletes_away.store(true, Ordering::SeqCst);
    stage.round().await;
    assert_eq!((stage.depth().await, stage.payload_count().await), (1, 0));
    stage.watch.deletes_away.store(false, Ordering::SeqCst);
    stage.round().await;
    assert_eq!((stage.depth().await, stage.meter.settled_before.get()), (0, 1));
    assert_eq!((stage.balance().await.as_str(), stage.letters().await.len()), ("700.00", 0));
}

#[tokio::test]
async fn a_claim_that_was_sent_twice_posts_once() {
    let stage = Stage::new().await;
    let work = stage.many().await;
    let name = stage.send_claim(work).await;
    stage.send(&Claim::on(name).encode()).await;
    stage.round().await;
    stage.round().await;
    assert_eq!(stage.balance().await, "700.00");
    assert_eq!((stage.depth().await, stage.letters().await.len()), (0, 0));
}

#[tokio::test]
async fn a_payload_store_that_is_away_costs_no_receipt_and_holds_up_nobody() {
    let stage = Stage::new().await;
    let work = stage.many().await;
    stage.send_claim(work).await;
    stage.watch.payloads_away.store(true, Ordering::SeqCst);
    for round in 1..=3 * DEQUEUE_COUNT_MAX {
        let plain = stage.accepted(std::iter::once((10_000 + u128::from(round), account(1)))).await;
        stage.send(&Envelope::of(plain, None).encode()).await;
        stage.round().await;
        assert_eq!(stage.balance().await, format!("{round}.00"), "what stands in its message goes on");
    }
    assert_eq!((stage.depth().await, stage.letters().await.len()), (1, 0));
    stage.watch.payloads_away.store(false, Ordering::SeqCst);
    let message = stage.receive().await.remove(0);
    let Ok(Body::Claim(claim)) = Body::decode(&message.body) else { panic!("it is still a claim") };
    assert_eq!((message.dequeue_count, claim.forgiven), (7, 6));
    stage.world.advance(VISIBILITY * 2);
    stage.round().await;
    assert_eq!(stage.balance().await, "706.00");
    assert_eq!((stage.depth().await, stage.payload_count().await), (0, 0));
}

#[tokio::test]
async fn a_payload_that_cannot_be_removed_is_left_to_the_sweep() {
    let stage = Stage::new().await;
    let work = stage.many().await;
    stage.send_claim(work).await;
    let message = stage.receive().await.remove(0);
    let content = stage.posting.read(&message).await;
    stage.watch.payloads_away.store(true, Ordering::SeqCst);
    let _ = stage.posting.handle(&queue(), vec![Delivery::new(message, content)]).await;
    assert_eq!(stage.balance().await, "700.00");
    assert_eq!((stage.depth().await, stage.payload_count().await), (0, 1));
}

#[tokio::test]
async fn a_damaged_payload_is_for_a_person() {
    let stage = Stage::new().await;
    stage.store.payloads.put("work-7", b"neither gzip nor work").await.unwrap();
    let body = Claim::on("work-7".to_owned()).encode();
    stage.send(&body).await;
    stage.round().await;
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("the payload work-7 is damaged"), "{}", letters[0].reason);
    assert_eq!((letters[0].body.as_slice(), stage.payload_count().await), (body.as_slice(), 1), "it is kept");
    assert_eq!(stage.depth().await, 0);
}

#[tokio::test]
async fn items_that_nobody_can_read_hide_none_of_their_neighbors() {
    let stage = Stage::new().await;
    let work = stage.many().await;
    let body = String::from_utf8(Envelope::of(work, None).encode()).unwrap();
    let strange = body.replacen("deposit", "depot", 300);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut gzip, strange.as_bytes()).unwrap();
    stage.store.payloads.put("work-7", &gzip.finish().unwrap()).await.unwrap();
    stage.send(&Claim::on("work-7".to_owned()).encode()).await;
    stage.round().await;
    stage.round().await;
    assert_eq!(stage.balance().await, "400.00");
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(String::from_utf8(letters[0].body.clone()).unwrap().matches("depot").count(), 300);
    assert_eq!((stage.depth().await, stage.payload_count().await), (0, 0), "all of it is in other places");
}

#[tokio::test]
async fn a_small_rest_moves_into_the_message_and_ends_as_a_letter_with_its_work() {
    let stage = Stage::new().await;
    let mut work = stage.many().await;
    let bad = stage.accepted(std::iter::once((9999, account(99)))).await.remove(0);
    work.insert(350, bad.clone());
    stage.send_claim(work).await;
    stage.round().await;
    assert_eq!((stage.balance().await.as_str(), stage.payload_count().await), ("700.00", 1));
    let message = stage.receive().await.remove(0);
    assert_eq!(Envelope::decode(&message.body).unwrap().items, std::slice::from_ref(&bad));
    for _ in 0..2 * DEQUEUE_COUNT_MAX {
        stage.world.advance(VISIBILITY * 2);
        stage.round().await;
    }
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(Envelope::decode(&letters[0].body).unwrap().items, [bad]);
}

#[tokio::test]
async fn a_large_rest_stays_claimed_as_a_whole() {
    let stage = Stage::new().await;
    let mut work = stage.many().await;
    let bad = stage.accepted((20_000..20_300).map(|number| (number, account(99)))).await;
    work.extend(bad);
    let name = stage.send_claim(work).await;
    stage.round().await;
    assert_eq!((stage.balance().await.as_str(), stage.payload_count().await), ("700.00", 1));
    let message = stage.receive().await.remove(0);
    let Ok(Body::Claim(claim)) = Body::decode(&message.body) else { panic!("it is still a claim") };
    assert_eq!(claim, Claim::on(name));
    // Past its receipts what is not final goes in messages of its own, and the sweep gets the payload.
    stage.world.advance(VISIBILITY * 2);
    stage.round().await;
    assert_eq!((stage.depth().await, stage.payload_count().await), (1000, 1));
    assert_eq!(stage.balance().await, "700.00");
}

#[tokio::test]
async fn a_worker_sweeps_once_a_day() {
    let stage = Stage::new().await;
    let work = stage.many().await;
    stage.send_claim(work.clone()).await;
    stage.round().await;
    let bank = Bank::new(stage.store.clone(), stage.world.clone(), Arc::new(LocalBell::default()), 1);
    let sweeping = Sweeping::new(&bank);
    let orphan =
        ClaimCheck::new(&stage.store, stage.world.clone()).put(Envelope::of(work, None)).await.unwrap();
    assert!(orphan.payload.is_some() && stage.payload_count().await == 1);
    stage.world.advance(Duration::from_secs(3600));
    assert!(sweeping.is_due(), "within the first hour");
    sweeping.run().await;
    assert_eq!((sweeping.is_due(), stage.payload_count().await), (false, 1), "it is too young");
    stage.world.advance(Duration::from_secs(24 * 3600 - 1));
    assert!(!sweeping.is_due());
    stage.world.advance(Duration::from_secs(1));
    assert!(sweeping.is_due());
    sweeping.run().await;
    assert_eq!(stage.payload_count().await, 0);
}
