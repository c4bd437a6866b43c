//! The reference adapter. It implements every port with ordered maps in one process. It is the simplest correct
//! implementation: where another adapter behaves differently, the bug is presumed to be in the other adapter.
//!
//! The adapter is deterministic: it uses no hash maps, and no clock or randomness of its own. Each call is one atomic
//! step under a lock that is never held across an `await`. So a store shared by several simulated processes behaves
//! like a remote one. Nothing is written to disk.
//!
//! Like the adapter for Azure, it accepts and enqueues in two steps. [`world`] is a test world, whose clock moves only
//! when a test advances it.

mod accounts;
mod api_keys;
mod archive;
mod dead_letters;
pub mod flaws;
mod import;
mod ledger;
mod log;
mod order_number_index;
mod payload_store;
mod process_registry;
mod queue;
mod records;
mod sync_store;
pub mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::{OrderNumber, TransactionKey};
use crate::ports::Store;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::dead_letters::DeadLetter;
use crate::ports::operations::{Operation, PriceKind, Service, StorageOperations};
use crate::ports::payload_store::is_name;
use crate::ports::process_registry::{ProcessId, RegisteredProcess};
use crate::ports::records::Collection;
use crate::ports::rights::AllRights;
use crate::ports::store_clock::StoreClock;
use crate::ports::store_files::StoreFiles;
use crate::ports::world::World;
use flaws::Flaw;

/// One process's handle to an in-memory store. Clones share the content and the operation counts.
#[derive(Clone)]
pub struct MemoryStore {
    world: Arc<dyn World>,
    tables: Arc<Mutex<Tables>>,
    flaw: Option<Flaw>,
    checks_order: bool,
    records_numbers: bool,
    operations: Arc<StorageOperations>,
}

impl MemoryStore {
    /// Creates an empty store and returns its ports.
    #[expect(clippy::new_ret_no_self, reason = "callers need the ports; a handle is created by `empty`")]
    pub fn new(world: Arc<dyn World>) -> Store {
        Self::empty(world).ports()
    }

    /// Creates an empty store that several processes can share.
    pub fn empty(world: Arc<dyn World>) -> Self {
        Self {
            world,
            tables: Arc::default(),
            flaw: None,
            checks_order: false,
            records_numbers: false,
            operations: Arc::default(),
        }
    }

    /// Returns the same store with a deliberate bug.
    #[must_use]
    pub fn flawed(self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self }
    }

    /// Returns the same store with a ledger that checks the order of commits, as SQLite does.
    #[must_use]
    pub fn checking_order(self) -> Self {
        Self { checks_order: true, ..self }
    }

    /// Returns the same store with an index of order numbers that is updated after the postings, as on Azure. By
    /// default every posting is found at once, as with SQLite.
    #[must_use]
    pub fn recording_numbers(self) -> Self {
        Self { records_numbers: true, ..self }
    }

    /// Returns the ports for another process on the same content, with its own operation counts.
    pub fn ports(&self) -> Store {
        let process = Arc::new(Self { operations: Arc::default(), ..self.clone() });
        Store {
            ledger: process.clone(),
            accounts: process.clone(),
            log: process.clone(),
            archive: process.clone(),
            import: process.clone(),
            queue: process.clone(),
            dead_letters: process.clone(),
            sync: process.clone(),
            payloads: process.clone(),
            api_keys: process.clone(),
            records: process.clone(),
            order_numbers: process.clone(),
            process_registry: process.clone(),
            rights: Arc::new(AllRights),
            clock: Arc::new(StoreClock::of_this_machine()),
            files: StoreFiles::none(),
            operations: Arc::clone(&process.operations),
        }
    }

    /// Runs one atomic step. Concurrent calls see all of its effects or none.
    fn step<T>(&self, step: impl FnOnce(&mut Tables) -> T) -> T {
        // The lock does not poison. A step panics only in an assertion that found a bug, before its first write, so the
        // content is consistent and the other processes of a simulation can continue.
        step(&mut self.tables.lock())
    }

    fn count(&self, service: Service, name: &'static str, price: PriceKind) {
        self.operations.count(Operation { service, name, price });
    }

    fn count_row(&self, name: &'static str) {
        self.count(Service::Table, name, PriceKind::Table);
    }

    fn count_query(&self) {
        self.count(Service::Table, "query", PriceKind::TableBatch);
    }
}

#[derive(Default)]
struct Tables {
    ledger: ledger::Rows,
    queues: queue::Queues,
    dead_letters: BTreeMap<String, DeadLetter>,
    values: BTreeMap<String, Versioned<String>>,
    payloads: BTreeMap<String, payload_store::Payload>,
    api_keys: BTreeMap<String, ApiKeyRecord>,
    records: BTreeMap<(Collection, String), Versioned<String>>,
    recorded_numbers: BTreeMap<OrderNumber, TransactionKey>,
    processes: BTreeMap<ProcessId, RegisteredProcess>,
    numbers: UniqueNumbers,
}

/// Numbers for revisions and receipts. They are never reused, so a row that returns to an earlier state is not mistaken
/// for the earlier row (the ABA problem).
#[derive(Default)]
struct UniqueNumbers(u64);

impl UniqueNumbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.checked_add(1).expect("fewer than 2^64 writes");
        self.0
    }

    fn revision(&mut self) -> Revision {
        Revision::new(self.next().to_string())
    }
}

/// Asserts that the name is valid in every store.
fn assert_name(name: &str) {
    assert!(is_name(name), "{name:?} cannot name a stored value");
}
