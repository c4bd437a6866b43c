//! The worker over the memory adapter: what becomes of messages when work, ledger or process fail.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "test code"
)]

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::adapters::bell::LocalBell;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::domain::account::{Account, Revision, Versioned};
use postonce_shared::domain::decision::{AccountCommit, Work};
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, TransactionKey, UserId};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::money::{Amount, Currency, OverdraftLimit};
use postonce_shared::envelope::{self, Envelope};
use postonce_shared::ports::dead_letters::DeadLetter;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{
    AcceptOutcome, Committed, Ledger, Marks, NewTransaction, StoredTransaction,
};
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::World;
use postonce_worker::drain::{DrainStarter, drain};
use postonce_worker::meter::Meter;
use postonce_worker::receivers::Bounds;
use postonce_worker::worker::{Worker, WorkerConfig};
use tokio::task::JoinHandle;
use uuid::Uuid;

const DEQUEUE_COUNT_MAX: u32 = 2;
const VISIBILITY: Duration = Duration::from_millis(400);
const DEADLINE: Duration = Duration::from_secs(30);

fn account(number: u128) -> AccountKey {
    let user = UserId::from_uuid(Uuid::from_u128(1));
    AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(number)) }
}

fn deposit() -> Instruction {
    let amount = Amount::parse("1.00", Currency::parse("EUR").unwrap()).unwrap();
    Instruction { kind: TransactionKind::Deposit, amount, details: Details::default() }
}

fn queue() -> QueueName {
    envelope::queues(1)[0].clone()
}

/// A ledger that can be switched off, and that can be slow.
struct SwitchedLedger {
    inner: Arc<dyn Ledger>,
    away: Arc<AtomicBool>,
    probes: Arc<AtomicU32>,
    slow: Option<Duration>,
}

impl SwitchedLedger {
    fn check(&self) -> Result<(), StoreFault> {
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreFault::Unavailable { doing: "testing", source: "switched off".into() });
        }
        Ok(())
    }
}

#[async_trait]
impl Ledger for SwitchedLedger {
    async fn accept(&self, group: &[NewTransaction]) -> Result<Vec<AcceptOutcome>, StoreFault> {
        self.inner.accept(group).await
    }
    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.check()?;
        if let Some(slow) = self.slow {
            tokio::time::timeout(slow, std::future::pending::<()>()).await.unwrap_err();
        }
        self.inner.commit(commit).await
    }
    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        self.check()?;
        self.inner.account(key).await
    }
    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        self.check()?;
        self.inner.transaction(key).await
    }
    async fn mark(
        &self,
        key: &TransactionKey,
        at: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        self.check()?;
        self.inner.mark(key, at, marks).await
    }
    async fn probe(&self) -> Result<(), StoreFault> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        self.check()
    }
}

struct Stage {
    store: MemoryStore,
    world: Arc<dyn World>,
    away: Arc<AtomicBool>,
    probes: Arc<AtomicU32>,
}

struct Running {
    task: JoinHandle<()>,
    starter: DrainStarter,
    meter: Arc<Meter>,
}

impl Running {
    async fn drain(self) {
        self.starter.start();
        tokio::time::timeout(DEADLINE, self.task).await.expect("drains in time").unwrap();
    }
}

impl Stage {
    async fn new() -> Self {
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        let stage = Self {
            store: MemoryStore::empty(Arc::clone(&world)),
            world,
            away: Arc::default(),
            probes: Arc::default(),
        };
        let eur = Currency::parse("EUR").unwrap();
        for number in 1..=3 {
            let new = Account::open(account(number), eur, OverdraftLimit::none(eur), None, stage.world.now());
            let _ = stage.store.ports().accounts.open(&new).await.unwrap();
        }
        stage
    }

    fn process(&self, slow: Option<Duration>) -> Bank {
        let mut store = self.store.ports();
        let inner = Arc::clone(&store.ledger);
        let (away, probes) = (Arc::clone(&self.away), Arc::clone(&self.probes));
        store.ledger = Arc::new(SwitchedLedger { inner, away, probes, slow });
        Bank::new(store, Arc::clone(&self.world), Arc::new(LocalBell::default()), 1)
    }

    fn worker(&self) -> Running {
        self.worker_over(self.process(None))
    }

    fn worker_over(&self, bank: Bank) -> Running {
        let (starter, drain) = drain();
        let meter = Arc::new(Meter::default());
        let config = WorkerConfig {
            visibility_timeout: VISIBILITY,
            dequeue_count_max: DEQUEUE_COUNT_MAX,
            idle_delay_max: Duration::from_millis(100),
            receivers: Bounds { floor: NonZeroUsize::MIN, ceiling: NonZeroUsize::MIN },
            legacy_partner: None,
            held: false,
        };
        let counted = Arc::clone(&meter);
        let task = tokio::spawn(async move { Worker::new(&bank, config, counted).run(&drain).await });
        Running { task, starter, meter }
    }

    async fn accept(&self, account: AccountKey, message: u128) -> Work {
        let key = key(account, message);
        let new = NewTransaction {
            key: key.clone(),
            instruction: deposit(),
            accepted_at: self.world.now(),
            nonce: postonce_shared::domain::ids::Nonce::from_uuid(Uuid::from_u128(message)),
        };
        let ledger = self.store.ports().ledger;
        let _ = ledger.accept(&[new]).await.unwrap();
        ledger.transaction(&key).await.unwrap().unwrap().work().unwrap()
    }

    async fn send(&self, items: Vec<Work>) {
        self.send_body(&Envelope::of(items, None).encode()).await;
    }

    async fn send_body(&self, body: &[u8]) {
        self.store.ports().queue.send(&queue(), body, Duration::ZERO).await.unwrap();
    }

    async fn balance(&self, number: u128) -> String {
        self.store.ports().ledger.account(account(number)).await.unwrap().unwrap().value.balance.to_string()
    }

    async fn depth(&self) -> u64 {
        self.store.ports().queue.backlog(&queue()).await.unwrap().depth
    }

    async fn letters(&self) -> Vec<DeadLetter> {
        self.store.ports().dead_letters.list(true, None, 100).await.unwrap().items
    }
}

fn key(account: AccountKey, message: u128) -> TransactionKey {
    let partner = PartnerId::parse("shop").unwrap();
    TransactionKey { account, partner, message: MessageId::from_uuid(Uuid::from_u128(message)) }
}

/// Waits until `probe` says yes.
async fn until(what: &str, mut probe: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    while !probe().await {
        assert!(tokio::time::Instant::now() < deadline, "gave up waiting until {what}");
        looks.tick().await;
    }
}

async fn until_empty(stage: &Stage) {
    until("the queue is empty", async || stage.depth().await == 0).await;
}

#[tokio::test]
async fn the_same_key_in_one_receive_and_one_envelope_posts_once() {
    let stage = Stage::new().await;
    let (one, two) = (stage.accept(account(1), 1).await, stage.accept(account(1), 2).await);
    stage.send(vec![one.clone(), two.clone(), one.clone()]).await;
    stage.send(vec![one.clone()]).await;
    stage.send(vec![one, two]).await;
    let worker = stage.worker();
    until_empty(&stage).await;
    worker.drain().await;
    assert_eq!(stage.balance(1).await, "2.00");
}

#[tokio::test]
async fn an_unreadable_message_is_set_aside_at_once_and_stops_nobody() {
    let stage = Stage::new().await;
    stage.send_body(b"garbage").await;
    let work = stage.accept(account(1), 1).await;
    stage.send(vec![work]).await;
    let worker = stage.worker();
    until_empty(&stage).await;
    worker.drain().await;
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].body.as_slice(), letters[0].dequeue_count), (&b"garbage"[..], 1));
    assert!(letters[0].reason.contains("not an envelope"), "{}", letters[0].reason);
    assert_eq!(stage.balance(1).await, "1.00");
}

#[tokio::test]
async fn a_newer_envelope_waits_and_is_told() {
    let stage = Stage::new().await;
    stage.send_body(br#"{"v":3,"items":"of another shape"}"#).await;
    let worker = stage.worker();
    until("it was seen", async || worker.meter.newer_versions.get() > 0).await;
    worker.drain().await;
    assert_eq!((stage.depth().await, stage.letters().await.len()), (1, 0));
}

#[tokio::test]
async fn one_bad_item_stands_alone_in_the_end_and_drags_nobody_along() {
    let stage = Stage::new().await;
    let mut bad = stage.accept(account(1), 1).await;
    bad.key.account = account(99);
    let (one, two) = (stage.accept(account(1), 2).await, stage.accept(account(2), 3).await);
    stage.send(vec![one, bad.clone(), two]).await;
    let worker = stage.worker();
    until_empty(&stage).await;
    worker.drain().await;
    assert_eq!((stage.balance(1).await, stage.balance(2).await), ("1.00".to_owned(), "1.00".to_owned()));
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(Envelope::decode(&letters[0].body).unwrap().items, [bad]);
    assert!(letters[0].reason.contains("account does not exist"), "{}", letters[0].reason);
}

#[tokio::test]
async fn an_outage_longer_than_all_receipts_makes_no_dead_letters() {
    let stage = Stage::new().await;
    stage.away.store(true, Ordering::SeqCst);
    for message in 0..40 {
        let work = stage.accept(account(1 + message % 3), message).await;
        stage.send(vec![work]).await;
    }
    // Each of these workers burns a receipt of its own before it notices, more often than allowed.
    for _ in 0..=(DEQUEUE_COUNT_MAX * 2) {
        let worker = stage.worker();
        until("the outage was noticed", async || worker.meter.transient_faults.get() > 0).await;
        worker.drain().await;
        let queue_of = stage.store.ports().queue;
        until("the messages are visible again", async || {
            queue_of.backlog(&queue()).await.unwrap().head_inserted_at.is_some()
        })
        .await;
    }
    stage.away.store(false, Ordering::SeqCst);
    let worker = stage.worker();
    until_empty(&stage).await;
    worker.drain().await;
    assert_eq!(stage.letters().await, []);
    assert_eq!(
        [stage.balance(1).await, stage.balance(2).await, stage.balance(3).await],
        ["14.00", "13.00", "13.00"]
    );
}

#[tokio::test]
async fn work_resumes_by_itself_when_the_ledger_comes_back() {
    let stage = Stage::new().await;
    stage.away.store(true, Ordering::SeqCst);
    let work = stage.accept(account(1), 1).await;
    stage.send(vec![work]).await;
    let worker = stage.worker();
    until("the outage was noticed", async || worker.meter.transient_faults.get() > 0).await;
    let received = worker.meter.received.get();
    let later = stage.accept(account(2), 2).await;
    stage.send(vec![later]).await;
    // While the ledger is away nothing is received, so that no receipts are burnt.
    until("several probes were made", async || stage.probes.load(Ordering::SeqCst) >= 4).await;
    assert_eq!(worker.meter.received.get(), received);
    stage.away.store(false, Ordering::SeqCst);
    until_empty(&stage).await;
    worker.drain().await;
    assert_eq!([stage.balance(1).await, stage.balance(2).await], ["1.00", "1.00"]);
}

#[tokio::test]
async fn work_that_takes_longer_than_its_lease_keeps_it() {
    let stage = Stage::new().await;
    let work = stage.accept(account(1), 1).await;
    stage.send(vec![work]).await;
    let slow = stage.worker_over(stage.process(Some(VISIBILITY * 4)));
    let other = stage.worker();
    until_empty(&stage).await;
    assert_eq!(other.meter.received.get() + slow.meter.received.get(), 1, "nobody else received it");
    assert_eq!(slow.meter.leases_lost.get() + other.meter.leases_lost.get(), 0);
    slow.drain().await;
    other.drain().await;
    assert_eq!(stage.balance(1).await, "1.00");
}

#[tokio::test]
async fn a_message_that_ends_its_workers_is_set_aside() {
    let stage = Stage::new().await;
    let (one, two) = (stage.accept(account(1), 1).await, stage.accept(account(2), 2).await);
    stage.send(vec![one, two]).await;
    // Workers that died over it: received, never settled.
    let queue_port = stage.store.ports().queue;
    for _ in 0..DEQUEUE_COUNT_MAX {
        let received = queue_port.receive(&queue(), 32, Duration::ZERO).await.unwrap();
        assert_eq!(received.len(), 1);
    }
    let worker = stage.worker();
    until_empty(&stage).await;
    assert_eq!(worker.meter.splits.get(), 1);
    worker.drain().await;
    // Alone, each of them was harmless.
    assert_eq!([stage.balance(1).await, stage.balance(2).await], ["1.00", "1.00"]);

    // Now one over whom the workers died although nothing else was in their hands.
    let alone = stage.accept(account(3), 3).await;
    let mut envelope = Envelope::of(vec![alone], None);
    envelope.suspect = DEQUEUE_COUNT_MAX;
    stage.send_body(&envelope.encode()).await;
    for _ in 0..DEQUEUE_COUNT_MAX {
        let _ = queue_port.receive(&queue(), 32, Duration::ZERO).await.unwrap();
    }
    let worker = stage.worker();
    until_empty(&stage).await;
    worker.drain().await;
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("none ended"), "{}", letters[0].reason);
    assert_eq!(stage.balance(3).await, "0.00");
}

#[tokio::test]
async fn two_workers_share_a_backlog_and_post_everything_once() {
    let stage = Stage::new().await;
    let mut keys = BTreeSet::new();
    for message in 0..300 {
        let work = stage.accept(account(1 + message % 3), message).await;
        keys.insert(work.key.clone());
        stage.send(vec![work.clone()]).await;
        if message % 5 == 0 {
            stage.send(vec![work]).await;
        }
    }
    let (one, two) = (stage.worker(), stage.worker());
    until_empty(&stage).await;
    one.drain().await;
    two.drain().await;
    assert_eq!(
        [stage.balance(1).await, stage.balance(2).await, stage.balance(3).await],
        ["100.00", "100.00", "100.00"]
    );
    assert_eq!(stage.letters().await, []);
}
