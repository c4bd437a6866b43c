//! The reference adapter: every port, kept in ordered maps of one process. The simplest correct
//! one, so that a difference between it and another adapter is the other one's bug until shown
//! otherwise.
//!
//! It is deterministic: no hash maps, no time and no randomness of its own. Each call is one atomic
//! step under one lock that is never held across an `await`, so a store that several simulated
//! processes share behaves like a remote one. Nothing is ever kept on a disk.
//!
//! Like Azure, it accepts and enqueues in two steps. One file per noun; [`world`] is a world for
//! tests, whose clock moves only when told.

mod accounts;
mod api_keys;
mod archive;
mod dead_letters;
pub mod flaws;
mod ledger;
mod log;
mod partners;
mod payload_store;
mod process_registry;
mod queue;
mod sync_store;
pub mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::PartnerId;
use crate::domain::partner::Partner;
use crate::ports::Store;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::dead_letters::DeadLetter;
use crate::ports::operations::{Operation, PriceKind, Service, StorageOperations};
use crate::ports::payload_store::is_name;
use crate::ports::process_registry::{ProcessId, RegisteredProcess};
use crate::ports::world::World;
use flaws::Flaw;

/// One process's view of a store in memory. Clones share everything.
#[derive(Clone)]
pub struct MemoryStore {
    world: Arc<dyn World>,
    tables: Arc<Mutex<Tables>>,
    flaw: Option<Flaw>,
    operations: Arc<StorageOperations>,
}

impl MemoryStore {
    /// The ports of a new, empty store that lives in that world.
    #[expect(clippy::new_ret_no_self, reason = "the ports are what callers want; a handle is `empty`")]
    pub fn new(world: Arc<dyn World>) -> Store {
        Self::empty(world).ports()
    }

    /// A new, empty store that several processes will share.
    pub fn empty(world: Arc<dyn World>) -> Self {
        Self { world, tables: Arc::default(), flaw: None, operations: Arc::default() }
    }

    /// The same store with a mistake in it.
    #[must_use]
    pub fn flawed(self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self }
    }

    /// The ports of one more process over the same content, with a count of operations of its own.
    pub fn ports(&self) -> Store {
        let process = Arc::new(Self { operations: Arc::default(), ..self.clone() });
        Store {
            ledger: process.clone(),
            accounts: process.clone(),
            log: process.clone(),
            archive: process.clone(),
            queue: process.clone(),
            dead_letters: process.clone(),
            sync: process.clone(),
            payloads: process.clone(),
            api_keys: process.clone(),
            partners: process.clone(),
            roster: process.clone(),
            operations: Arc::clone(&process.operations),
        }
    }

    /// One atomic step: whoever reads sees all of it or nothing.
    fn step<T>(&self, step: impl FnOnce(&mut Tables) -> T) -> T {
        // A panic means a bug that an assertion found, always before the first write: the content
        // is whole, and the other processes of a simulation go on with it.
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

/// Everything that is stored.
#[derive(Default)]
struct Tables {
    ledger: ledger::Rows,
    queues: queue::Queues,
    dead_letters: BTreeMap<String, DeadLetter>,
    values: BTreeMap<String, Versioned<String>>,
    payloads: BTreeMap<String, payload_store::Payload>,
    api_keys: BTreeMap<String, ApiKeyRecord>,
    partners: BTreeMap<PartnerId, Versioned<Partner>>,
    roster: BTreeMap<ProcessId, RegisteredProcess>,
    marks: Marks,
}

/// Numbers that are given out once: a revision or a receipt never comes back, so that a state that
/// was left and entered again is not taken for the old one.
#[derive(Default)]
struct Marks(u64);

impl Marks {
    fn next(&mut self) -> u64 {
        self.0 = self.0.checked_add(1).expect("nobody writes 2^64 times");
        self.0
    }

    fn revision(&mut self) -> Revision {
        Revision::new(self.next().to_string())
    }
}

/// Asserts that a name is one that every store can keep.
fn assert_name(name: &str) {
    assert!(is_name(name), "{name:?} cannot name a stored value");
}
