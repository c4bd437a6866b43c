//! From the configuration to the ports: the only place that knows all adapters.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::adapters::azure::{self, AzureConfig, AzureConnection};
use crate::adapters::sqlite::{self, Enqueue, SqliteStore};
use crate::cluster::completions::Completions;
use crate::config::{Config, StorageConfig};
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{self, Written};
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::queue::QueueName;
use crate::ports::world::World;

/// The store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// The file cannot be used.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenFault),
    /// The client of Azure Storage cannot be built.
    #[error(transparent)]
    Azure(#[from] StoreFault),
}

/// Opens the store that the configuration names. Messages that the store enqueues by
/// itself carry the `seal`, and ask for a reply where a request in `completions` waits for their work.
///
/// # Errors
/// [`OpenFault`] when the file cannot be opened. Azure is not asked: a process starts without it,
/// says that it is not ready, and works as soon as it is there.
pub async fn open(
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

/// Opens the store that the configuration names for reading only. A file must exist and have the schema
/// of this program, and every write to it is refused. On Azure nothing but the caller sees to that.
///
/// # Errors
/// [`OpenFault`] when the file cannot be opened.
pub async fn open_to_read(config: &Config, world: Arc<dyn World>) -> Result<Store, OpenFault> {
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
    let azure = AzureConfig { connection: connection.clone(), prefix: config.name_prefix.clone() };
    Ok(azure::open(&azure, world).await?)
}

/// Leaves an embedded store behind as one file, which an operator may copy by itself: for the end of a
/// process. Threads of its server may hold the store until the process is gone, and then nobody closes it.
/// Does nothing on Azure.
pub fn leave(config: &Config) {
    let StorageConfig::Sqlite { path } = &config.storage else { return };
    if let Err(fault) = SqliteStore::checkpoint(path) {
        tracing::warn!("Whoever copies the database has to copy its -wal file, too: {}", chain(&fault));
    }
}

/// The queue messages for accepted work, which SQLite stores in the same step as the work. Never a
/// claim on a payload: a message is one more row of the same step there, so there is nothing to save.
pub fn enqueue(queue_count: u16, completions: Arc<Completions>, seal: Seal) -> Enqueue {
    Arc::new(move |work| {
        let mut by_queue: BTreeMap<QueueName, Vec<&Written>> = BTreeMap::new();
        for work in work {
            let queue = envelope::queue_of(work.key().account, queue_count);
            by_queue.entry(queue).or_default().push(work);
        }
        let reply_to = |part: &[&Written]| completions.reply_to(part.iter().map(|work| work.key()));
        let messages = by_queue.into_iter().flat_map(|(queue, work)| {
            envelope::bodies(&work, reply_to, &seal).into_iter().map(move |body| (queue.clone(), body))
        });
        messages.collect()
    })
}
