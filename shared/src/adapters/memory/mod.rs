//! The reference adapter: every port, in ordered maps of one process. It is the simplest correct implementation, so a
//! difference to another adapter is presumed to be a bug of the other one.
//!
//! It is deterministic: it uses no hash maps, no clock and no randomness of its own. Each call is one atomic step
//! under one lock that is never held across an `await`, so a store that several simulated processes share behaves
//! like a remote one. Nothing is stored on a disk.
//!
//! Like Azure, it accepts and enqueues in two steps. [`world`] is a world for tests, whose clock moves only when a
//! test advances it.

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

/// The view of one process on an in-memory store. Clones share the content.
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
    /// Creates an empty store in that world, and returns its ports.
    #[expect(clippy::new_ret_no_self, reason = "callers need the ports; a handle is created by `empty`")]
    pub fn new(world: Arc<dyn World>) -> Store {
        Self::empty(world).ports()
    }

    /// Creates an empty store for several processes.
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

    /// Returns the same store with a deliberate mistake.
    #[must_use]
    pub fn flawed(self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self }
    }

    /// Returns the same store with a ledger that checks the order of commits, as SQLite does.
    #[must_use]
    pub fn checking_order(self) -> Self {
        Self { checks_order: true, ..self }
    }

    /// Returns the same store with order numbers that are recorded behind the postings, as on Azure. Otherwise every posting
    /// is found at once, as with SQLite.
    #[must_use]
    pub fn recording_numbers(self) -> Self {
        Self { records_numbers: true, ..self }
    }

    /// Returns the ports of a further process on the same content, with its own count of operations.
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

    /// Runs one atomic step: no other call sees a part of it.
    fn step<T>(&self, step: impl FnOnce(&mut Tables) -> T) -> T {
        // A panic comes from an assertion that found a bug, always before the first write: the content is
        // consistent, and the other processes of a simulation continue with it.
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

/// The whole content of the store.
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

/// Numbers that are used once: a revision or a receipt is never reused, so that a state that was left and entered
/// again is not mistaken for the old one.
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

/// Asserts that every store can keep the name.
fn assert_name(name: &str) {
    assert!(is_name(name), "{name:?} cannot name a stored value");
}
