//! A store over the fake service, a world whose waits end at once, an account, and transactions of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::domain::decision::{Pending, Submission};
use postonce_shared::testing::decorators::WorldDecorator;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;
use tokio::net::TcpListener;
use uuid::Uuid;

use postonce_tests::fake_storage::FakeStorage;

/// A world over the system clock whose waits end at once and only advance its clock.
#[derive(Default)]
pub struct QuickWorld {
    real: SystemWorld,
    pauses: Mutex<Vec<Duration>>,
    /// Time that passes at each reading of the clock.
    step: Mutex<Duration>,
    passed: Mutex<Duration>,
}

impl QuickWorld {
    pub fn pauses(&self) -> Vec<Duration> {
        self.pauses.lock().clone()
    }

    pub fn advance_at_each_reading(&self, step: Duration) {
        *self.step.lock() = step;
    }

    pub fn uptime_so_far(&self) -> Duration {
        self.pauses.lock().iter().sum()
    }
}

#[async_trait]
impl WorldDecorator for QuickWorld {
    fn inner(&self) -> &dyn World {
        &self.real
    }

    fn uptime(&self) -> Duration {
        let step = *self.step.lock();
        let mut passed = self.passed.lock();
        *passed = passed.saturating_add(step);
        self.uptime_so_far().saturating_add(*passed)
    }

    async fn sleep(&self, duration: Duration) {
        self.pauses.lock().push(duration);
    }
}

/// A store over a service that fails on request.
pub struct Fixture {
    pub fake: FakeStorage,
    pub world: Arc<QuickWorld>,
    pub store: Store,
    pub ledger: Arc<dyn Ledger>,
}

impl Fixture {
    pub fn new() -> Self {
        let (fake, world) = (FakeStorage::start(), Arc::<QuickWorld>::default());
        let store = store_over(&fake, world.clone());
        Self { fake, world, ledger: store.ledger.clone(), store }
    }

    /// A store whose storage is unreachable: its port is closed.
    pub async fn without_storage() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let text = format!(
            "AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:{port};\
             QueueEndpoint=http://127.0.0.1:{port};TableEndpoint=http://127.0.0.1:{port}"
        );
        let config = AzureConfig::new(AzureConnection::parse(&text).unwrap(), "test".to_owned());
        let world = Arc::<QuickWorld>::default();
        let store = azure::open(&config, world.clone()).await.unwrap();
        Self { fake: FakeStorage::start(), world, ledger: store.ledger.clone(), store }
    }

    pub async fn open_account(&self) -> Versioned<Account> {
        let opened = self.store.accounts.open(&opening(account())).await.unwrap();
        self.fake.requests();
        let Opened::Created(account) = opened else { panic!("{opened:?}") };
        account
    }

    /// Accepts a deposit.
    pub async fn accepted(&self, number: u32) -> (Submission, Revision) {
        let new = deposit(number);
        let outcomes = self.ledger.accept(std::slice::from_ref(&new), fresh_nonce()).await.unwrap();
        (new, revision_of(&outcomes[0]))
    }

    /// The number of requests by their kind.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.store.operations.snapshot();
        counts.into_iter().map(|(operation, count)| (operation.name, count)).collect()
    }
}

/// A store over the service.
pub fn store_over(fake: &FakeStorage, world: Arc<dyn World>) -> Store {
    let url = "http://127.0.0.1/bank";
    let text = format!(
        "AccountName=bank;AccountKey=a2V5;BlobEndpoint={url};QueueEndpoint={url};TableEndpoint={url}/"
    );
    let config = AzureConfig::new(AzureConnection::parse(&text).unwrap(), "test".to_owned());
    azure::open_over(&config, world, Arc::new(fake.clone())).unwrap()
}

/// The account of all tests.
pub fn account() -> Account {
    let key = AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(2)),
    };
    Account::open(key, euro(), OverdraftLimit::none(euro()), None, Timestamp::from_unix_ms(1))
}

/// A deposit; its number is also its amount.
pub fn deposit(number: u32) -> Submission {
    let message = MessageId::from_uuid(Uuid::from_u128(u128::from(number)));
    let partner = PartnerId::parse("shop_1").unwrap();
    let amount = Amount::try_new(i64::from(number), euro()).unwrap();
    let kind = TransactionKind::Deposit;
    Submission {
        key: TransactionKey { account: account().key, partner, message },
        instruction: Instruction { kind, amount, details: Details::default() },
        accepted_at: Timestamp::from_unix_ms(7),
        origin: Origin::default(),
        batch_line: None,
    }
}

/// Panics unless all were inserted.
pub fn inserted(outcomes: &[AcceptOutcome]) {
    outcomes.iter().for_each(|outcome| drop(revision_of(outcome)));
}

pub fn revision_of(outcome: &AcceptOutcome) -> Revision {
    let AcceptOutcome::Inserted { revision, enqueued: false } = outcome else { panic!("{outcome:?}") };
    revision.clone()
}

/// A decision that posts the work.
pub fn commit_of(account: &Versioned<Account>, work: &[(&Submission, Revision)]) -> AccountCommit {
    let numbers: Vec<_> = (1..=98).map(OrderNumber::from_counter).collect();
    let pending = work.iter().map(|(new, revision)| {
        Pending::from(Work { submission: (*new).clone(), row: revision.clone(), delivered: None })
    });
    let context = DecisionContext {
        nonce: SystemWorld::new().nonce(),
        now: Timestamp::from_unix_ms(9),
        numbers: &numbers,
    };
    decide(account, pending.collect(), &context)
}

fn euro() -> Currency {
    Currency::parse("EUR").unwrap()
}
