//! The embedded store: everything in one SQLite file, for one machine.
//!
//! One thread writes (`writer`): it takes all the jobs that wait, runs each in a savepoint, and
//! answers them after one COMMIT, so that many callers share one `fsync`. A few connections read
//! (`reader`), each in short transactions of its own. Several processes may share the file:
//! SQLite's own lock orders their writes, and the guards of the ports do the rest.
//!
//! Read `database` for how a port speaks to the two, then the ports one by one. Rows are laid out
//! in `migrations/*.sql`.

mod accept;
mod accounts;
mod api_keys;
mod archive;
pub mod backup;
mod checkpointer;
mod columns;
mod commit;
mod connection;
mod database;
mod dead_letters;
mod fault;
mod ledger;
mod lock;
mod log;
mod meter;
mod migrations;
mod names;
mod partners;
mod paths;
mod payload_store;
mod private;
mod process_registry;
mod queue;
mod reader;
pub mod restore;
mod sync_store;
mod transaction_row;
mod writer;

use std::path::Path;
use std::sync::Arc;

use rusqlite::DEFAULT_NAME;
use rusqlite::wal::CheckpointMode;

use crate::messaging::envelope::EncodedItem;
use crate::ports::Store;
use crate::ports::operations::StorageOperations;
use crate::ports::queue::QueueName;
use crate::ports::world::World;

pub use fault::OpenFault;
pub use migrations::SCHEMA_VERSION;

use connection::{Role, connect};
use database::Database;
use lock::StoreLock;

/// What to put on which queue for work that was just accepted; stored in the same database
/// transaction as the work. Called on the writer's thread: it must neither wait nor call the store.
pub type Enqueue = Arc<dyn Fn(&[&EncodedItem]) -> Vec<(QueueName, Vec<u8>)> + Send + Sync>;

/// The store in one SQLite file.
#[derive(Debug)]
pub enum SqliteStore {}

impl SqliteStore {
    /// Opens the file, creates or migrates it where needed, and starts the thread that writes. The
    /// thread ends when the last of the ports is dropped, and what was answered is in the file.
    ///
    /// Only the owner may read the files of the store. Where other users may, their rights are removed, and
    /// a warning is logged.
    ///
    /// Blocks while it reads the schema, and for some seconds at most while another process
    /// migrates. The ports have to be called within a tokio runtime.
    ///
    /// # Errors
    /// [`OpenFault`] when there is no file of ours at that path that this program can use.
    pub fn open(path: &Path, enqueue: Enqueue, world: Arc<dyn World>) -> Result<Store, OpenFault> {
        let operations = Arc::new(StorageOperations::default());
        let database = Database::open(path, world, Arc::clone(&operations))?;
        Ok(Self::ports(Arc::new(database), enqueue, operations))
    }

    /// Opens a file for reading only, while others may use it: nothing is created and nothing
    /// migrated, and every write is refused. The rights of other users are removed as by [`Self::open`].
    ///
    /// # Errors
    /// [`OpenFault`] when there is no file of ours at that path with the schema of this program.
    pub fn open_to_read(path: &Path, world: Arc<dyn World>) -> Result<Store, OpenFault> {
        let operations = Arc::new(StorageOperations::default());
        let database = Database::open_to_read(path, world, Arc::clone(&operations))?;
        Ok(Self::ports(Arc::new(database), Arc::new(|_: &[&EncodedItem]| Vec::new()), operations))
    }

    /// Moves what is in the write-ahead log to the file, so that the file alone is the store: for a process
    /// that is about to end while a thread still holds a port. Blocks, for some seconds at most where
    /// another process writes.
    ///
    /// # Errors
    /// When the log cannot be moved, or another process is in the way. Nothing is lost: the log stays, and
    /// whoever opens the store next reads both.
    pub fn gather(path: &Path) -> Result<(), OpenFault> {
        // Nobody puts another file in its place meanwhile.
        let _lock = StoreLock::shared(path)?;
        connect(path, Role::Checkpoint)
            .and_then(|connection| connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::TRUNCATE))
            .map(drop)
            .map_err(|source| OpenFault::Database { path: path.to_owned(), source })
    }

    fn ports(database: Arc<Database>, enqueue: Enqueue, operations: Arc<StorageOperations>) -> Store {
        Store {
            ledger: Arc::new(ledger::SqliteLedger::new(Arc::clone(&database), enqueue)),
            accounts: Arc::new(accounts::SqliteAccounts::new(Arc::clone(&database))),
            log: Arc::new(log::SqliteLog::new(Arc::clone(&database))),
            archive: Arc::new(archive::SqliteArchive::new(Arc::clone(&database))),
            queue: Arc::new(queue::SqliteQueue::new(Arc::clone(&database))),
            dead_letters: Arc::new(dead_letters::SqliteDeadLetters::new(Arc::clone(&database))),
            sync: Arc::new(sync_store::SqliteSyncStore::new(Arc::clone(&database))),
            payloads: Arc::new(payload_store::SqlitePayloadStore::new(Arc::clone(&database))),
            api_keys: Arc::new(api_keys::SqliteApiKeys::new(Arc::clone(&database))),
            partners: Arc::new(partners::SqlitePartners::new(Arc::clone(&database))),
            roster: Arc::new(process_registry::SqliteProcessRegistry::new(database)),
            operations,
        }
    }
}
