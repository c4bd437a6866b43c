//! What becomes of a message, step by step: the order of the steps, and what each of them leaves.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::adapters::bell::LocalBell;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::memory::world::TestWorld;
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
use postonce_worker::drain::drain;
use postonce_worker::meter::Meter;
use postonce_worker::receivers::Bounds;
use postonce_worker::settle::Settlement;
use postonce_worker::worker::{Worker, WorkerConfig};
use uuid::Uuid;

const VISIBILITY: Duration = Duration::from_secs(20);

fn account() -> AccountKey {
    let uuid = Uuid::from_u128;
    AccountKey { user: UserId::from_uuid(uuid(1)), account: AccountId::from_uuid(uuid(2)) }
}

fn queue() -> QueueName {
    envelope::queues(1)[0].clone()
}

fn opened(message: Message) -> Delivery<Envelope> {
    let content = Envelope::decode(&message.body).map_err(Unopened::from);
    Delivery::new(message, content)
}

struct Stage {
    world: Arc<TestWorld>,
    store: Store,
}

impl Stage {
    async fn new() -> Self {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let eur = Currency::parse("EUR").unwrap();
        let new = Account::open(account(), eur, OverdraftLimit::none(eur), None, world.now());
        let _ = store.accounts.open(&new).await.unwrap();
        Self { world, store }
    }

    fn bank(&self) -> Bank {
        let bell = Arc::new(LocalBell::default());
        Bank::new(self.store.clone(), self.world.clone(), bell, 1)
    }

    fn settlement(&self) -> Settlement {
        let bank = self.bank();
        Settlement {
            name: queue(),
            queue: Arc::clone(&self.store.queue),
            ledger: Arc::clone(&self.store.ledger),
            office: Arc::clone(&bank.dead_letter_office),
            claims: ClaimCheck::new(&self.store, self.world.clone()),
            world: self.world.clone(),
            meter: Arc::default(),
            back_in: Mutex::default(),
        }
    }

    async fn accept(&self, kind: TransactionKind, message: u128) -> Work {
        let partner = PartnerId::parse("shop").unwrap();
        let message = Uuid::from_u128(message);
        let key = TransactionKey { account: account(), partner, message: MessageId::from_uuid(message) };
        let amount = Amount::parse("1.00", Currency::parse("EUR").unwrap()).unwrap();
        let instruction = Instruction { kind, amount, details: Details::default() };
        let (accepted_at, nonce) = (self.world.now(), Nonce::from_uuid(message));
        let new = NewTransaction { key: key.clone(), instruction, accepted_at, nonce };
        let _ = self.store.ledger.accept(&[new]).await.unwrap();
        self.store.ledger.transaction(&key).await.unwrap().unwrap().work().unwrap()
    }

    async fn send(&self, items: Vec<Work>) {
        self.store.queue.send(&queue(), &Envelope::of(items, None).encode(), Duration::ZERO).await.unwrap();
    }

    async fn receive(&self) -> Vec<Message> {
        self.store.queue.receive(&queue(), 32, VISIBILITY).await.unwrap()
    }

    /// A message with an accepted deposit, received.
    async fn delivery(&self) -> (Delivery<Envelope>, Work) {
        let work = self.accept(TransactionKind::Deposit, 7).await;
        self.send(vec![work.clone()]).await;
        (opened(self.receive().await.remove(0)), work)
    }

    async fn depth(&self) -> u64 {
        self.store.queue.backlog(&queue()).await.unwrap().depth
    }

    async fn letters(&self) -> usize {
        self.store.dead_letters.list(true, None, 100).await.unwrap().items.len()
    }
}

fn dead(item: &Work) -> Disposition {
    Disposition::DeadLetter { item: Box::new(item.clone()), reason: "too often".to_owned() }
}

fn outage() -> StoreFault {
    StoreFault::Unavailable { doing: "testing", source: "timeout".into() }
}

/// A queue that refuses to send, and notes how many dead letters there are when it is asked to delete.
struct WatchedQueue {
    store: Store,
    inner: Arc<dyn WorkQueue>,
    letters_at_delete: Mutex<Vec<usize>>,
}

#[async_trait]
impl WorkQueue for WatchedQueue {
    async fn send(&self, _: &QueueName, _: &[u8], _: Duration) -> Result<(), StoreFault> {
        Err(outage())
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        hidden: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
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
        let letters = self.store.dead_letters.list(true, None, 100).await?.items.len();
        self.letters_at_delete.lock().unwrap().push(letters);
        self.inner.delete(queue, lease).await
    }

    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        self.inner.backlog(queue).await
    }
}

fn watched(stage: &Stage) -> Arc<WatchedQueue> {
    let (store, inner) = (stage.store.clone(), Arc::clone(&stage.store.queue));
    Arc::new(WatchedQueue { store, inner, letters_at_delete: Mutex::default() })
}

#[tokio::test]
async fn a_letter_is_written_before_its_message_is_deleted() {
    let stage = Stage::new().await;
    let (delivery, work) = stage.delivery().await;
    let watched = watched(&stage);
    let settlement = Settlement { queue: watched.clone(), ..stage.settlement() };
    assert!(settlement.apply(&delivery, dead(&work)).await);
    assert_eq!(*watched.letters_at_delete.lock().unwrap(), [1]);
    assert_eq!(stage.depth().await, 0);
}

#[tokio::test]
async fn an_envelope_that_could_not_be_taken_apart_stays_whole() {
    let stage = Stage::new().await;
    let (delivery, work) = stage.delivery().await;
    let settlement = Settlement { queue: watched(&stage), ..stage.settlement() };
    let split = Disposition::Split { rest: vec![work.clone(), work] };
    assert!(!settlement.apply(&delivery, split).await);
    assert_eq!(stage.depth().await, 1);
}

#[tokio::test]
async fn what_became_final_meanwhile_is_deleted_and_not_set_aside() {
    let stage = Stage::new().await;
    let (delivery, work) = stage.delivery().await;
    assert!(stage.bank().poster.post(account(), vec![work.clone()]).await[0].1.is_ok());
    assert!(stage.settlement().apply(&delivery, dead(&work)).await);
    assert_eq!((stage.letters().await, stage.depth().await), (0, 0));
}

/// A ledger that cannot be read now.
struct AwayLedger(Arc<dyn Ledger>);

#[async_trait]
impl Ledger for AwayLedger {
    async fn accept(&self, group: &[NewTransaction]) -> Result<Vec<AcceptOutcome>, StoreFault> {
        self.0.accept(group).await
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.0.commit(commit).await
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        self.0.account(key).await
    }

    async fn transaction(&self, _: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        Err(outage())
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        at: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        self.0.mark(key, at, marks).await
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.0.probe().await
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_now_makes_no_dead_letter() {
    let stage = Stage::new().await;
    let (delivery, work) = stage.delivery().await;
    let ledger = Arc::new(AwayLedger(Arc::clone(&stage.store.ledger)));
    let settlement = Settlement { ledger, ..stage.settlement() };
    assert!(!settlement.apply(&delivery, dead(&work)).await);
    assert_eq!((stage.letters().await, stage.depth().await), (0, 1));
    stage.world.advance(VISIBILITY);
    assert_eq!(opened(stage.receive().await.remove(0)).receipts(), 1, "that receipt was forgiven");
}

#[tokio::test]
async fn a_message_that_is_tried_again_waits_and_its_forgiven_receipts_add_up() {
    let stage = Stage::new().await;
    let (first, work) = stage.delivery().await;
    let later = |rest: &Work| Disposition::RetryLater { rest: vec![rest.clone()], forgive: true };
    let _ = stage.settlement().apply(&first, later(&work)).await;
    assert_eq!(stage.receive().await, [], "it waits");
    stage.world.advance(VISIBILITY);
    let second = opened(stage.receive().await.remove(0));
    // A renewal in between: only the newest lease counts.
    let renewed = second.renew(&*stage.store.queue, &queue(), VISIBILITY).await.unwrap();
    assert_eq!(renewed, Held::Ours(()));
    let _ = stage.settlement().apply(&second, later(&work)).await;
    stage.world.advance(VISIBILITY);
    let third = opened(stage.receive().await.remove(0));
    assert_eq!((third.message.dequeue_count, third.receipts()), (3, 1));
    assert_eq!(third.items(), [work]);
}

#[tokio::test]
async fn a_renewal_and_the_wait_for_a_newer_worker_leave_the_body_as_it_was() {
    let stage = Stage::new().await;
    let body: &[u8] = br#"{"v":3,"items":"of another shape"}"#;
    stage.store.queue.send(&queue(), body, Duration::ZERO).await.unwrap();
    let delivery = opened(stage.receive().await.remove(0));
    let _ = delivery.renew(&*stage.store.queue, &queue(), VISIBILITY).await.unwrap();
    stage.world.advance(VISIBILITY);
    let delivery = opened(stage.receive().await.remove(0));
    assert_eq!(delivery.message.body, body);
    let why = delivery.content.as_ref().unwrap_err();
    assert!(stage.settlement().settle_unopened(&delivery, why).await);
    stage.world.advance(Duration::from_secs(60));
    assert_eq!(stage.receive().await[0].body, body);
}

#[tokio::test]
async fn work_is_posted_in_the_order_in_which_it_came() {
    let stage = Stage::new().await;
    // The deposit came first, and its key is the later one.
    let (pay_in, pay_out) = (TransactionKind::Deposit, TransactionKind::Withdrawal);
    let first = stage.accept(pay_in, 9).await;
    let second = stage.accept(pay_out, 1).await;
    stage.send(vec![first]).await;
    stage.send(vec![second]).await;
    let (starter, drain) = drain();
    let (bank, meter) = (stage.bank(), Arc::new(Meter::default()));
    let config = WorkerConfig {
        visibility_timeout: VISIBILITY,
        dequeue_count_max: 2,
        idle_delay_max: Duration::from_millis(100),
        receivers: Bounds { floor: NonZeroUsize::MIN, ceiling: NonZeroUsize::MIN },
        legacy_partner: None,
        held: false,
    };
    let posted = async {
        while stage.depth().await > 0 {
            tokio::task::yield_now().await;
        }
        starter.start();
    };
    let both = async { futures::join!(Worker::new(&bank, config, meter).run(&drain), posted) };
    tokio::time::timeout(VISIBILITY, both).await.unwrap();
    let account = stage.store.ledger.account(account()).await.unwrap().unwrap().value;
    assert_eq!((account.balance.is_zero(), account.sequence), (true, 2), "both are posted");
    let register =
        postonce_shared::order_numbers::OrderNumbers::new(stage.store.sync.clone(), stage.world.clone())
            .register()
            .await
            .unwrap();
    assert!(register.returned > 0, "unused numbers went back at the end of the drain");
}
