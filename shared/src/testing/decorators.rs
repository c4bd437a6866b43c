//! Decorators of ports for tests and simulations: they count calls, inject faults, or lose responses.
//!
//! A decorator returns the wrapped port, and overrides the methods that differ. All other methods are forwarded. A type
//! that implements the decorator trait implements the port:
//!
//! ```
//! # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//! # use postonce_shared::testing::decorators::SyncStoreDecorator;
//! # use postonce_shared::domain::account::Versioned;
//! # use postonce_shared::ports::{fault::StoreFault, sync_store::SyncStore};
//! struct CountedReads(Arc<dyn SyncStore>, AtomicU32);
//!
//! #[async_trait::async_trait]
//! impl SyncStoreDecorator for CountedReads {
//!     fn inner(&self) -> &dyn SyncStore {
//!         &*self.0
//!     }
//!
//!     async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
//!         self.1.fetch_add(1, Ordering::Relaxed);
//!         self.0.get(name).await
//!     }
//! }
//! # fn port(counted: CountedReads) -> Arc<dyn SyncStore> { Arc::new(counted) }
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::{AccountCommit, AccountDecision, Submission, UnknownAccountCommit};
use crate::domain::ids::{AccountId, AccountKey, Nonce, OrderNumber, PartnerId, TransactionKey, UserId};
use crate::domain::journal::JournalPage;
use crate::domain::time::Timestamp;
use crate::domain::transaction::TransactionStatus;
use crate::ports::api_keys::{ApiKeyRecord, ApiKeys};
use crate::ports::archive::{Archive, Readable, StoredDecisionPage, StoredPage, StoredRow, UserRange};
use crate::ports::dead_letters::{DeadLetter, DeadLetters, Resolution};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{
    AcceptGrouping, AcceptOutcome, Accounts, Committed, JointSteps, Ledger, Listing, Marks, Opened,
    StoredTransaction, TransactionLog,
};
use crate::ports::order_number_index::{OrderNumberIndex, RecordedNumbers};
use crate::ports::payload_store::{PayloadEntry, PayloadStore};
use crate::ports::process_registry::{ProcessId, ProcessRegistry, RegisteredProcess};
use crate::ports::queue::{Backlog, Held, Lease, Message, QueueName, WorkQueue};
use crate::ports::records::{Collection, Record, Records};
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::World;
use crate::testing::faults::Faulty;

/// Defines the decorator trait of a port: every method is forwarded unless it is overridden.
macro_rules! decorator {
    ($decorator:ident of $port:ident {
        $(sync $sync_method:ident -> $value:ty;)*
        $(fn $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*
    }) => {
        #[doc = concat!("Wraps a [`", stringify!($port), "`]: every method is forwarded unless it is overridden.")]
        #[async_trait]
        pub trait $decorator: Send + Sync {
            /// Returns the wrapped port.
            fn inner(&self) -> &dyn $port;
            $(
                #[doc = concat!("Like [`", stringify!($port), "::", stringify!($sync_method), "`].")]
                fn $sync_method(&self) -> $value {
                    self.inner().$sync_method()
                }
            )*
            $(
                #[doc = concat!("Like [`", stringify!($port), "::", stringify!($method), "`].")]
                async fn $method(&self, $($name: $type),*) -> Result<$answer, StoreFault> {
                    self.inner().$method($($name),*).await
                }
            )*
        }

        impl Faulty<dyn $port> {
            /// The call names by which rules refer to the methods of the port.
            pub(super) const CALLS: &[&str] =
                &[$(concat!(stringify!($port), "::", stringify!($method))),*];
        }

        #[async_trait]
        impl $decorator for Faulty<dyn $port> {
            fn inner(&self) -> &dyn $port {
                &*self.port
            }
            $(
                async fn $method(&self, $($name: $type),*) -> Result<$answer, StoreFault> {
                    let name = concat!(stringify!($port), "::", stringify!($method));
                    self.call(name, self.port.$method($($name),*)).await
                }
            )*
        }

        #[async_trait]
        impl<D: $decorator> $port for D {
            $(
                fn $sync_method(&self) -> $value {
                    $decorator::$sync_method(self)
                }
            )*
            $(
                async fn $method(&self, $($name: $type),*) -> Result<$answer, StoreFault> {
                    $decorator::$method(self, $($name),*).await
                }
            )*
        }
    };
}

decorator!(LedgerDecorator of Ledger {
    sync accept_grouping -> AcceptGrouping;
    sync checks_order -> bool;
    sync writes_in_order -> bool;
    sync joint_steps -> Option<&dyn JointSteps>;
    fn accept(group: &[Submission], nonce: Nonce) -> Vec<AcceptOutcome>;
    fn commit(commit: &AccountCommit) -> Committed;
    fn reject_unknown(commit: &UnknownAccountCommit) -> Committed;
    fn account(key: AccountKey) -> Option<Versioned<Account>>;
    fn transaction(key: &TransactionKey) -> Option<StoredTransaction>;
    fn mark(key: &TransactionKey, revision: &Revision, marks: Marks) -> Option<Revision>;
    fn probe() -> ();
});

decorator!(OrderNumberIndexDecorator of OrderNumberIndex {
    sync contains_every_posting -> bool;
    fn find(number: OrderNumber) -> Option<TransactionKey>;
    fn record(block: &[(OrderNumber, TransactionKey)]) -> ();
    fn recorded(first_block: u64) -> RecordedNumbers;
});

decorator!(AccountsDecorator of Accounts {
    fn open(opening: &AccountDecision) -> Opened;
    fn change(guard: &Revision, change: &AccountDecision) -> Option<Revision>;
    fn list(user: UserId, after: Option<AccountId>, limit: usize) -> Vec<Account>;
});

decorator!(TransactionLogDecorator of TransactionLog {
    fn pages(account: AccountKey, from: u64, entries: usize) -> Vec<JournalPage>;
    fn decision_pages(account: AccountKey, from: u64, limit: usize) -> Vec<JournalPage>;
    fn by_status(
        account: AccountKey, status: TransactionStatus, partner: Option<&PartnerId>, cursor: Option<&str>,
        limit: usize
    ) -> Listing<StoredTransaction>;
});

decorator!(ArchiveDecorator of Archive {
    sync has_index_of_accepted -> bool;
    fn listed_accounts(
        range: UserRange, cursor: Option<&str>, limit: usize
    ) -> Listing<Readable<AccountKey>>;
    fn rows(range: UserRange, cursor: Option<&str>, limit: usize) -> Listing<Readable<StoredRow>>;
    fn accepted(
        range: UserRange, cursor: Option<&str>, limit: usize
    ) -> Listing<Readable<StoredTransaction>>;
    fn is_listed(account: AccountKey) -> bool;
    fn has_pages() -> bool;
    fn stored_decision_pages(
        account: AccountKey, cursor: Option<&str>, limit: usize
    ) -> Listing<StoredDecisionPage>;
    fn stored_pages(account: AccountKey, cursor: Option<&str>, limit: usize) -> Listing<StoredPage>;
    fn stored_transactions(
        account: AccountKey, cursor: Option<&str>, limit: usize
    ) -> Listing<Readable<StoredTransaction>>;
});

decorator!(WorkQueueDecorator of WorkQueue {
    fn send(queue: &QueueName, body: &[u8], delay: Duration) -> ();
    fn receive(queue: &QueueName, max: usize, visibility: Duration) -> Vec<Message>;
    fn extend(queue: &QueueName, lease: &Lease, body: &[u8], visibility: Duration) -> Held<Lease>;
    fn delete(queue: &QueueName, lease: &Lease) -> Held<()>;
    fn backlog(queue: &QueueName) -> Backlog;
});

decorator!(DeadLettersDecorator of DeadLetters {
    fn add(letter: &DeadLetter) -> ();
    fn find(id: &str) -> Option<DeadLetter>;
    fn list(open_only: bool, cursor: Option<&str>, limit: usize) -> Listing<DeadLetter>;
    fn resolve(id: &str, resolution: &Resolution) -> bool;
    fn count_open() -> Vec<(QueueName, u64)>;
});

decorator!(SyncStoreDecorator of SyncStore {
    fn get(name: &str) -> Option<Versioned<String>>;
    fn swap(name: &str, expected: Option<&Revision>, value: &str) -> Swapped;
});

/// A store of shared values that hides one value.
pub struct MissingValue {
    /// The wrapped store.
    pub inner: Arc<dyn SyncStore>,
    /// The name of the hidden value.
    pub name: &'static str,
}

#[async_trait]
impl SyncStoreDecorator for MissingValue {
    fn inner(&self) -> &dyn SyncStore {
        &*self.inner
    }

    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        if name == self.name { Ok(None) } else { self.inner.get(name).await }
    }
}

decorator!(PayloadStoreDecorator of PayloadStore {
    fn put(name: &str, body: &[u8]) -> ();
    fn get(name: &str) -> Option<Vec<u8>>;
    fn delete(name: &str) -> ();
    fn list(prefix: &str, cursor: Option<&str>, limit: usize) -> Listing<PayloadEntry>;
});

decorator!(ApiKeysDecorator of ApiKeys {
    fn add(record: &ApiKeyRecord) -> ();
    fn find(id: &str) -> Option<ApiKeyRecord>;
    fn list() -> Vec<ApiKeyRecord>;
    fn revoke(id: &str, at: Timestamp) -> bool;
    fn mark_used(id: &str, at: Timestamp) -> bool;
});

decorator!(RecordsDecorator of Records {
    fn find(collection: Collection, id: &str) -> Option<Versioned<String>>;
    fn list(collection: Collection, prefix: &str, after: Option<&str>, limit: usize) -> Vec<Record>;
    fn save(collection: Collection, id: &str, body: &str, expected: Option<&Revision>) -> Swapped;
    fn remove(collection: Collection, id: &str) -> ();
});

decorator!(ProcessRegistryDecorator of ProcessRegistry {
    fn announce(entry: &RegisteredProcess) -> ();
    fn withdraw(id: ProcessId) -> ();
    fn list() -> Vec<RegisteredProcess>;
});

/// Wraps a [`World`]: every method is forwarded unless it is overridden.
#[async_trait]
pub trait WorldDecorator: Send + Sync {
    /// Returns the wrapped world.
    fn inner(&self) -> &dyn World;

    /// Like [`World::now`].
    fn now(&self) -> Timestamp {
        self.inner().now()
    }

    /// Like [`World::uptime`].
    fn uptime(&self) -> Duration {
        self.inner().uptime()
    }

    /// Like [`World::sleep`].
    async fn sleep(&self, duration: Duration) {
        self.inner().sleep(duration).await;
    }

    /// Like [`World::random`].
    fn random(&self) -> u64 {
        self.inner().random()
    }

    /// Like [`World::spawn`].
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.inner().spawn(task);
    }

    /// Like [`World::spawn_on_this_thread`].
    fn spawn_on_this_thread(&self, task: BoxFuture<'static, ()>) {
        self.inner().spawn_on_this_thread(task);
    }
}

#[async_trait]
impl<D: WorldDecorator> World for D {
    fn now(&self) -> Timestamp {
        WorldDecorator::now(self)
    }

    fn uptime(&self) -> Duration {
        WorldDecorator::uptime(self)
    }

    async fn sleep(&self, duration: Duration) {
        WorldDecorator::sleep(self, duration).await;
    }

    fn random(&self) -> u64 {
        WorldDecorator::random(self)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        WorldDecorator::spawn(self, task);
    }

    fn spawn_on_this_thread(&self, task: BoxFuture<'static, ()>) {
        WorldDecorator::spawn_on_this_thread(self, task);
    }
}
