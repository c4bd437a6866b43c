//! A pool of a few threads that read, each with a connection of its own. Clients that wait for one get it in turn.
//!
//! Each job has its own snapshot, and releases it at once: a long-lived snapshot would not contain later commits, and
//! would prevent the reuse of the write-ahead log. The threads are few, and the one that read last is the first to read again,
//! because the memory that a large read has used is kept for the next one by each thread.

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

/// Readers that clients use in turn.
pub(super) struct Readers(Arc<FairPool<Reader>>);

/// What readers need to open a connection.
struct Source {
    path: PathBuf,
    files: Arc<OpenFiles>,
    checked: Checked,
    /// A read may outlive the ports.
    _lock: Arc<StoreLock>,
}

/// One thread with its connection. Both are there after the first read.
struct Reader {
    source: Arc<Source>,
    /// A connection that was open before the thread starts.
    opened: Option<StoreConnection>,
    running: Option<Running>,
}

/// A thread that runs jobs until there are no more.
struct Running {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

/// A read, with what becomes of its result. The reader is in the job, and is free again when the job has ended.
type Job = Box<dyn FnOnce(&mut Slot) + Send>;

/// What a thread keeps between its jobs: its connection, once it is open.
struct Slot {
    source: Arc<Source>,
    connection: Option<StoreConnection>,
}

impl Readers {
    /// Creates the pool. Connections are opened when they are first needed; `opened` is already open.
    pub(super) fn new(
        path: &Path,
        (files, checked): (Arc<OpenFiles>, Checked),
        lock: Arc<StoreLock>,
        opened: Option<StoreConnection>,
    ) -> Self {
        let source = Arc::new(Source { path: path.to_owned(), files, checked, _lock: lock });
        let reader = |opened| Reader { source: Arc::clone(&source), opened, running: None };
        // The pool lends the last one first, so an open connection is used before others are opened.
        let further = (1..READERS_MAX).map(|_| reader(None));
        let readers: Vec<Reader> = further.chain([reader(opened)]).collect();
        Self(FairPool::new(readers))
    }

    /// Runs a job on one of the connections, when it is the turn of the client for which this is called. A job that has begun is
    /// finished even if the caller does not wait any more.
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
                // The next read begins before anybody looks at the outcome of this one.
                drop(reader);
                // The receiver is gone if the caller was canceled.
                drop(answer.send(outcome));
            };
            // Without the thread, the answer is dropped with the job.
            drop(jobs.send(Box::new(job)));
            None
        });
        answered.await.map_err(|_| unavailable("the reader's thread has ended".into()))?
    }
}

impl Reader {
    /// Returns where the thread takes its jobs, and starts it if there is none.
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
    /// Waits until the connection is closed, so that the store can be opened again, unless its own thread is the last user.
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
        // Nobody replaces the thread. Unwind safe: the slot has a connection between two reads, or none.
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
        // Unwind safe: the connection is closed, which ends its transaction, and a new one replaces it.
        let read = catch_unwind(AssertUnwindSafe(|| (snapshot(&connection, job), connection)));
        let (outcome, connection) = read.map_err(|panic| SqlFault::of_panic(&*panic))?;
        self.connection = Some(connection);
        outcome
    }
}

impl Source {
    fn open(&self) -> Result<StoreConnection, SqlFault> {
        // SQLite opens the files by their paths.
        self.files.check()?;
        let connection = StoreConnection::new(connect(&self.path, Role::Read)?, Arc::clone(&self.files));
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        self.files.check()?;
        Ok(connection)
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
