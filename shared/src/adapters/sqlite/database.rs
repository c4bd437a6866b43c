//! Access to the database file for the ports: reads, and writes that return when they are durable.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

use super::checkpointer::Checkpointer;
use super::connection::{Role, StoreConnection, connect, has_moved};
use super::fault::{FilesFault, OpenFault, SqlFault};
use super::lock::{IfMissing, StoreLock};
use super::migrations::{check_current, migrate};
use super::open_files::OpenFiles;
use super::paths::{beside, resolved};
use super::private;
use super::reader::{Checked, Readers};
use super::writer::{Verdict, Writer};
use crate::ports::fault::StoreFault;
use crate::ports::operations::{Operation, StorageOperations};
use crate::ports::store_files::StoreFiles;
use crate::ports::world::World;

/// Suffixes of the files that SQLite keeps open beside a WAL-mode database while a connection is open.
const KEPT_OPEN: [&str; 2] = ["-wal", "-shm"];

/// Error for a write to a read-only store.
#[derive(Debug, thiserror::Error)]
#[error("the database was opened for reading only")]
struct ReadOnly;

/// An open database file, shared by all ports of a store.
pub(super) struct Database {
    readers: Readers,
    /// `None` if the file was opened read-only.
    writer: Option<Writer>,
    /// Dropped after the writer, which uses it.
    _checkpointer: Option<Checkpointer>,
    files: StoreFiles,
    operations: Arc<StorageOperations>,
    world: Arc<dyn World>,
    /// Whether this process has enqueued a message since its last receive.
    queued: AtomicBool,
    /// The last field, so that the lock is released only after the writer's thread has ended.
    _lock: Arc<StoreLock>,
}

impl Database {
    pub(super) fn open(
        path: &Path,
        world: Arc<dyn World>,
        operations: Arc<StorageOperations>,
    ) -> Result<Self, OpenFault> {
        if let Some(folder) = path.parent() {
            private::create_folder(folder)
                .map_err(|source| OpenFault::Folder { folder: folder.to_owned(), source })?;
        }
        refuse_other_kinds(path)?;
        let lock = Arc::new(StoreLock::shared(path, IfMissing::Create)?);
        private::restrict(path);
        let mut connection = connect(path, Role::Write)
            .map_err(|source| OpenFault::Database { path: path.to_owned(), source })?;
        migrate(&connection, path)?;
        let files = Arc::new(identify(path, &KEPT_OPEN, (&connection, &lock))?);
        lock.record_log(path);
        let checkpointer = Some(Checkpointer::start(path, &mut connection, (&files, &lock))?);
        let writer = Some(Writer::start(connection, Arc::clone(&files))?);
        let checked = (Arc::clone(&files), Checked::BesideReads);
        let readers = Readers::new(path, checked, Arc::clone(&lock), None);
        let (files, queued) = (files.told(), AtomicBool::new(false));
        Ok(Self {
            readers,
            writer,
            _checkpointer: checkpointer,
            files,
            operations,
            world,
            queued,
            _lock: lock,
        })
    }

    /// Opens an existing file with the schema of this program read-only: nothing is migrated, and every write is refused.
    pub(super) fn open_to_read(
        path: &Path,
        world: Arc<dyn World>,
        operations: Arc<StorageOperations>,
    ) -> Result<Self, OpenFault> {
        if !path.is_file() {
            return Err(OpenFault::Missing { path: path.to_owned() });
        }
        // The lock prevents a restore from replacing the file in the meantime.
        let lock = Arc::new(StoreLock::shared(path, IfMissing::Leave)?);
        private::restrict(path);
        let connection = connect(path, Role::Read)
            .map_err(|source| OpenFault::Database { path: path.to_owned(), source })?;
        check_current(&connection, path)?;
        // A backup has no write-ahead log.
        let is_there = |suffix: &&str| beside(&resolved(path), suffix).exists();
        let sidecars: Vec<_> = KEPT_OPEN.into_iter().filter(is_there).collect();
        let files = Arc::new(identify(path, &sidecars, (&connection, &lock))?);
        // Stays open: closing the last connection deletes the write-ahead log, and the next connection would create another.
        let opened = StoreConnection::new(connection, Arc::clone(&files));
        let checked = (Arc::clone(&files), Checked::ByReads);
        let readers = Readers::new(path, checked, Arc::clone(&lock), Some(opened));
        let (files, queued) = (files.told(), AtomicBool::new(false));
        Ok(Self { readers, writer: None, _checkpointer: None, files, operations, world, queued, _lock: lock })
    }

    /// Returns whether the paths of the open files still name these files.
    pub(super) fn files(&self) -> StoreFiles {
        self.files.clone()
    }

    pub(super) fn world(&self) -> Arc<dyn World> {
        Arc::clone(&self.world)
    }

    /// Counts an operation of several statements that are not counted themselves.
    pub(super) fn count(&self, operation: Operation) {
        self.operations.count(operation);
    }

    /// Records that this process enqueued a message.
    pub(super) fn note_queued(&self) {
        self.queued.store(true, Ordering::Relaxed);
    }

    /// Returns whether this process has enqueued a message since the last call.
    pub(super) fn take_queued(&self) -> bool {
        self.queued.swap(false, Ordering::Relaxed)
    }

    /// Runs a job on a snapshot of the file that contains all writes that have returned. Counts one operation.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        operation: Operation,
        doing: &'static str,
        job: impl FnOnce(&Connection) -> Result<T, SqlFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        self.observed(operation, self.readers.run(doing, job)).await
    }

    /// Runs a job atomically on the writer's thread, even if the caller stops waiting. Returns when the job is durable.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        operation: Operation,
        doing: &'static str,
        job: impl FnOnce(&Connection) -> Result<Verdict<T>, SqlFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        self.observed(operation, self.write_uncounted(doing, job)).await
    }

    /// Counts an operation and records its duration.
    async fn observed<T>(
        &self,
        operation: Operation,
        result: impl Future<Output = Result<T, StoreFault>>,
    ) -> Result<T, StoreFault> {
        self.operations.count(operation);
        let began = self.world.uptime();
        let result = result.await;
        self.operations.answered(operation, self.world.uptime().saturating_sub(began), result.is_err());
        result
    }

    /// Writes without counting, for the second part of an operation that is already counted.
    pub(super) async fn write_uncounted<T: Send + 'static>(
        &self,
        doing: &'static str,
        job: impl FnOnce(&Connection) -> Result<Verdict<T>, SqlFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let Some(writer) = &self.writer else {
            return Err(StoreFault::Refused { doing, source: Box::new(ReadOnly) });
        };
        writer.run(doing, job).await
    }
}

/// Records the identities of the files that a connection has open.
fn identify(
    path: &Path,
    sidecars: &[&str],
    (connection, lock): (&Connection, &StoreLock),
) -> Result<OpenFiles, OpenFault> {
    let files = OpenFiles::of(path, sidecars, lock.identity()?)?;
    match has_moved(connection) {
        Ok(false) => Ok(files),
        Ok(true) => Err(FilesFault::Replaced { path: path.to_owned() }.into()),
        Err(source) => Err(OpenFault::Database { path: path.to_owned(), source }),
    }
}

/// Refuses a path that names something other than a regular file, and a dangling symbolic link.
fn refuse_other_kinds(path: &Path) -> Result<(), OpenFault> {
    let refused = |reason| Err(OpenFault::NoFile { path: path.to_owned(), reason });
    match path.metadata() {
        Ok(found) if found.is_dir() => refused("it is a folder; name a file in it"),
        Ok(found) if !found.is_file() => refused("it is not a regular file"),
        Err(_) if path.is_symlink() => refused("it is a symbolic link to a file that cannot be found"),
        // Other errors of metadata are reported when the file is opened.
        Ok(_) | Err(_) => Ok(()),
    }
}
