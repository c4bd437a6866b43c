//! The embedded store, for one machine. It keeps everything in one SQLite file.
//!
//! One thread writes (`writer`). It takes all waiting jobs, runs each in a savepoint, and answers them after a single COMMIT
//! (group commit), so that many callers share one `fsync`. A few connections read (`reader`), each in short transactions.
//! Several processes may share the file: SQLite's lock serializes their writes, and the guards of the ports detect conflicts.
//!
//! The ports access both through `database`. Each of the other modules implements a port or supports one.
//!
//! # Tables
//!
//! `migrations/*.sql` define the tables. Money is in minor units, times are milliseconds since 1970.
//!
//! | table | key | row | modules |
//! | --- | --- | --- | --- |
//! | `account_names` | `id`; unique `user_id`, `account_id` | the number of an account that was opened, or named by a transaction | `names` |
//! | `partners` | `id`; unique `name` | the number of a partner | `names` |
//! | `accounts` | `id` (of `account_names`) | an account: terms, balance, head of its journal | `accounts`, `commit`, `import` |
//! | `transactions` | `id`; unique `account`, `partner`, `message` | a transaction with its status and marks | `transaction_row`; `accept`, `commit`, `ledger`, `log`, `archive`, `import`, `order_number_index` |
//! | `journal_pages` | `id`; unique `account`, `first_sequence` | a journal page: the entries of one commit | `commit`, `log`, `archive`, `import` |
//! | `decision_pages` | `id`; unique `account`, `version` | a journal page without entries: the other decisions of one commit | `accounts`, `commit`, `log`, `archive`, `import` |
//! | `queue_messages` | `id`, never reused | a queue message without its body | `queue` |
//! | `queue_bodies` | `id` (of `queue_messages`) | the body of a queue message | `queue` |
//! | `dead_letters` | `id` | a dead letter and its resolution | `dead_letters` |
//! | `sync_values` | `name` | a shared value, such as the gate or the register of order numbers | `sync_store`, `backup`, `restore` |
//! | `payloads` | `name` | work that is too large for one message; parts, chunks and results of batches | `payload_store` |
//! | `api_keys` | `id` | an API key: its hash, partner and scopes | `api_keys` |
//! | `records` | `collection`, `id` | a small document, such as a partner (its reach and terms) or a row of the audit trail | `records`, `restore` |
//! | `roster` | `id` | a process that can be called, with its address | `process_registry` |

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
mod fair_pool;
mod fault;
mod import;
mod ledger;
mod lock;
mod log;
mod meter;
mod migrations;
mod names;
mod open_files;
mod order_number_index;
mod paths;
mod payload_store;
mod private;
mod process_registry;
mod queue;
mod reader;
mod records;
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
use crate::ports::rights::AllRights;
use crate::ports::store_clock::StoreClock;
use crate::ports::world::World;

pub use fault::{FilesFault, OpenFault};
pub use migrations::SCHEMA_VERSION;

use connection::{Role, connect};
use database::Database;
use lock::{IfMissing, StoreLock};

/// Returns the bytes that this process may still write to the file system of a store's file. Returns `None` if the file
/// system does not report its size.
///
/// # Errors
/// Returns the error of the system when the folder of the file cannot be read.
pub fn free_bytes_beside(file: &std::path::Path) -> std::io::Result<Option<u64>> {
    backup::space::free_bytes(paths::folder_of(file))
}

/// Creates a folder that only its owner can access, and its missing parents. An existing folder is not changed.
///
/// # Errors
/// Returns the error of the system when the folder cannot be created.
pub fn create_private_folder(folder: &std::path::Path) -> std::io::Result<()> {
    private::create_folder(folder)
}

/// Returns the path of the write-ahead log of a database file. SQLite creates and deletes this file.
pub fn log_of(file: &std::path::Path) -> std::path::PathBuf {
    paths::beside(file, "-wal")
}

/// Returns the queue messages for newly accepted work. They are stored in the same database transaction as the work.
/// Called on the writer's thread, so it must neither block nor call the store.
pub type Enqueue = Arc<dyn Fn(&[&EncodedItem]) -> Vec<(QueueName, Vec<u8>)> + Send + Sync>;

/// Opens stores in SQLite files.
#[derive(Debug)]
pub enum SqliteStore {}

impl SqliteStore {
    /// Opens the file, creates or migrates it if necessary, and starts the writer's thread. The thread ends when the
    /// last port is dropped. By then all writes that have returned are in the database file.
    ///
    /// Only the owner may access the files of the store. Access of other users is removed with a warning.
    ///
    /// Blocks while it reads the schema, and for at most some seconds while another process migrates the file. The
    /// ports must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`OpenFault`] when the path does not name a file that this program can use.
    pub fn open(path: &Path, enqueue: Enqueue, world: Arc<dyn World>) -> Result<Store, OpenFault> {
        let operations = Arc::new(StorageOperations::default());
        let database = Database::open(path, world, Arc::clone(&operations))?;
        Ok(Self::ports(Arc::new(database), enqueue, operations))
    }

    /// Opens a file read-only, while other processes may use it. Nothing is created or migrated, and every write is
    /// refused. Access of other users is removed as in [`Self::open`].
    ///
    /// # Errors
    /// [`OpenFault`] when the path does not name a file with the schema of this program.
    pub fn open_to_read(path: &Path, world: Arc<dyn World>) -> Result<Store, OpenFault> {
        let operations = Arc::new(StorageOperations::default());
        let database = Database::open_to_read(path, world, Arc::clone(&operations))?;
        Ok(Self::ports(Arc::new(database), Arc::new(|_: &[&EncodedItem]| Vec::new()), operations))
    }

    /// Checkpoints the write-ahead log into the database file. Used by a process that is about to exit while a thread
    /// still holds a port. Blocks for at most some seconds while another process writes.
    ///
    /// # Errors
    /// [`OpenFault`] when the log cannot be checkpointed, for example because another process prevents it. No data is
    /// lost: the log remains, and the next process that opens the store reads both files.
    pub fn checkpoint(path: &Path) -> Result<(), OpenFault> {
        // The lock prevents a restore from replacing the file in the meantime.
        let _lock = StoreLock::shared(path, IfMissing::Leave)?;
        connect(path, Role::Checkpoint)
            .and_then(|connection| connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::TRUNCATE))
            .map(drop)
            .map_err(|source| OpenFault::Database { path: path.to_owned(), source })
    }

    fn ports(database: Arc<Database>, enqueue: Enqueue, operations: Arc<StorageOperations>) -> Store {
        let files = database.files();
        Store {
            ledger: Arc::new(ledger::SqliteLedger::new(Arc::clone(&database), enqueue)),
            accounts: Arc::new(accounts::SqliteAccounts::new(Arc::clone(&database))),
            log: Arc::new(log::SqliteLog::new(Arc::clone(&database))),
            archive: Arc::new(archive::SqliteArchive::new(Arc::clone(&database))),
            import: Arc::new(import::SqliteImport::new(Arc::clone(&database))),
            queue: Arc::new(queue::SqliteQueue::new(Arc::clone(&database))),
            dead_letters: Arc::new(dead_letters::SqliteDeadLetters::new(Arc::clone(&database))),
            sync: Arc::new(sync_store::SqliteSyncStore::new(Arc::clone(&database))),
            payloads: Arc::new(payload_store::SqlitePayloadStore::new(Arc::clone(&database))),
            api_keys: Arc::new(api_keys::SqliteApiKeys::new(Arc::clone(&database))),
            records: Arc::new(records::SqliteRecords::new(Arc::clone(&database))),
            order_numbers: Arc::new(order_number_index::SqliteOrderNumberIndex::new(Arc::clone(&database))),
            process_registry: Arc::new(process_registry::SqliteProcessRegistry::new(database)),
            rights: Arc::new(AllRights),
            clock: Arc::new(StoreClock::of_this_machine()),
            files,
            operations,
        }
    }
}
