//! A store in one file, which the tests open, change from several connections and damage.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;

use postonce_shared::adapters::sqlite::{Enqueue, OpenFault, SqliteStore};
use postonce_shared::domain::decision::{Pending, Submission};
use postonce_shared::messaging::envelope::EncodedItem;
use postonce_shared::testing::decorators::WorldDecorator;
use postonce_shared::testing::prelude::*;

/// Longest time of a test. Everything happens at once, or after the seconds that SQLite waits for a
/// lock.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A world whose clock a test can move.
struct AdjustableWorld {
    system: SystemWorld,
    moved_ms: AtomicI64,
}

#[async_trait]
impl WorldDecorator for AdjustableWorld {
    fn inner(&self) -> &dyn World {
        &self.system
    }

    fn now(&self) -> Timestamp {
        let moved = self.moved_ms.load(Ordering::Relaxed);
        Timestamp::from_unix_ms(self.system.now().unix_ms().saturating_add(moved))
    }
    async fn sleep(&self, duration: Duration) {
        self.system.sleep(duration).await;
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.system.spawn(task);
    }
}

/// A store file in a folder of its own.
pub struct Fixture {
    folder: TempDir,
    world: Arc<AdjustableWorld>,
}

impl Fixture {
    pub fn new() -> Self {
        let world = AdjustableWorld { system: SystemWorld::new(), moved_ms: AtomicI64::new(0) };
        Self { folder: tempfile::tempdir().unwrap(), world: Arc::new(world) }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("data").join("postonce.db")
    }

    pub fn open(&self) -> Store {
        self.open_with(Arc::new(one_message_per_work))
    }

    pub fn open_with(&self, enqueue: Enqueue) -> Store {
        SqliteStore::open(&self.path(), enqueue, self.world.clone()).unwrap()
    }

    pub fn refusal(&self) -> OpenFault {
        match SqliteStore::open(&self.path(), Arc::new(one_message_per_work), self.world.clone()) {
            Ok(_) => panic!("the file was opened"),
            Err(fault) => fault,
        }
    }

    pub fn world(&self) -> &dyn World {
        &*self.world
    }

    pub fn shared_world(&self) -> Arc<dyn World> {
        self.world.clone()
    }

    /// Path of a file beside the folder of the store.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn move_clock(&self, by: Duration) {
        self.world.moved_ms.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    pub fn set_clock_back(&self, by: Duration) {
        self.world.moved_ms.fetch_sub(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Another connection to the same file.
    pub fn sql(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// A deposit of 1.00 EUR.
    pub fn deposit(&self, message: u32) -> Submission {
        let amount = Amount::parse("1.00", Currency::parse("EUR").unwrap()).unwrap();
        Submission {
            key: TransactionKey {
                account: account_key(),
                partner: PartnerId::parse("shop").unwrap(),
                message: MessageId::from_uuid(Uuid::from_u128(u128::from(message))),
            },
            instruction: Instruction { kind: TransactionKind::Deposit, amount, details: Details::default() },
            accepted_at: World::now(&*self.world),
            origin: Origin::default(),
            batch_line: None,
        }
    }

    pub async fn open_account(&self, store: &Store) -> Versioned<Account> {
        let eur = Currency::parse("EUR").unwrap();
        let limit = OverdraftLimit::none(eur);
        let account = Account::open(account_key(), eur, limit, None, World::now(&*self.world));
        match store.accounts.open(&opening(account)).await.unwrap() {
            Opened::Created(account) | Opened::Existing(account) => account,
        }
    }

    /// A decision that posts these accepted transactions, as a worker would make it.
    pub async fn decide(&self, store: &Store, messages: &[u32], first_number: u32) -> AccountCommit {
        let account = store.ledger.account(account_key()).await.unwrap().unwrap();
        let mut work = Vec::new();
        for message in messages {
            let stored = store.ledger.transaction(&self.deposit(*message).key).await.unwrap();
            work.push(Pending::from(stored.unwrap().work().unwrap()));
        }
        let numbers = (u64::from(first_number)..).take(work.len()).map(OrderNumber::from_counter);
        let numbers: Vec<OrderNumber> = numbers.collect();
        let context =
            DecisionContext { nonce: self.world.nonce(), now: World::now(&*self.world), numbers: &numbers };
        decide(&account, work, &context)
    }
}

pub fn account_key() -> AccountKey {
    AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(2)),
    }
}

pub fn work_queue() -> QueueName {
    QueueName::of_partition("work", 0)
}

/// One message for each work item, with its message id as the body.
pub fn one_message_per_work(work: &[&EncodedItem]) -> Vec<(QueueName, Vec<u8>)> {
    work.iter().map(|work| (work_queue(), work.key().message.simple().into_bytes())).collect()
}

/// Runs a test with the deadline.
#[track_caller]
pub fn within_deadline(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let finished = runtime.unwrap().block_on(async { tokio::time::timeout(DEADLINE, test).await });
    assert!(finished.is_ok(), "the test did not end within {DEADLINE:?}");
}

pub fn refused<T>(outcome: &Result<T, StoreFault>) -> bool {
    matches!(outcome, Err(StoreFault::Refused { .. }))
}

pub fn corrupt<T>(outcome: &Result<T, StoreFault>) -> bool {
    matches!(outcome, Err(StoreFault::Corrupt { .. }))
}

pub fn number(sql: &Connection, query: &str) -> i64 {
    sql.query_row(query, [], |row| row.get(0)).unwrap()
}

pub fn journal_mode(fixture: &Fixture) -> String {
    fixture.sql().query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap()
}
