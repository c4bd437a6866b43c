//! One store, several processes, and ports with faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::cluster::contention::NoNotices;
use postonce_shared::cluster::replies::Replies;
use postonce_shared::cluster::reply_to::{ReplySeal, ReplyTo};
use postonce_shared::domain::decision::Submission;
use postonce_shared::messaging::envelope::{self, Envelope};
use postonce_shared::ports::archive::Archive;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

/// One queue, so that a test can receive all messages from it.
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

/// A process whose gate is released, and which sends requests that wait to the queue.
fn draining(bank: Bank) -> Bank {
    count_as_draining(&bank);
    count_as_released(&bank);
    bank
}

/// Counts a process as registered, and applies a released gate to it.
pub fn release_gate(bank: &Bank) {
    count_as_registered(bank);
    count_as_released(bank);
}

/// Applies a value of the gate to a process.
pub fn apply_gate(bank: &Bank, value: GateValue) {
    bank.gate_permits.apply(&bank.gate_permits.begin_read(), &GateRecord { value, ..GateRecord::UNSET });
}

/// A store with an open account in euros, shared by the processes that a test starts.
pub struct Fixture {
    pub store: MemoryStore,
    pub world: Arc<dyn World>,
    replies: Arc<ReplyDelivery>,
    seal: ReplySeal,
}

/// Delivers replies between the processes of a fixture.
struct ReplyDelivery(Mutex<BTreeMap<Address, Arc<Completions>>>, ReplySeal);

impl Replies for ReplyDelivery {
    fn send(&self, to: &ReplyTo, completion: Completion) {
        if let Some(process) = self.0.lock().get(self.1.verify(to).unwrap()) {
            process.complete(&completion.key, &completion.outcome);
        }
    }
}

pub fn address(number: u16) -> Address {
    Address::parse(&format!("http://web-{number}:80")).unwrap()
}

impl Fixture {
    pub async fn new() -> Self {
        Self::in_world(Arc::new(SystemWorld::new())).await
    }

    pub async fn in_world(world: Arc<dyn World>) -> Self {
        Self::over(MemoryStore::empty(Arc::clone(&world)), world).await
    }

    /// A fixture on a store whose ledger checks the order of commits, as SQLite does.
    pub async fn checking_order() -> Self {
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        Self::over(MemoryStore::empty(Arc::clone(&world)).checking_order(), world).await
    }

    pub async fn over(store: MemoryStore, world: Arc<dyn World>) -> Self {
        let keys = DoorbellKeys::parse("the-secret-of-the-fixture").unwrap();
        let seal = ReplySeal::new(&DoorbellSecret::new(Some(&keys)), &world);
        let replies = Arc::new(ReplyDelivery(Mutex::default(), seal.clone()));
        let fixture = Self { store, world, replies, seal };
        let eur = Currency::parse("EUR").unwrap();
        let new = Account::open(account(), eur, OverdraftLimit::none(eur), None, fixture.world.now());
        let _ = fixture.store.ports().accounts.open(&opening(new)).await.unwrap();
        fixture
    }

    /// Adds a process that posts messages, and sends requests that wait to the queue.
    pub fn process(&self) -> Bank {
        self.process_over(|_| {})
    }

    /// As [`Self::process`], over a store that is changed by `decorate`.
    pub fn process_over(&self, decorate: impl FnOnce(&mut Store)) -> Bank {
        draining(self.unregistered_over(decorate))
    }

    /// Adds a process that posts nothing: the others do not find it.
    pub fn unregistered_over(&self, decorate: impl FnOnce(&mut Store)) -> Bank {
        let mut store = self.store.ports();
        decorate(&mut store);
        let bell = Arc::new(LocalDoorbell::default());
        Bank::new(store, Arc::clone(&self.world), bell, seal(), QUEUES)
    }

    /// Adds a process that posts messages and requests that wait, over a store that is changed by `decorate`.
    pub fn registered_over(&self, decorate: impl FnOnce(&mut Store)) -> Bank {
        let bank = self.unregistered_over(decorate);
        release_gate(&bank);
        bank
    }

    /// Adds a process that can receive replies, at the address of that number.
    pub fn linked_process(&self, number: u16, decorate: impl FnOnce(&mut Store)) -> Bank {
        let mut store = self.store.ports();
        decorate(&mut store);
        let doorbell = Arc::new(LocalDoorbell::default());
        let completions: Arc<Completions> = Arc::default();
        completions.set_reply_address(address(number), self.seal.clone());
        self.replies.0.lock().insert(address(number), Arc::clone(&completions));
        let (replies, contention) = (self.replies.clone(), Arc::new(NoNotices));
        let links = Links { doorbell, completions, replies, seal: seal(), contention };
        draining(Bank::linked(store, Arc::clone(&self.world), links, BankSettings::of_queues(QUEUES)))
    }

    /// The address to which an envelope asks for a reply.
    pub fn reply_address(&self, envelope: &Envelope) -> Option<Address> {
        envelope.reply_to.as_ref().map(|to| self.seal.verify(to).unwrap().clone())
    }

    /// From now on all replies are lost.
    pub fn lose_replies(&self) {
        self.replies.0.lock().clear();
    }

    pub async fn account(&self) -> Account {
        self.store.ports().ledger.account(account()).await.unwrap().unwrap().value
    }

    pub async fn stored(&self, message: u128) -> StoredTransaction {
        self.store.ports().ledger.transaction(&key(message)).await.unwrap().unwrap()
    }

    pub async fn outcome(&self, message: u128) -> Option<Outcome> {
        self.stored(message).await.outcome
    }

    /// Accepts a deposit as a process that ends before it sends the message.
    pub async fn forget(&self, message: u128) {
        let new = Submission {
            key: key(message),
            instruction: deposit("1.00"),
            accepted_at: self.world.now(),
            origin: Origin::default(),
            batch_line: None,
        };
        assert_eq!(self.store.ports().ledger.accept(&[new], fresh_nonce()).await.unwrap().len(), 1);
    }

    pub async fn queued(&self) -> u64 {
        self.store.ports().queue.backlog(&queue()).await.unwrap().depth
    }

    /// Deletes all messages of the queue, as if they were lost.
    pub async fn lose_messages(&self) -> usize {
        let ports = self.store.ports();
        let messages = ports.queue.receive(&queue(), 32, Duration::from_secs(60)).await.unwrap();
        for message in &messages {
            assert_eq!(ports.queue.delete(&queue(), &message.lease).await.unwrap(), Held::Ours(()));
        }
        messages.len()
    }

    /// Receives the work of all messages of the queue.
    pub async fn receive(&self) -> Vec<Work> {
        self.receive_envelopes().await.into_iter().flat_map(|envelope| envelope.items).collect()
    }

    /// Receives all messages of the queue, with their envelopes.
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
    bank.acceptor.submit(key(message), instruction, Origin::default(), None).await
}

/// Whether an accepted request is a replay; `None` if it was not accepted.
pub const fn replayed(answer: &Result<Acceptance, AcceptFault>) -> Option<bool> {
    match answer {
        Ok(Acceptance::Accepted(accepted)) => Some(accepted.replayed),
        _ => None,
    }
}

/// The ledger of a new bank.
pub fn empty_ledger() -> Arc<dyn Archive> {
    MemoryStore::new(Arc::new(SystemWorld::new())).archive
}

/// The register of order numbers as a process sees it that issued none.
pub async fn register(sync: &Arc<dyn SyncStore>) -> Register {
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    OrderNumbers::new(Arc::clone(sync), empty_ledger(), world).register().await.unwrap()
}
