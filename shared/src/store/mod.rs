//! Opens the configured store and the bank on it. Only this module depends on all adapters.

mod renewed_secrets;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use self::renewed_secrets::keep_renewed;
use crate::adapters::azure::{self, AzureConfig, AzureConnection};
use crate::adapters::http::{NoClient, PeerNetwork};
use crate::adapters::sqlite::{self, Enqueue, SqliteStore};
use crate::bank::{Bank, BankSettings};
use crate::cluster::completions::Completions;
use crate::cluster::doorbell_secret::DoorbellSecret;
use crate::config::{Config, StorageConfig, Switch};
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{self, EncodedItem};
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::queue::QueueName;
use crate::ports::store_files::StoreFiles;
use crate::ports::world::World;

/// Why the store or the bank cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// The database file cannot be used.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenFault),
    /// The Azure Storage client cannot be created.
    #[error(transparent)]
    Azure(#[from] StoreFault),
    /// The HTTP client for other processes cannot be created.
    #[error(transparent)]
    NoClient(#[from] NoClient),
    /// A command needs an existing database file.
    #[error(
        "there is no database {}, which is the setting storage (POSTONCE_STORAGE): run the command in the folder where the \
         service was started, or set storage as for the service, which creates the file at its first start",
        path.display()
    )]
    NoDatabase {
        /// The expected file.
        path: PathBuf,
    },
}

/// Opens the configured store, the network to other processes, and the bank that connects both.
///
/// # Errors
/// [`OpenFault`] when the file cannot be opened, or the HTTP client cannot be created.
pub async fn open_bank(config: &Config, world: Arc<dyn World>) -> Result<(Bank, PeerNetwork), OpenFault> {
    let completions: Arc<Completions> = Arc::default();
    let secret = DoorbellSecret::new(config.ring_secret.as_ref());
    let store = open(config, Arc::clone(&world), &completions, &Seal::new(&secret)).await?;
    keep_renewed(config, "ring-secret", Arc::<DoorbellSecret>::clone(&secret), &world);
    if let Some(key) = &config.anchors.key {
        keep_renewed(config, "anchor-key", Arc::new(key.clone()), &world);
    }
    if let Some(headers) = &config.traces.otlp_headers {
        keep_renewed(config, "otlp-headers", Arc::new(headers.clone()), &world);
    }
    let network = PeerNetwork::new(&store, &world, secret)?;
    let settings = BankSettings {
        queue_count: config.queue_count,
        immediate_posting: config.immediate_posting == Switch::On,
        visibility_timeout: config.visibility_timeout,
        order_number_ranges: config.order_number_ranges(),
    };
    let bank = Bank::linked(store, world, network.links(&completions), settings);
    Ok((bank, network))
}

/// Like [`open_bank`], for a command. The file of an embedded store must exist: only the service creates it, so that a
/// command in the wrong folder does not use a new, empty store.
///
/// # Errors
/// As for [`open_bank`]; [`OpenFault::NoDatabase`] if the file does not exist.
pub async fn open_existing_bank(
    config: &Config,
    world: Arc<dyn World>,
) -> Result<(Bank, PeerNetwork), OpenFault> {
    refuse_missing(config)?;
    open_bank(config, world).await
}

/// Refuses an embedded store whose file does not exist. Creates nothing.
///
/// # Errors
/// [`OpenFault::NoDatabase`]
pub fn refuse_missing(config: &Config) -> Result<(), OpenFault> {
    let StorageConfig::Sqlite { path } = &config.storage else { return Ok(()) };
    // If the check fails, the open reports the reason.
    if path.try_exists().unwrap_or(true) {
        return Ok(());
    }
    Err(OpenFault::NoDatabase { path: std::path::absolute(path).unwrap_or_else(|_| path.clone()) })
}

/// Opens the configured store. Messages that the store enqueues itself carry the `seal`, and a reply address if a request
/// in `completions` waits for their work.
///
/// # Errors
/// [`OpenFault`] when the file cannot be opened. Azure is not contacted: a process starts while Azure is unavailable,
/// reports that it is not ready, and works as soon as Azure is available.
async fn open(
    config: &Config,
    world: Arc<dyn World>,
    completions: &Arc<Completions>,
    seal: &Seal,
) -> Result<Store, OpenFault> {
    match &config.storage {
        StorageConfig::Sqlite { path } => {
            let enqueue = enqueue(config.queue_count, Arc::clone(completions), seal.clone());
            Ok(SqliteStore::open(path, enqueue, world)?)
        }
        StorageConfig::Azure { connection } => open_azure(connection, config, world).await,
    }
}

/// Opens the configured store read-only. A file must exist and have the schema of this program, and every write to it is
/// refused. On Azure, only the caller prevents writes.
///
/// # Errors
/// [`OpenFault`] when the file cannot be opened.
pub async fn open_to_read(config: &Config, world: Arc<dyn World>) -> Result<Store, OpenFault> {
    refuse_missing(config)?;
    match &config.storage {
        StorageConfig::Sqlite { path } => Ok(SqliteStore::open_to_read(path, world)?),
        StorageConfig::Azure { connection } => open_azure(connection, config, world).await,
    }
}

async fn open_azure(
    connection: &AzureConnection,
    config: &Config,
    world: Arc<dyn World>,
) -> Result<Store, OpenFault> {
    let azure = AzureConfig {
        connection: connection.clone(),
        identity: config.azure.identity(),
        authorities: config.azure.azure_ca.clone(),
        prefix: config.name_prefix.clone(),
    };
    let (store, secret) = azure::open_with_secret(&azure, Arc::clone(&world)).await?;
    keep_renewed(config, "storage", Arc::new(secret), &world);
    Ok(store)
}

/// Checkpoints an embedded store into one file, which can be copied without its write-ahead log. Called at the end of a
/// process, because server threads may keep the store open until the process exits, so that it is never closed. Does
/// nothing on Azure, or if the path no longer names the file of `store`.
pub fn checkpoint(config: &Config, store: &StoreFiles) {
    let StorageConfig::Sqlite { path } = &config.storage else { return };
    if !store.are_intact() {
        return;
    }
    if let Err(fault) = SqliteStore::checkpoint(path) {
        tracing::warn!("The database must be copied together with its -wal file: {}", chain(&fault));
    }
}

/// Creates the queue messages for accepted work, which SQLite stores in the same step as the work. No claim checks are
/// used: a message is one more row of the step, so a payload would save nothing.
pub fn enqueue(queue_count: u16, completions: Arc<Completions>, seal: Seal) -> Enqueue {
    Arc::new(move |work| {
        let mut by_queue: BTreeMap<QueueName, Vec<&EncodedItem>> = BTreeMap::new();
        for work in work {
            let queue = envelope::queue_of(work.key().account, queue_count);
            by_queue.entry(queue).or_default().push(work);
        }
        let reply_to = |part: &[&EncodedItem]| completions.reply_to(part.iter().map(|work| work.key()));
        let messages = by_queue.into_iter().flat_map(|(queue, work)| {
            envelope::bodies(&work, reply_to, &seal).into_iter().map(move |body| (queue.clone(), body))
        });
        messages.collect()
    })
}
