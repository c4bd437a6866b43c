//! The interfaces of the bank to stores, queues and clock. Each method is one business step. Its doc comment is its
//! contract, which the crate `postonce-conformance` checks for every adapter.
//!
//! A port promises an atomic step, not rows. It exposes no database transaction, no SQL and no partition key, so that
//! SQLite and Azure Tables can both implement it.

pub mod api_keys;
pub mod archive;
pub mod dead_letters;
pub mod doorbell;
pub mod durations;
pub mod fault;
pub mod import;
pub mod ledger;
pub mod operations;
pub mod order_number_index;
pub mod payload_store;
pub mod process_registry;
pub mod queue;
pub mod records;
pub mod rights;
pub mod spans;
pub mod store_clock;
pub mod store_files;
pub mod sync_store;
pub mod world;

use std::sync::Arc;

use api_keys::ApiKeys;
use archive::Archive;
use dead_letters::DeadLetters;
use import::Import;
use ledger::{Accounts, Ledger, TransactionLog};
use operations::StorageOperations;
use order_number_index::OrderNumberIndex;
use payload_store::PayloadStore;
use process_registry::ProcessRegistry;
use queue::WorkQueue;
use records::Records;
use rights::StoreRights;
use store_clock::StoreClock;
use store_files::StoreFiles;
use sync_store::SyncStore;

/// The ports of one store, opened together. Pass on the ports that are used, not the whole struct.
#[derive(Clone)]
pub struct Store {
    /// Accepts and commits transactions.
    pub ledger: Arc<dyn Ledger>,
    /// Opens, changes and lists accounts.
    pub accounts: Arc<dyn Accounts>,
    /// Reads accepted and posted transactions.
    pub log: Arc<dyn TransactionLog>,
    /// Reads all rows, including damaged ones.
    pub archive: Arc<dyn Archive>,
    /// Writes rows exactly as another store has them.
    pub import: Arc<dyn Import>,
    /// Holds accepted work until it is posted.
    pub queue: Arc<dyn WorkQueue>,
    /// Keeps messages that could not be posted, for operators.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// Small values with compare-and-swap.
    pub sync: Arc<dyn SyncStore>,
    /// Large bodies, stored by name.
    pub payloads: Arc<dyn PayloadStore>,
    /// The API keys.
    pub api_keys: Arc<dyn ApiKeys>,
    /// Small versioned documents, such as the partners.
    pub records: Arc<dyn Records>,
    /// Finds transactions by their order numbers.
    pub order_numbers: Arc<dyn OrderNumberIndex>,
    /// The processes that can be called.
    pub process_registry: Arc<dyn ProcessRegistry>,
    /// The access rights of this process.
    pub rights: Arc<dyn StoreRights>,
    /// The clock of this process, compared with the clock of the store.
    pub clock: Arc<StoreClock>,
    /// Whether the files of an embedded store are still the opened ones.
    pub files: StoreFiles,
    /// Counts the billable operations of the store.
    pub operations: Arc<StorageOperations>,
}
