//! Promises that were once broken: each test here failed before the code kept its sentence.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "test code"
)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::adapters::bell::LocalBell;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::claim_check::ClaimCheck;
use postonce_shared::domain::account::{Account, Revision, Versioned};
use postonce_shared::domain::decision::{AccountCommit, Work};
use postonce_shared::domain::ids::{
    AccountId, AccountKey, MessageId, Nonce, PartnerId, TransactionKey, UserId,
};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::money::{Amount, Currency, OverdraftLimit};
use postonce_shared::envelope::{self, Envelope};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{
    AcceptOutcome, Committed, Ledger, Marks, NewTransaction, StoredTransaction,
};
use postonce_shared::ports::queue::{Backlog, Held, Lease, Message, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_worker::delivery::{Delivery, Unopened};
use postonce_worker::disposition::Disposition;
use postonce_worker::drain::{DrainStarter, drain};
use postonce_worker::meter::Meter;
use postonce_worker::receivers::Bounds;
use postonce_worker::settle::Settlement;
use postonce_worker::worker::{Worker, WorkerConfig};
use tokio::task::JoinHandle;
use uuid::Uuid;

const DEQUEUE_COUNT_MAX: u32 = 2;
const VISIBILITY: Duration = Duration::from_millis(400);
const DEADLINE: Duration = Duration::from_secs(20);

fn account(number: u128) -> AccountKey {
    let user = UserId::from_uuid(Uuid::from_u128(1));
    AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(number)) }
}

fn queue() -> QueueName {
    envelope::queues(1)[0].clone()
}

fn opened(message: Message) -> Delivery<Envelope> {
    let content = Envelope::decode(&message.body).map_err(Unopened::from);
    Delivery::new(message, content)
}

struct Stage {
    store: MemoryStore,
    world: Arc<dyn World>,
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
        let stage = Self { store: MemoryStore::empty(Arc::clone(&world)), world };
        let eur = Currency::parse("EUR").unwrap();
        for number in 1..=3 {
            let new = Account::open(account(number), eur, OverdraftLimit::none(eur), None, stage.world.now());
            let _ = stage.store.ports().accounts.open(&new).await.unwrap();
        }
        stage
    }

    fn bank_over(&self, trouble: impl FnOnce(&mut Store)) -> Bank {
        let mut store = self.store.ports();
        trouble(&mut store);
        Bank::new(store, Arc::clone(&self.world), Arc::new(LocalBell::default()), 1)
    }

    fn worker_over(&self, trouble: impl FnOnce(&mut Store)) -> Running {
        let bank = self.bank_over(trouble);
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

    /// Accepts a deposit, and sends it in a message of its own.
    async fn submit(&self, number: u128, message: u128) -> Work {
        let partner = PartnerId::parse("shop").unwrap();
        let message = Uuid::from_u128(message);
        let key =
            TransactionKey { account: account(number), partner, message: MessageId::from_uuid(message) };
        let amount = Amount::parse("1.00", Currency::parse("EUR").unwrap()).unwrap();
        let instruction = Instruction { kind: TransactionKind::Deposit, amount, details: Details::default() };
        let (accepted_at, nonce) = (self.world.now(), Nonce::from_uuid(message));
        let new = NewTransaction { key: key.clone(), instruction, accepted_at, nonce };
        let ports = self.store.ports();
        let _ = ports.ledger.accept(&[new]).await.unwrap();
        let work = ports.ledger.transaction(&key).await.unwrap().unwrap().work().unwrap();
        let body = Envelope::of(vec![work.clone()], None).encode();
        ports.queue.send(&queue(), &body, Duration::ZERO).await.unwrap();
        work
    }

    async fn balance(&self, number: u128) -> String {
        self.store.ports().ledger.account(account(number)).await.unwrap().unwrap().value.balance.to_string()
    }

    async fn depth(&self) -> u64 {
        self.store.ports().queue.backlog(&queue()).await.unwrap().depth
    }

    /// The accounts whose work lies in the dead letters.
    async fn dead(&self) -> Vec<AccountKey> {
        let letters = self.store.ports().dead_letters.list(true, None, 100).await.unwrap().items;
        letters.iter().map(|letter| Envelope::decode(&letter.body).unwrap().items[0].key.account).collect()
    }
}

async fn until(what: &str, mut probe: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    while !probe().await {
        assert!(tokio::time::Instant::now() < deadline, "gave up waiting until {what}");
        looks.tick().await;
    }
}

/// A queue whose first receives take place, and whose answers get lost.
struct LossyQueue {
    inner: Arc<dyn WorkQueue>,
    receives_lost: AtomicU32,
}

#[async_trait]
impl WorkQueue for LossyQueue {
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        self.inner.send(queue, body, delay).await
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        hidden: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let lost = &self.receives_lost;
        if lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            // As if the visibility timeout had passed by the next one.
            let _ = self.inner.receive(queue, max, Duration::ZERO).await?;
            return Err(StoreFault::Unavailable { doing: "receiving", source: "timeout".into() });
        }
        self.inner.receive(queue, max, hidden).await
    }

    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        hidden: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        self.inner.extend(queue, lease, body, hidden).await
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        self.inner.delete(queue, lease).await
    }

    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        self.inner.backlog(queue).await
    }
}

#[tokio::test]
async fn receives_whose_answers_were_lost_make_no_dead_letters() {
    let stage = Stage::new().await;
    let _ = stage.submit(1, 1).await;
    let worker = stage.worker_over(|store| {
        let receives_lost = AtomicU32::new(DEQUEUE_COUNT_MAX);
        store.queue = Arc::new(LossyQueue { inner: Arc::clone(&store.queue), receives_lost });
    });
    until("the queue is empty", async || stage.depth().await == 0).await;
    worker.drain().await;
    assert_eq!((stage.dead().await, stage.balance(1).await), (vec![], "1.00".to_owned()));
}

/// A ledger with a bug that shows with one account, and a row that nobody can read.
struct BadLedger {
    inner: Arc<dyn Ledger>,
    panics_at: Option<AccountKey>,
    damaged: Option<TransactionKey>,
}

fn damage() -> StoreFault {
    StoreFault::Corrupt { doing: "reading a row", source: "a damaged row".into() }
}

#[async_trait]
impl Ledger for BadLedger {
    async fn accept(&self, group: &[NewTransaction]) -> Result<Vec<AcceptOutcome>, StoreFault> {
        self.inner.accept(group).await
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        assert!(self.panics_at != Some(commit.account()), "a bug");
        if commit.finalizations.iter().any(|last| Some(&last.key) == self.damaged.as_ref()) {
            return Err(damage());
        }
        self.inner.commit(commit).await
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        self.inner.account(key).await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        if self.damaged.as_ref() == Some(key) {
            return Err(damage());
        }
        self.inner.transaction(key).await
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        at: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        self.inner.mark(key, at, marks).await
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.inner.probe().await
    }
}

#[tokio::test]
async fn a_message_that_makes_its_worker_panic_drags_no_other_message_along() {
    let stage = Stage::new().await;
    for number in 1..=3 {
        let _ = stage.submit(number, number).await;
    }
    let worker = stage.worker_over(|store| {
        let (inner, panics_at) = (Arc::clone(&store.ledger), Some(account(1)));
        store.ledger = Arc::new(BadLedger { inner, panics_at, damaged: None });
    });
    until("the queue is empty", async || stage.depth().await == 0).await;
    worker.drain().await;
    assert_eq!(stage.dead().await, [account(1)]);
    assert_eq!([stage.balance(2).await, stage.balance(3).await], ["1.00", "1.00"]);
}

#[tokio::test]
async fn a_listener_that_fell_over_is_not_counted_twice() {
    let stage = Stage::new().await;
    let _ = stage.submit(1, 1).await;
    let worker = stage.worker_over(|store| {
        let (inner, panics_at) = (Arc::clone(&store.ledger), Some(account(1)));
        store.ledger = Arc::new(BadLedger { inner, panics_at, damaged: None });
    });
    until("the queue is empty", async || stage.depth().await == 0).await;
    assert_eq!(worker.meter.listeners(&queue()).look().max, 1);
    worker.drain().await;
}

#[tokio::test]
async fn a_message_whose_row_nobody_can_read_leaves_the_queue_as_a_dead_letter() {
    let stage = Stage::new().await;
    let damaged = stage.submit(1, 1).await.key;
    let worker = stage.worker_over(|store| {
        let (inner, damaged) = (Arc::clone(&store.ledger), Some(damaged));
        store.ledger = Arc::new(BadLedger { inner, panics_at: None, damaged });
    });
    until("it lies in the dead letters", async || !stage.dead().await.is_empty()).await;
    until("the queue is empty", async || stage.depth().await == 0).await;
    worker.drain().await;
}

#[tokio::test]
async fn who_lost_the_lease_sets_nothing_aside_and_takes_nothing_apart() {
    let stage = Stage::new().await;
    let work = stage.submit(1, 1).await;
    let bank = stage.bank_over(|_| {});
    let received = bank.store.queue.receive(&queue(), 1, Duration::ZERO).await.unwrap().remove(0);
    let delivery = opened(received);
    // Somebody else has it now, and is about to post it.
    let other = bank.store.queue.receive(&queue(), 1, VISIBILITY).await.unwrap();
    assert_eq!(other.len(), 1);
    assert_eq!(delivery.renew(&*bank.store.queue, &queue(), VISIBILITY).await.unwrap(), Held::Lost);
    let settlement = Settlement {
        name: queue(),
        queue: Arc::clone(&bank.store.queue),
        ledger: Arc::clone(&bank.store.ledger),
        office: Arc::clone(&bank.dead_letter_office),
        claims: ClaimCheck::new(&bank.store, Arc::clone(&bank.world)),
        world: Arc::clone(&bank.world),
        meter: Arc::default(),
        back_in: std::sync::Mutex::default(),
    };
    let dead = Disposition::DeadLetter { item: Box::new(work.clone()), reason: "too often".to_owned() };
    let _ = settlement.apply(&delivery, dead).await;
    assert_eq!(stage.dead().await, []);
    let _ = settlement.apply(&delivery, Disposition::Split { rest: vec![work.clone(), work] }).await;
    assert_eq!(stage.depth().await, 1);
}
