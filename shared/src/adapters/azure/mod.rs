//! The adapter for Azure Storage. Tables contain the ledger and all other state, queues the messages, and blobs the
//! large bodies. Tests use the emulator Azurite.
//!
//! `connection` parses the connection string; `identity` obtains and renews credentials. `client`, `transport` and
//! `wire` send and count requests, and `attempt` classifies failures and limits retries. `permissions` names the right
//! that a request needs, and `rights` finds missing rights. `table`, `batch` and `keys` work with rows in general, and
//! `*_row` and `parts` define the rows of the bank. Each of the other modules implements a port; `accept` and `commit`
//! contain the two steps of the protocol.
//!
//! No code outside this folder names the Azure crates.
//!
//! # Rows
//!
//! The name of each table begins with the prefix of the store. Ids are 32 hexadecimal digits. Integers are stored as
//! decimal texts (`rows`), and long content is split over several properties (`parts`).
//!
//! | table | partition key | row key | row | modules |
//! | --- | --- | --- | --- | --- |
//! | `ledger` | `{user}-{account}` | `account` | an account: terms, balance, head of its journal | `account_row`; `accounts`, `commit`, `ledger`, `import` |
//! | `ledger` | `{user}-{account}` | `tx-{partner}-{message}` | a transaction with its status and marks | `transaction_row`; `accept`, `commit`, `ledger`, `log`, `archive`, `import` |
//! | `ledger` | `{user}-{account}` | `jrnl-{first sequence, 20 digits}` | a journal page: the entries of one commit | `page_row`; `commit`, `log`, `archive`, `import` |
//! | `ledger` | `{user}-{account}` | `dcsn-{version, 20 digits}` | a journal page without entries: the other decisions of one commit | `page_row`; `accounts`, `commit`, `log`, `archive`, `import` |
//! | `accounts` | `{user}` | `{account}` | an entry in the list of a user's accounts, without properties | `accounts`, `archive`, `import` |
//! | `deadletters` | `letters` | `letter-{id}` | a dead letter, kept for ever | `letter_row`; `dead_letters` |
//! | `deadletters` | `letters` | `open-{id}` | its copy, until it is resolved | `letter_row`; `dead_letters` |
//! | `state` | `value` | `{name}` | a shared value, such as the gate or the register of order numbers | `sync_store` |
//! | `apikeys` | `key` | `{id}` | an API key: its hash, partner and scopes | `api_keys` |
//! | `partners` | `partner` | `{partner}` | a partner: its reach and terms | `records` |
//! | `partners` | `batch`, `open-batch` | `{id}` | a batch; its entry in the list of batches that are not final | `records` |
//! | `partners` | `audit` | `{largest number − sequence, 20 digits}` | a row of the audit trail, the last one first | `records` |
//! | `partners` | `used-signature` | `{expiry, 10 digits}-{hash}` | a signature that was used, until it expires | `records` |
//! | `partners` | `anchor` | `{largest number − sequence, 20 digits}` | an anchor, the last one first | `records` |
//! | `partners` | `anchor-leaves` | `{time of the list, 14 digits}-{nonce}-{part, 8 digits}` | a part of the leaves of an anchor | `records` |
//! | `numbers` | `number` | `{order number without check digit / 100, 15 digits}` | the transactions with a hundred consecutive order numbers, as far as they were recorded | `order_number_index` |
//! | `roster` | `process` | `{process}` | a process that can be called, with its address | `process_registry` |
//!
//! # Queues and containers
//!
//! | name | content | modules |
//! | --- | --- | --- |
//! | queue `{prefix}-work-{partition}` | messages with accepted work | `message_text`; `queue` |
//! | queues with the names of the ingest queues | orders of direct producers | the same |
//! | container `{prefix}-payloads` | block blobs `work-{id}`: work that is too large for one message; `batch-…`: parts, chunks and results of batches | `payload_store` |

mod accept;
mod account_row;
mod accounts;
mod adaptive_limit;
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
mod identity;
mod import;
mod invalid_property;
mod keys;
mod known_queues;
mod ledger;
mod letter_row;
mod log;
mod message_text;
mod order_number_index;
mod page_row;
mod parts;
mod payload_store;
mod permissions;
mod process_registry;
mod queue;
mod records;
mod rights;
mod rows;
mod sync_store;
mod table;
mod transaction_row;
mod transport;
pub mod wire;

use std::path::PathBuf;
use std::sync::Arc;

pub use connection::{AzureConnection, ConnectionError};
pub use identity::{AzureIdentity, AzureSecret, IdentityError, IdentityTerms};

use accounts::AzureAccounts;
use api_keys::AzureApiKeys;
use archive::AzureArchive;
use client::Clients;
use connection::Credential;
use dead_letters::AzureDeadLetters;
use identity::Credentials;
use import::AzureImport;
use known_queues::KnownQueues;
use ledger::AzureLedger;
use order_number_index::AzureOrderNumberIndex;
use payload_store::AzurePayloadStore;
use process_registry::AzureProcessRegistry;
use queue::AzureQueue;
use records::AzureRecords;
use rights::{AzureRights, WithoutBody};
use sync_store::AzureSyncStore;
use transport::Observer;
use wire::{HttpWire, Wire};

use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::operations::StorageOperations;
use crate::ports::rights::{AllRights, StoreRights};
use crate::ports::store_clock::StoreClock;
use crate::ports::store_files::StoreFiles;
use crate::ports::world::World;

/// The storage account, and the prefix of the store within it.
#[derive(Debug, Clone)]
pub struct AzureConfig {
    /// The storage account.
    pub connection: AzureConnection,
    /// How the process authenticates.
    pub identity: IdentityTerms,
    /// PEM file with the certificate authorities for the services. The default is the public ones.
    pub authorities: Option<PathBuf>,
    /// Prefix of the names of the store's tables, queues and container: a lower-case letter, then lower-case letters
    /// and digits, at most 24 characters. Stores with different prefixes share nothing.
    pub prefix: String,
}

impl AzureConfig {
    /// Returns a configuration that authenticates with the secret of the connection string and trusts public authorities.
    pub const fn new(connection: AzureConnection, prefix: String) -> Self {
        Self { connection, identity: IdentityTerms::key(), authorities: None, prefix }
    }
}

/// Opens a store without sending a request. The first write that needs a table, a queue or the container creates it. So
/// a process can start while the storage is unavailable, and works as soon as the storage is available.
///
/// # Errors
/// [`StoreFault::Refused`] when the prefix or the identity is invalid, or the HTTP client cannot be created.
pub async fn open(config: &AzureConfig, world: Arc<dyn World>) -> Result<Store, StoreFault> {
    open_with_secret(config, world).await.map(|(store, _)| store)
}

/// Like [`open`], but also returns a handle that can replace the secret of the connection string while the store is open.
///
/// # Errors
/// See [`open`].
#[expect(clippy::unused_async, reason = "async like the other stores, which wait for the disk")]
pub async fn open_with_secret(
    config: &AzureConfig,
    world: Arc<dyn World>,
) -> Result<(Store, AzureSecret), StoreFault> {
    let authorities = config.authorities.as_deref();
    let wire = HttpWire::new(&config.connection, authorities)?;
    let credentials =
        identity::credentials(&config.connection, &config.identity, authorities, &world, &identity::variable);
    let credentials = credentials.map_err(refused)?;
    let store = open_with(config, world, Arc::new(wire), &credentials)?;
    Ok((store, AzureSecret::new(config.identity.kind, config.connection.clone(), credentials)))
}

fn refused(invalid: IdentityError) -> StoreFault {
    StoreFault::Refused { doing: "preparing the authentication at Azure Storage", source: Box::new(invalid) }
}

/// Like [`open`], with another [`Wire`] instead of the network, and with the secret of the connection string.
///
/// # Errors
/// [`StoreFault::Refused`] when the prefix is invalid, or the connection string contains no secret.
pub fn open_over(
    config: &AzureConfig,
    world: Arc<dyn World>,
    wire: Arc<dyn Wire>,
) -> Result<Store, StoreFault> {
    let credentials = Credentials::of_secret(&config.connection).map_err(refused)?;
    open_with(config, world, wire, &credentials)
}

fn open_with(
    config: &AzureConfig,
    world: Arc<dyn World>,
    wire: Arc<dyn Wire>,
    credentials: &Credentials,
) -> Result<Store, StoreFault> {
    let operations = Arc::new(StorageOperations::default());
    let clock = Arc::new(StoreClock::of_responses());
    let observed = Observer {
        operations: Arc::clone(&operations),
        clock: Arc::clone(&clock),
        world: Arc::clone(&world),
        logs_missing_rights: true,
    };
    let clients = Clients::new(&config.connection, credentials, &config.prefix, &observed, &wire)?;
    let ledger = AzureLedger { world: Arc::clone(&world), table: clients.table("ledger") };
    let accounts = AzureAccounts { ledger: ledger.clone(), names: clients.table("accounts") };
    let archive = AzureArchive { ledger: ledger.clone(), names: clients.table("accounts") };
    let import = AzureImport { ledger: ledger.clone(), names: clients.table("accounts") };
    let dead_letters = AzureDeadLetters { world: Arc::clone(&world), table: clients.table("deadletters") };
    let sync = AzureSyncStore { world: Arc::clone(&world), table: clients.table("state") };
    let api_keys = AzureApiKeys { world: Arc::clone(&world), table: clients.table("apikeys") };
    let records = AzureRecords { world: Arc::clone(&world), table: clients.table("partners") };
    let order_numbers = AzureOrderNumberIndex { world: Arc::clone(&world), table: clients.table("numbers") };
    let registry = AzureProcessRegistry { world: Arc::clone(&world), table: clients.table("roster") };
    let payloads = AzurePayloadStore { world: Arc::clone(&world), container: clients.payloads.clone() };
    let rights = rights((config, credentials), &observed, wire)?;
    let queue = AzureQueue { world, queues: clients.queues.clone(), known: KnownQueues::default() };
    Ok(Store {
        log: Arc::new(ledger.clone()),
        ledger: Arc::new(ledger),
        accounts: Arc::new(accounts),
        archive: Arc::new(archive),
        import: Arc::new(import),
        queue: Arc::new(queue),
        dead_letters: Arc::new(dead_letters),
        sync: Arc::new(sync),
        payloads: Arc::new(payloads),
        api_keys: Arc::new(api_keys),
        records: Arc::new(records),
        order_numbers: Arc::new(order_numbers),
        process_registry: Arc::new(registry),
        rights,
        clock,
        files: StoreFiles::none(),
        operations,
    })
}

/// Returns the check for missing rights.
fn rights(
    (config, credentials): (&AzureConfig, &Credentials),
    observed: &Observer,
    wire: Arc<dyn Wire>,
) -> Result<Arc<dyn StoreRights>, StoreFault> {
    // An account key grants all rights.
    if let Credential::Key(_) = config.connection.credential() {
        return Ok(Arc::new(AllRights));
    }
    let observed = Observer { logs_missing_rights: false, ..observed.clone() };
    let clients =
        |wire: &Arc<dyn Wire>| Clients::new(&config.connection, credentials, &config.prefix, &observed, wire);
    let whole = clients(&wire)?;
    let wire: Arc<dyn Wire> = Arc::new(WithoutBody(wire));
    let bodiless = clients(&wire)?;
    Ok(Arc::new(AzureRights {
        world: Arc::clone(&observed.world),
        table: whole.table("state"),
        queues: bodiless.queues,
        container: whole.payloads,
        have_roles: credentials.have_roles(),
    }))
}
