//! A pool of a few read connections, on tokio's threads for blocking work. Clients that wait for one get it in turn.
//!
//! Each job has its own snapshot, and releases it at once: a long-lived snapshot would not contain later commits, and
//! would prevent the reuse of the write-ahead log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::connection::{Role, StoreConnection, connect};
use super::fair_permits::FairPermits;
use super::fault::SqlFault;
use super::lock::StoreLock;
use super::open_files::OpenFiles;
use crate::access::current_client::current_client;
use crate::ports::fault::StoreFault;

/// Maximum number of read connections. Reads are short; more would only compete for the same disk and cores.
const READERS_MAX: usize = 4;

/// Who checks, each second, whether the files are still those of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checked {
    /// A thread.
    BesideReads,
    /// Nobody: each read does it.
    ByReads,
}

/// The pool of read connections.
pub(super) struct Readers {
    permits: Arc<FairPermits>,
    pool: Arc<Pool>,
}

struct Pool {
    path: PathBuf,
    files: Arc<OpenFiles>,
    checked: Checked,
    idle: Mutex<Vec<StoreConnection>>,
    /// The last field: a read may outlive the ports.
    _lock: Arc<StoreLock>,
}

impl Readers {
    /// Creates the pool. Connections are opened when they are first needed.
    pub(super) fn new(
        path: &Path,
        (files, checked): (Arc<OpenFiles>, Checked),
        lock: Arc<StoreLock>,
    ) -> Self {
        let pool = Pool { path: path.to_owned(), files, checked, idle: Mutex::default(), _lock: lock };
        Self { permits: FairPermits::new(READERS_MAX), pool: Arc::new(pool) }
    }

    /// Adds a connection that is already open.
    pub(super) fn keep(&self, connection: StoreConnection) {
        self.pool.put_back(connection);
    }

    /// Runs a job on one of the connections.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        job: impl FnOnce(&Connection) -> Result<T, SqlFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let unavailable = |source| StoreFault::Unavailable { doing, source };
        let permit = self.permits.take(current_client()).await;
        let pool = Arc::clone(&self.pool);
        // The permit is free again also if nobody waits for the outcome any more.
        let read = tokio::task::spawn_blocking(move || (pool.run(job), permit));
        match read.await {
            // The next read begins when the thread of this one is free: each further thread keeps memory.
            Ok((outcome, _permit)) => outcome.map_err(|fault| fault.doing(doing)),
            // A bug: a retry would panic as well. The connection is lost, and a new one replaces it.
            Err(ended) if ended.is_panic() => Err(StoreFault::Refused { doing, source: ended.into() }),
            // The runtime shuts down.
            Err(ended) => Err(unavailable(ended.into())),
        }
    }
}

impl Pool {
    fn run<T>(&self, job: impl FnOnce(&Connection) -> Result<T, SqlFault>) -> Result<T, SqlFault> {
        let connection = self.take()?;
        let outcome = snapshot(&connection, job);
        self.put_back(connection);
        outcome
    }

    fn take(&self) -> Result<StoreConnection, SqlFault> {
        match self.checked {
            Checked::BesideReads => self.files.known()?,
            Checked::ByReads => self.files.check()?,
        }
        if let Some(idle) = self.idle.lock().pop() {
            return Ok(idle);
        }
        // SQLite opens the files by their paths.
        self.files.check()?;
        let connection = StoreConnection::new(connect(&self.path, Role::Read)?, Arc::clone(&self.files));
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        self.files.check()?;
        Ok(connection)
    }

    fn put_back(&self, connection: StoreConnection) {
        self.idle.lock().push(connection);
    }
}

/// Runs a job in one transaction, so that all of its statements read the same snapshot.
fn snapshot<T>(
    connection: &Connection,
    job: impl FnOnce(&Connection) -> Result<T, SqlFault>,
) -> Result<T, SqlFault> {
    let sql_tx = connection.unchecked_transaction()?;
    let outcome = job(&sql_tx)?;
    sql_tx.finish()?;
    Ok(outcome)
}
