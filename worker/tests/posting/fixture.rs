//! One store with one queue and three open accounts, and workers over it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use postonce_process::drain::{DrainStarter, drain};
use postonce_process::meter::Meter;
use postonce_shared::cluster::attempts::{Attempt, Attempts};
use postonce_shared::config::{AnchorTerms, HttpLimits, ReceiversRule};
use postonce_shared::domain::decision::Submission;
use postonce_shared::messaging::envelope::{self, Body, Content, Envelope};
use postonce_shared::oversight::scrubber::ScrubberTerms;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;
use postonce_shared::testing::registered::{count_as_registered, count_as_released, entry};
use postonce_worker::config::{Bounds, IdleDelays, WorkerConfig};
use postonce_worker::listening::delivery::{Delivery, DeliveryError};
use postonce_worker::listening::handler::{Handler as _, Health};
use postonce_worker::listening::lone_attempts::ATTEMPTS_MIN;
use postonce_worker::listening::settler::{Settler, SettlerParts};
use postonce_worker::posting::posting_handler::PostingHandler;
use postonce_worker::posting::settle::Settlement;
use postonce_worker::worker::Worker;
use tokio::task::JoinHandle;
use uuid::Uuid;

pub const DEQUEUE_COUNT_MAX: u32 = 2;
/// Longest wait of a test.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Visibility timeout of workers over the system clock.
pub const VISIBILITY: Duration = Duration::from_millis(400);

pub fn account(number: u128) -> AccountKey {
    let user = UserId::from_uuid(Uuid::from_u128(1));
    AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(number)) }
}

/// An instruction over one euro.
pub fn instruction(kind: TransactionKind) -> Instruction {
    let amount = Amount::parse("1.00", Currency::parse("EUR").unwrap()).unwrap();
    Instruction { kind, amount, details: Details::default() }
}

pub fn queue() -> QueueName {
    envelope::queues(1)[0].clone()
}

pub fn outage() -> StoreFault {
    StoreFault::Unavailable { doing: "testing", source: "switched off".into() }
}

pub fn opened(message: Message) -> Delivery<Envelope> {
    let content = match Body::decode(&message.body, &seal()) {
        Ok(Body::Content(Content::Work(envelope))) => Ok(envelope),
        Ok(other) => panic!("not work: {other:?}"),
        Err(unreadable) => Err(DeliveryError::from(unreadable)),
    };
    Delivery::new(message, content)
}

pub fn config(visibility_timeout: Duration) -> WorkerConfig {
    WorkerConfig {
        visibility_timeout,
        dequeue_count_max: DEQUEUE_COUNT_MAX,
        idle_delays: IdleDelays::fixed(Duration::from_millis(100)),
        receivers: Bounds { floor: NonZeroUsize::MIN, ceiling: NonZeroUsize::MIN },
        receivers_rule: ReceiversRule::Adaptive,
        ingest: Vec::new(),
        request_rate: HttpLimits::default().rate(),
        scrubber: ScrubberTerms { operations_per_day: 0, delay: Duration::from_secs(30) },
        anchors: AnchorTerms::default(),
        held: false,
    }
}

/// Handles and settles deliveries, as a session does.
pub async fn handle(posting: &PostingHandler, deliveries: Vec<Delivery<Envelope>>) -> Health {
    let (posted, _) = posting.handle(&queue(), deliveries).await;
    posting.settle(&queue(), posted).await.health
}

/// Reads messages, then handles and settles them, as a session does.
pub async fn read_and_handle(posting: &PostingHandler, messages: Vec<Message>) -> Health {
    let mut deliveries = Vec::new();
    for message in messages {
        let content = posting.read(&message).await;
        deliveries.push(Delivery::new(message, content));
    }
    handle(posting, deliveries).await
}

/// What the messages of the queue of the tests are settled with.
pub struct Settling {
    name: QueueName,
    pub parts: SettlerParts,
    pub ledger: Arc<dyn Ledger>,
    claims: ClaimCheck,
    seal: Seal,
}

impl Settling {
    pub fn of(bank: &Bank) -> Self {
        Self {
            name: queue(),
            parts: SettlerParts::of(bank, &Arc::default()),
            ledger: Arc::clone(&bank.store.ledger),
            claims: ClaimCheck::new(&bank.store, &bank.seal, Arc::clone(&bank.world)),
            seal: bank.seal.clone(),
        }
    }

    pub fn settlement(&self) -> Settlement<'_> {
        let settler = Settler::new(&self.name, &self.parts);
        Settlement { settler, ledger: &self.ledger, claims: &self.claims, seal: &self.seal }
    }
}

/// Waits until `probe` returns true; `condition` names it in the panic.
pub async fn until(condition: &str, mut probe: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let mut interval = tokio::time::interval(Duration::from_millis(5));
    while !probe().await {
        assert!(tokio::time::Instant::now() < deadline, "deadline passed before {condition}");
        interval.tick().await;
    }
}

/// A store with three open accounts, and its world.
pub struct Fixture<W> {
    pub store: Store,
    pub world: Arc<W>,
}

/// A running worker.
pub struct RunningWorker {
    task: JoinHandle<()>,
    starter: DrainStarter,
    pub meter: Arc<Meter>,
}

impl RunningWorker {
    pub async fn drain(self) {
        self.starter.start();
        tokio::time::timeout(DEADLINE, self.task).await.expect("drains before the deadline").unwrap();
    }
}

impl Fixture<SystemWorld> {
    /// The clock is the system's.
    pub async fn new() -> Self {
        Self::over(Arc::default(), |_| {}).await
    }
}

impl Fixture<TestWorld> {
    /// Receives and handles messages as a session does, then advances the clock past their visibility timeout.
    pub async fn handle_next(&self, posting: &PostingHandler, visibility: Duration) {
        let _ = read_and_handle(posting, self.receive(visibility).await).await;
        self.world.advance(visibility + Duration::from_secs(1));
    }

    /// The clock stands still until a test advances it.
    pub async fn with_still_clock() -> Self {
        Self::with_still_clock_over(|_| {}).await
    }

    /// The same, over a store that `decorate` changes for all users.
    pub async fn with_still_clock_over(decorate: impl FnOnce(&mut Store)) -> Self {
        Self::over(Arc::new(TestWorld::new(1)), decorate).await
    }
}

impl<W: World + 'static> Fixture<W> {
    async fn over(world: Arc<W>, decorate: impl FnOnce(&mut Store)) -> Self {
        let mut store = MemoryStore::new(world.clone());
        decorate(&mut store);
        let eur = Currency::parse("EUR").unwrap();
        for number in 1..=3 {
            let new = Account::open(account(number), eur, OverdraftLimit::none(eur), None, world.now());
            let _ = store.accounts.open(&opening(new)).await.unwrap();
        }
        Self { store, world }
    }

    pub fn bank(&self) -> Bank {
        self.bank_over(|_| {})
    }

    /// A bank over a store that `decorate` changes for this bank only.
    pub fn bank_over(&self, decorate: impl FnOnce(&mut Store)) -> Bank {
        let mut store = self.store.clone();
        decorate(&mut store);
        let bank = Bank::new(store, self.world.clone(), Arc::new(LocalDoorbell::default()), seal(), 1);
        count_as_registered(&bank);
        count_as_released(&bank);
        bank
    }

    pub fn worker(&self) -> RunningWorker {
        self.worker_over(|_| {})
    }

    pub fn worker_over(&self, decorate: impl FnOnce(&mut Store)) -> RunningWorker {
        let bank = self.bank_over(decorate);
        let (starter, drain) = drain();
        let meter = Arc::new(Meter::default());
        let worker = Worker::new(&bank, config(VISIBILITY), Arc::clone(&meter));
        let task = tokio::spawn(async move { worker.run(&drain).await });
        RunningWorker { task, starter, meter }
    }

    /// Accepts a deposit of one euro.
    pub async fn accept(&self, account: AccountKey, message: u128) -> Work {
        self.accept_as(instruction(TransactionKind::Deposit), account, message).await
    }

    pub async fn accept_as(&self, instruction: Instruction, account: AccountKey, message: u128) -> Work {
        let message = Uuid::from_u128(message);
        let partner = PartnerId::parse("shop").unwrap();
        let key = TransactionKey { account, partner, message: MessageId::from_uuid(message) };
        let accepted_at = self.world.now();
        let origin = Origin::default();
        let new = Submission { key: key.clone(), instruction, accepted_at, origin, batch_line: None };
        let _ = self.store.ledger.accept(&[new], fresh_nonce()).await.unwrap();
        self.store.ledger.transaction(&key).await.unwrap().unwrap().work().unwrap()
    }

    /// Accepts a deposit and sends it in its own message.
    pub async fn submit(&self, number: u128, message: u128) -> Work {
        let work = self.accept(account(number), message).await;
        self.send(vec![work.clone()]).await;
        work
    }

    pub async fn send(&self, items: Vec<Work>) {
        self.send_body(&Envelope::of(items).encode(&seal())).await;
    }

    /// Attempts of processes that ended during them.
    pub async fn ended_attempts(&self) -> Attempts {
        let mut attempts = Attempts::NONE;
        for _ in 0..ATTEMPTS_MIN {
            let next_by = self.world.now().before(Duration::from_secs(3600));
            let ended = RegisteredProcess { next_by, ..entry(&self.bank()) };
            self.store.process_registry.announce(&ended).await.unwrap();
            attempts = attempts.with(Attempt { process: ended.id, attempts_survived: 0 });
        }
        attempts
    }

    pub async fn send_body(&self, body: &[u8]) {
        self.store.queue.send(&queue(), body, Duration::ZERO).await.unwrap();
    }

    pub async fn receive(&self, visibility: Duration) -> Vec<Message> {
        self.store.queue.receive(&queue(), 32, visibility).await.unwrap()
    }

    pub async fn balance(&self, number: u128) -> String {
        self.store.ledger.account(account(number)).await.unwrap().unwrap().value.balance.to_string()
    }

    pub async fn depth(&self) -> u64 {
        self.store.queue.backlog(&queue()).await.unwrap().depth
    }

    pub async fn until_empty(&self) {
        until("the queue is empty", async || self.depth().await == 0).await;
    }

    pub async fn dead_letters(&self) -> Vec<DeadLetter> {
        self.store.dead_letters.list(true, None, 100).await.unwrap().items
    }

    /// The accounts of the work in the dead letters.
    pub async fn dead_letter_accounts(&self) -> Vec<AccountKey> {
        let first = |letter: &DeadLetter| envelope_in(&letter.body).items[0].submission.key.account;
        self.dead_letters().await.iter().map(first).collect()
    }
}
