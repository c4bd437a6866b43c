//! What the bank needs from the outside, cut to the size of a business step. The doc comment of a
//! method is its contract; [`crate::testing::conformance`] checks every adapter against it.
//!
//! A port promises an atomic step, not rows: it shows no transaction of a database, no SQL and no
//! partition key, so that a table of SQLite and a table of Azure can both keep the promise.

pub mod api_keys;
pub mod archive;
pub mod dead_letters;
pub mod doorbell;
pub mod fault;
pub mod ledger;
pub mod operations;
pub mod partners;
pub mod payload_store;
pub mod process_registry;
pub mod queue;
pub mod sync_store;
pub mod world;

use std::sync::Arc;

use api_keys::ApiKeys;
use archive::Archive;
use dead_letters::DeadLetters;
use ledger::{Accounts, Ledger, TransactionLog};
use operations::StorageOperations;
use partners::Partners;
use payload_store::PayloadStore;
use process_registry::ProcessRegistry;
use queue::WorkQueue;
use sync_store::SyncStore;

/// The ports of one store, opened together. Pass on what is used, not the whole.
#[derive(Clone)]
pub struct Store {
    /// Accept and commit.
    pub ledger: Arc<dyn Ledger>,
    /// Open, change and list accounts.
    pub accounts: Arc<dyn Accounts>,
    /// Read what was accepted and posted.
    pub log: Arc<dyn TransactionLog>,
    /// Read all that is stored, also what is damaged.
    pub archive: Arc<dyn Archive>,
    /// Where accepted work waits.
    pub queue: Arc<dyn WorkQueue>,
    /// Where a person finds what could not be posted.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// Small values with compare-and-swap.
    pub sync: Arc<dyn SyncStore>,
    /// Large bodies by reference.
    pub payloads: Arc<dyn PayloadStore>,
    /// The keys that are called with.
    pub api_keys: Arc<dyn ApiKeys>,
    /// Who may call, and on what terms.
    pub partners: Arc<dyn Partners>,
    /// Who can be called.
    pub roster: Arc<dyn ProcessRegistry>,
    /// What all of this costs.
    pub operations: Arc<StorageOperations>,
}
