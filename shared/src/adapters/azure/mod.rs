//! Azure Storage: tables hold the ledger and all other state, queues the work, blobs large bodies.
//! Azurite stands in for it in tests.
//!
//! To read it: `connection` says where the storage is; `client` and `transport` reach it and count;
//! `attempt` knows what a failure says and how long to go on; `table`, `batch` and `keys` are rows in
//! general, `*_row` and `parts` ours in particular; the rest is one file per port, with the two steps
//! of the protocol in `accept` and `commit`.
//!
//! Only this folder names the Azure crates.

mod accept;
mod account_row;
mod accounts;
mod api_keys;
mod archive;
mod attempt;
mod batch;
mod client;
mod commit;
mod connection;
pub mod cursor;
mod dead_letters;
mod etag;
mod flaw;
mod keys;
mod ledger;
mod letter_row;
mod log;
mod message_text;
mod page_row;
mod partners;
mod parts;
mod payload_store;
mod process_registry;
mod queue;
mod rows;
mod sync_store;
mod table;
mod transaction_row;
mod transport;

use std::sync::Arc;

pub use connection::{AzureConnection, InvalidConnection};

use accounts::AzureAccounts;
use api_keys::AzureApiKeys;
use archive::AzureArchive;
use client::Clients;
use dead_letters::AzureDeadLetters;
use ledger::AzureLedger;
use partners::AzurePartners;
use payload_store::AzurePayloadStore;
use process_registry::AzureProcessRegistry;
use queue::AzureQueue;
use sync_store::AzureSyncStore;

use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::operations::StorageOperations;
use crate::ports::world::World;

/// Which storage account, and which store within it.
#[derive(Debug, Clone)]
pub struct AzureConfig {
    /// The storage account.
    pub connection: AzureConnection,
    /// Begins the names of the store's tables, queues and container: a lower-case letter, then
    /// lower-case letters and digits, at most 24. Stores with different prefixes never meet.
    pub prefix: String,
}

/// Opens a store. Nothing goes to the network yet: tables, queues and the container are created by the
/// first write that needs them, so that a process can start while the storage is away and works once
/// it is back.
///
/// # Errors
/// [`StoreFault::Refused`] when the prefix cannot begin a name, or no HTTP client can be made.
#[expect(clippy::unused_async, reason = "opens as the other stores do, which wait for their disk")]
pub async fn open(config: &AzureConfig, world: Arc<dyn World>) -> Result<Store, StoreFault> {
    let operations = Arc::new(StorageOperations::default());
    let clients = Clients::new(&config.connection, &config.prefix, &operations)?;
    let ledger = AzureLedger { world: Arc::clone(&world), table: clients.table("ledger") };
    let accounts = AzureAccounts { ledger: ledger.clone(), names: clients.table("accounts") };
    let archive = AzureArchive { ledger: ledger.clone(), names: clients.table("accounts") };
    let dead_letters = AzureDeadLetters { world: Arc::clone(&world), table: clients.table("deadletters") };
    let sync = AzureSyncStore { world: Arc::clone(&world), table: clients.table("state") };
    let api_keys = AzureApiKeys { world: Arc::clone(&world), table: clients.table("apikeys") };
    let partners = AzurePartners { world: Arc::clone(&world), table: clients.table("partners") };
    let roster = AzureProcessRegistry { world: Arc::clone(&world), table: clients.table("roster") };
    let payloads = AzurePayloadStore { world: Arc::clone(&world), container: clients.payloads.clone() };
    let queue = AzureQueue { world, service: clients.queues.clone(), prefix: clients.prefix.clone() };
    Ok(Store {
        log: Arc::new(ledger.clone()),
        ledger: Arc::new(ledger),
        accounts: Arc::new(accounts),
        archive: Arc::new(archive),
        queue: Arc::new(queue),
        dead_letters: Arc::new(dead_letters),
        sync: Arc::new(sync),
        payloads: Arc::new(payloads),
        api_keys: Arc::new(api_keys),
        partners: Arc::new(partners),
        roster: Arc::new(roster),
        operations,
    })
}
