//! What the tests act on: one store, several processes, and ports with trouble.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::adapters::local_doorbell::LocalDoorbell;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::{Bank, Links};
use postonce_shared::cluster::completions::{Completion, Completions};
use postonce_shared::cluster::doorbell_secret::{DoorbellKeys, DoorbellSecret};
use postonce_shared::cluster::replies::Replies;
use postonce_shared::cluster::reply_to::{ReplySeal, ReplyTo};
use postonce_shared::domain::account::Account;
use postonce_shared::domain::decision::{AccountCommit, Work};
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, TransactionKey, UserId};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::money::{Amount, Currency, OverdraftLimit};
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::messaging::envelope::{self, Envelope};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{AcceptOutcome, Committed, Ledger, NewTransaction, StoredTransaction};
use postonce_shared::ports::process_registry::Address;
use postonce_shared::ports::queue::{Held, QueueName, WorkQueue};
use postonce_shared::ports::sync_store::SyncStore;
use postonce_shared::ports::world::World;
use postonce_shared::protocol::accept::{AcceptFault, Acceptance};
use postonce_shared::protocol::order_numbers::{OrderNumbers, Register};
use postonce_shared::testing::conformance::sealed::{envelope_in, seal};
use postonce_shared::testing::decorators::{LedgerDecorator, WorkQueueDecorator};
use uuid::Uuid;

/// One queue: the tests look into it.
pub const QUEUES: u16 = 1;

pub fn account() -> AccountKey {
    let uuid = |number| Uuid::from_u128(number);
    AccountKey { user: UserId::from_uuid(uuid(1)), account: AccountId::from_uuid(uuid(2)) }
}

pub fn key(message: u128) -> TransactionKey {
    let partner = PartnerId::parse("shop").unwrap();
    TransactionKey { account: account(), partner, message: MessageId::from_uuid(Uuid::from_u128(message)) }
}

pub fn deposit(amount: &str) -> Instruction {
    instruction(TransactionKind::Deposit, amount, "EUR")
}

pub fn withdrawal(amount: &str) -> Instruction {
    instruction(TransactionKind::Withdrawal, amount, "EUR")
}

pub fn instruction(kind: TransactionKind, amount: &str, code: &str) -> Instruction {
    let amount = Amount::parse(amount, Currency::parse(code).unwrap()).unwrap();
    Instruction { kind, amount, details: Details::default() }
}

/// A store with an open account in euros, shared by as many processes as the test starts.
pub struct Stage {
    pub store: MemoryStore,
    pub world: Arc<dyn World>,
    mail: Arc<Mail>,
    seal: ReplySeal,
}

/// Carries replies from one process of the stage to another.
struct Mail(Mutex<BTreeMap<Address, Arc<Completions>>>, ReplySeal);

impl Replies for Mail {
    fn send(&self, to: &ReplyTo, completion: Completion) {
        if let Some(process) = self.0.lock().unwrap().get(self.1.verify(to).unwrap()) {
            process.complete(&completion.key, &completion.outcome);
        }
    }
}

pub fn address(number: u16) -> Address {
    Address::parse(&format!("http://web-{number}:80")).unwrap()
}

impl Stage {
    pub async fn new() -> Self {
        Self::in_world(Arc::new(SystemWorld::new())).await
    }

    pub async fn in_world(world: Arc<dyn World>) -> Self {
        let keys = DoorbellKeys::parse("the-secret-of-the-stage").unwrap();
        let seal = ReplySeal::new(&Arc::new(DoorbellSecret::new(Some(&keys))), &world);
        let mail = Arc::new(Mail(Mutex::default(), seal.clone()));
        let stage = Self { store: MemoryStore::empty(Arc::clone(&world)), world, mail, seal };
        let eur = Currency::parse("EUR").unwrap();
        let new = Account::open(account(), eur, OverdraftLimit::none(eur), None, stage.world.now());
        let _ = stage.store.ports().accounts.open(&new).await.unwrap();
        stage
    }

    /// One more process.
    pub fn process(&self) -> Bank {
        self.process_over(|_| {})
    }

    /// One more process, with trouble on its way to the store.
    pub fn process_over(&self, trouble: impl FnOnce(&mut Store)) -> Bank {
        let mut store = self.store.ports();
        trouble(&mut store);
        let bell = Arc::new(LocalDoorbell::default());
        Bank::new(store, Arc::clone(&self.world), bell, seal(), QUEUES)
    }

    /// A process that can be replied to, at the address of that number.
    pub fn linked_process(&self, number: u16, trouble: impl FnOnce(&mut Store)) -> Bank {
        let mut store = self.store.ports();
        trouble(&mut store);
        let doorbell = Arc::new(LocalDoorbell::default());
        let completions: Arc<Completions> = Arc::default();
        completions.set_reply_address(address(number), self.seal.clone());
        self.mail.0.lock().unwrap().insert(address(number), Arc::clone(&completions));
        let links = Links { doorbell, completions, replies: self.mail.clone(), seal: seal() };
        Bank::linked(store, Arc::clone(&self.world), links, QUEUES)
    }

    /// The address at which somebody asks for a reply.
    pub fn asked_at(&self, envelope: &Envelope) -> Option<Address> {
        envelope.reply_to.as_ref().map(|to| self.seal.verify(to).unwrap().clone())
    }

    /// From now on no reply arrives anywhere.
    pub fn lose_replies(&self) {
        self.mail.0.lock().unwrap().clear();
    }

    pub async fn account(&self) -> Account {
        self.store.ports().ledger.account(account()).await.unwrap().unwrap().value
    }

    pub async fn stored(&self, message: u128) -> StoredTransaction {
        self.store.ports().ledger.transaction(&key(message)).await.unwrap().unwrap()
    }

    pub async fn outcome(&self, message: u128) -> Option<Outcome> {
        self.stored(message).await.transaction.outcome
    }

    pub async fn queued(&self) -> u64 {
        self.store.ports().queue.backlog(&queue()).await.unwrap().depth
    }

    /// Removes everything that waits in the queue: as when a queue is lost.
    pub async fn lose_messages(&self) -> usize {
        let ports = self.store.ports();
        let messages = ports.queue.receive(&queue(), 32, Duration::from_secs(60)).await.unwrap();
        for message in &messages {
            assert_eq!(ports.queue.delete(&queue(), &message.lease).await.unwrap(), Held::Ours(()));
        }
        messages.len()
    }

    /// Takes everything that waits in the queue.
    pub async fn receive(&self) -> Vec<Work> {
        self.receive_envelopes().await.into_iter().flat_map(|envelope| envelope.items).collect()
    }

    /// The same, with what is around the work.
    pub async fn receive_envelopes(&self) -> Vec<Envelope> {
        let ports = self.store.ports();
        let messages = ports.queue.receive(&queue(), 32, Duration::from_secs(60)).await.unwrap();
        messages.iter().map(|message| envelope_in(&message.body)).collect()
    }
}

pub fn queue() -> QueueName {
    envelope::queues(QUEUES)[0].clone()
}

pub async fn submit(bank: &Bank, message: u128, instruction: Instruction) -> Result<Acceptance, AcceptFault> {
    bank.acceptor.submit(key(message), instruction, None, None).await
}

/// How often something goes wrong before it goes well.
#[derive(Default)]
pub struct Countdown(AtomicU32);

impl Countdown {
    pub fn of(count: u32) -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(count)))
    }

    fn strikes(&self) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

fn timeout() -> StoreFault {
    StoreFault::Unavailable { doing: "talking to the store", source: "timeout".into() }
}

/// A ledger whose answers get lost after the write, or whose writes never arrive.
pub struct TroubledLedger {
    pub inner: Arc<dyn Ledger>,
    pub accept_answers_lost: Arc<Countdown>,
    pub commit_answers_lost: Arc<Countdown>,
    pub commits_lost: Arc<Countdown>,
}

impl TroubledLedger {
    pub fn over(inner: &Arc<dyn Ledger>) -> Self {
        let (accept_answers_lost, commit_answers_lost) = (Countdown::of(0), Countdown::of(0));
        Self {
            inner: Arc::clone(inner),
            accept_answers_lost,
            commit_answers_lost,
            commits_lost: Countdown::of(0),
        }
    }
}

#[async_trait]
impl LedgerDecorator for TroubledLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn accept(&self, group: &[NewTransaction]) -> Result<Vec<AcceptOutcome>, StoreFault> {
        let outcomes = self.inner.accept(group).await?;
        if self.accept_answers_lost.strikes() { Err(timeout()) } else { Ok(outcomes) }
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        if self.commits_lost.strikes() {
            return Err(timeout());
        }
        let committed = self.inner.commit(commit).await?;
        if self.commit_answers_lost.strikes() { Err(timeout()) } else { Ok(committed) }
    }
}

/// A queue whose sends never arrive.
pub struct TroubledQueue {
    pub inner: Arc<dyn WorkQueue>,
    pub sends_lost: Arc<Countdown>,
}

#[async_trait]
impl WorkQueueDecorator for TroubledQueue {
    fn inner(&self) -> &dyn WorkQueue {
        &*self.inner
    }

    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        if self.sends_lost.strikes() { Err(timeout()) } else { self.inner.send(queue, body, delay).await }
    }
}

/// The register of order numbers, as a process that issued none sees it.
pub async fn register(sync: &Arc<dyn SyncStore>) -> Register {
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    OrderNumbers::new(Arc::clone(sync), world).register().await.unwrap()
}
