//! A pool of a few reader threads, each with its own connection. Waiting clients get a reader in round-robin order.
//!
//! Each job reads from its own snapshot, which ends with the job. A long-lived snapshot would miss later commits and
//! prevent the reuse of the write-ahead log. The number of threads is small, and the last thread to read is the first
//! to read again, because each thread retains the memory of a large read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::connection::{Role, StoreConnection, connect};
use super::fair_pool::FairPool;
use super::fault::SqlFault;
use super::lock::StoreLock;
use super::open_files::OpenFiles;
use crate::access::current_client::current_client;
use crate::ports::fault::StoreFault;

/// Maximum number of read connections. Reads are short, and more connections would only compete for the same disk and cores.
const READERS_MAX: usize = 4;

/// How the store verifies that the paths still name its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checked {
    /// A background thread checks every second.
    BesideReads,
    /// Each read checks.
    ByReads,
}

/// A pool of readers that is fair between clients.
pub(super) struct Readers(Arc<FairPool<Reader>>);

/// Everything that a reader needs to open a connection.
struct Source {
    path: PathBuf,
    files: Arc<OpenFiles>,
    checked: Checked,
    /// Keeps the store locked, because a read may outlive the ports.
    _lock: Arc<StoreLock>,
}

/// A thread with its connection. Both are created by the first read.
struct Reader {
    source: Arc<Source>,
    /// A connection that was opened before the thread was started.
    opened: Option<StoreConnection>,
    running: Option<Running>,
}

/// A thread that runs jobs until the channel is closed.
struct Running {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

/// A read that also sends its result. It owns its reader and releases it when the read has ended.
type Job = Box<dyn FnOnce(&mut Slot) + Send>;

/// The state that a thread keeps between jobs: its connection, once it is open.
struct Slot {
    source: Arc<Source>,
    connection: Option<StoreConnection>,
}

impl Readers {
    /// Creates the pool. Connections are opened on first use, except `opened`.
    pub(super) fn new(
        path: &Path,
        (files, checked): (Arc<OpenFiles>, Checked),
        lock: Arc<StoreLock>,
        opened: Option<StoreConnection>,
    ) -> Self {
        let source = Arc::new(Source { path: path.to_owned(), files, checked, _lock: lock });
        let reader = |opened| Reader { source: Arc::clone(&source), opened, running: None };
        // The pool lends the last resource first, so the open connection is used before new ones are opened.
        let further = (1..READERS_MAX).map(|_| reader(None));
        let readers: Vec<Reader> = further.chain([reader(opened)]).collect();
        Self(FairPool::new(readers))
    }

    /// Runs a job on one of the connections when it is the current client's turn. A job that has started is finished
    /// even if the caller stops waiting.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        job: impl FnOnce(&Connection) -> Result<T, SqlFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let unavailable = move |source| StoreFault::Unavailable { doing, source };
        let (answer, answered) = oneshot::channel();
        self.0.request(current_client(), move |mut reader| {
            if answer.is_closed() {
                return Some(reader);
            }
            let jobs = match reader.resource().jobs() {
                Ok(jobs) => jobs,
                Err(source) => {
                    drop(answer.send(Err(unavailable(source.into()))));
                    return Some(reader);
                }
            };
            let job = move |slot: &mut Slot| {
                let outcome = slot.run(job).map_err(|fault| fault.doing(doing));
                // The reader is released before the outcome is sent, so that the next read starts without delay.
                drop(reader);
                // The receiver is dropped if the caller was canceled.
                drop(answer.send(outcome));
            };
            // If the thread has ended, dropping the job also drops the sender of the answer.
            drop(jobs.send(Box::new(job)));
            None
        });
        answered.await.map_err(|_| unavailable("the reader's thread has ended".into()))?
    }
}

impl Reader {
    /// Returns the channel to the thread, and starts the thread if it is not running.
    fn jobs(&mut self) -> std::io::Result<Sender<Job>> {
        if let Some(running) = &self.running {
            return Ok(running.jobs.clone());
        }
        let (jobs, waiting) = channel();
        let mut slot = Slot { source: Arc::clone(&self.source), connection: self.opened.take() };
        let thread = thread::Builder::new()
            .name("sqlite-reader".to_owned())
            .spawn(move || serve(&mut slot, &waiting))?;
        self.running = Some(Running { jobs: jobs.clone(), thread });
        Ok(jobs)
    }
}

impl Drop for Reader {
    /// Waits until the connection is closed, so that the store can be opened again, except on the reader's own thread.
    fn drop(&mut self) {
        let Some(Running { jobs, thread }) = self.running.take() else { return };
        drop(jobs);
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("A thread that reads the database panicked");
        }
    }
}

fn serve(slot: &mut Slot, waiting: &Receiver<Job>) {
    while let Ok(job) = waiting.recv() {
        // A thread that ends is not replaced. Unwind safe: the slot has a connection between two reads, or none.
        if catch_unwind(AssertUnwindSafe(|| job(slot))).is_err() {
            tracing::error!("A thread that reads the database panicked, and continues");
        }
    }
}

impl Slot {
    fn run<T>(&mut self, job: impl FnOnce(&Connection) -> Result<T, SqlFault>) -> Result<T, SqlFault> {
        match self.source.checked {
            Checked::BesideReads => self.source.files.known()?,
            Checked::ByReads => self.source.files.check()?,
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.source.open()?,
        };
        // Unwind safe: a panic drops the connection, which ends its transaction, and the next read opens a new one.
        let read = catch_unwind(AssertUnwindSafe(|| (snapshot(&connection, job), connection)));
        let (outcome, connection) = read.map_err(|panic| SqlFault::of_panic(&*panic))?;
        self.connection = Some(connection);
        outcome
    }
}

impl Source {
    fn open(&self) -> Result<StoreConnection, SqlFault> {
        // SQLite opens the files by path, so the paths are checked before and after.
        self.files.check()?;
        let connection = StoreConnection::new(connect(&self.path, Role::Read)?, Arc::clone(&self.files));
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        self.files.check()?;
        Ok(connection)
    }
}

/// Runs a job in one transaction, so that all its statements read from the same snapshot.
fn snapshot<T>(
    connection: &Connection,
    job: impl FnOnce(&Connection) -> Result<T, SqlFault>,
) -> Result<T, SqlFault> {
    let sql_tx = connection.unchecked_transaction()?;
    let outcome = job(&sql_tx)?;
    sql_tx.finish()?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::super::lock::IfMissing;
    use super::*;

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[tokio::test]
    async fn a_thread_reads_on_after_a_panic_outside_of_a_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.db");
        drop(connect(&path, Role::Write).unwrap());
        let lock = Arc::new(StoreLock::shared(&path, IfMissing::Create).unwrap());
        let readers = Readers::new(&path, (Arc::new(OpenFiles::none()), Checked::BesideReads), lock, None);
        let (mut go_on, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..READERS_MAX {
            let (sender, waiting) = channel::<()>();
            let mut read = Box::pin(readers.run("reading", move |_| {
                let _dropped = waiting.recv();
                Ok(PanicsWhenDropped)
            }));
            assert!((&mut read).now_or_never().is_none());
            go_on.push(sender);
            reads.push(read);
        }
        // One of them is canceled, and then goes on.
        drop(reads.pop());
        drop(go_on.pop());
        assert_eq!(readers.run("reading", |_| Ok(7)).await.unwrap(), 7, "it has the reader of that one");
    }
}
