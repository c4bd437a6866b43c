//! The writer's thread, which commits the jobs of many callers together (group commit).
//!
//! 1. The thread waits for a job and begins a database transaction. `BEGIN IMMEDIATE` acquires the write lock first, so
//!    that no other process can change the data that the jobs read.
//! 2. It runs this job and all waiting jobs up to a limit, each in a savepoint. A job that fails, panics or finds that
//!    a guard does not hold is rolled back alone.
//! 3. It commits, checks that the paths of the store still name the written files (`open_files`), and then answers. If
//!    the COMMIT or the check fails, it is unknown what is stored, so the callers receive [`StoreFault::Unavailable`],
//!    unless their job itself failed. This includes callers whose guard did not hold, because the change that broke the
//!    guard may be lost. Nothing is written any more once the files are known to be lost.
//!
//! No timer is involved: while one COMMIT runs, the jobs for the next one accumulate.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::connection::StoreConnection;
use super::fault::{FilesFault, OpenFault, SqlFault};
use super::open_files::OpenFiles;
use crate::ports::fault::StoreFault;

/// Maximum number of jobs per COMMIT. It bounds how long the first job waits for the last one.
const GROUP_JOBS_MAX: usize = 128;

/// Capacity of the job channel. Callers wait while it is full.
const WAITING_JOBS_MAX: usize = 1024;

/// Maximum wait for the result of a job, so that a disk that does not respond cannot block callers for ever. It is
/// several times the maximum wait for the lock of another process.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Whether the changes of a job are kept.
pub(super) enum Verdict<T> {
    /// Every guard held. The changes are kept.
    Keep(T),
    /// A guard did not hold. All changes of the job are rolled back.
    Undo(T),
}

/// Why the outcome of all jobs of a group is unknown.
#[derive(Debug, thiserror::Error)]
enum GroupFault {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    /// The paths of the store no longer name its files.
    #[error(transparent)]
    Files(#[from] FilesFault),
}

impl GroupFault {
    fn is_full(&self) -> bool {
        match self {
            Self::Database(error) => is_full(error),
            Self::Files(_) => false,
        }
    }
}

/// Handle to the writer's thread.
pub(super) struct Writer {
    /// `None` only during `drop`.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    commits: Arc<AtomicU64>,
    answer_max: Duration,
}

impl Writer {
    pub(super) fn start(connection: Connection, files: Arc<OpenFiles>) -> Result<Self, OpenFault> {
        let (jobs, waiting) = mpsc::channel(WAITING_JOBS_MAX);
        let commits = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&commits);
        let connection = StoreConnection::new(connection, Arc::clone(&files));
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || serve(&connection, &files, waiting, &counter))
            .map_err(OpenFault::Thread)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), commits, answer_max: ANSWER_MAX })
    }

    /// Runs a job and waits until it is committed. The job may still run after a timeout.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        body: impl FnOnce(&Connection) -> Result<Verdict<T>, SqlFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let ended = || StoreFault::Unavailable { doing, source: "the writer's thread has ended".into() };
        let (answer, answered) = oneshot::channel();
        let job = TypedJob { doing, body: Some(body), outcome: None, answer };
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        let result = async {
            jobs.send(Box::new(job)).await.map_err(|_| ended())?;
            answered.await.map_err(|_| ended())?
        };
        let late =
            |elapsed: tokio::time::error::Elapsed| StoreFault::Unavailable { doing, source: elapsed.into() };
        tokio::time::timeout(self.answer_max, result).await.map_err(late)?
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    /// Lets the thread finish the waiting jobs and joins it, so that its lock is released before the store is opened again.
    fn drop(&mut self) {
        drop(self.jobs.take());
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() {
            tracing::error!("The writer's thread of the database panicked");
        }
        tracing::debug!(commits = self.commits(), "The writer's thread of the database ended");
    }
}

/// A job with an erased result type.
trait Job: Send {
    /// Runs the job. Returns whether its changes are kept.
    fn attempt(&mut self, connection: &Connection) -> bool;

    /// Returns whether the job failed because the disk was full.
    fn found_disk_full(&self) -> bool;

    /// Sends the result to the caller, after the COMMIT succeeded or failed.
    fn answer(self: Box<Self>, committed: &Result<(), Arc<GroupFault>>);
}

struct TypedJob<T, F> {
    doing: &'static str,
    body: Option<F>,
    outcome: Option<Result<T, SqlFault>>,
    answer: oneshot::Sender<Result<T, StoreFault>>,
}

impl<T, F> Job for TypedJob<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<Verdict<T>, SqlFault> + Send,
{
    fn attempt(&mut self, connection: &Connection) -> bool {
        let Some(body) = self.body.take() else { return false };
        // This is unwind safe: the savepoint rolls back the changes of the job, and no other state of the job is observable.
        let ended = catch_unwind(AssertUnwindSafe(|| body(connection)));
        let (outcome, keep) = match ended {
            Ok(Ok(Verdict::Keep(value))) => (Ok(value), true),
            Ok(Ok(Verdict::Undo(value))) => (Ok(value), false),
            Ok(Err(fault)) => (Err(fault), false),
            Err(panic) => (Err(SqlFault::of_panic(&*panic)), false),
        };
        self.outcome = Some(outcome);
        keep
    }

    fn found_disk_full(&self) -> bool {
        matches!(&self.outcome, Some(Err(SqlFault::Database(error))) if is_full(error))
    }

    fn answer(self: Box<Self>, committed: &Result<(), Arc<GroupFault>>) {
        let Self { doing, body: _, outcome, answer } = *self;
        let result = match (outcome, committed) {
            (Some(Err(fault)), _) => Err(fault.doing(doing)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (Some(Ok(_)) | None, Err(source)) => {
                Err(StoreFault::Unavailable { doing, source: Arc::clone(source).into() })
            }
            (None, Ok(())) => Err(StoreFault::Unavailable { doing, source: "the job did not run".into() }),
        };
        // The receiver is dropped if the caller was canceled. The changes are kept.
        drop(answer.send(result));
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

fn serve(
    connection: &Connection,
    files: &OpenFiles,
    mut waiting: mpsc::Receiver<Box<dyn Job>>,
    commits: &AtomicU64,
) {
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        let committed = commit_to_store(connection, files, &mut group, &mut waiting).map_err(Arc::new);
        match &committed {
            Ok(()) => {
                commits.fetch_add(1, Ordering::Relaxed);
            }
            Err(fault) => match &**fault {
                GroupFault::Database(error) => {
                    tracing::warn!(%error, jobs = group.len(), "A database transaction failed");
                }
                // This fault was logged when it was found.
                GroupFault::Files(_) => {}
            },
        }
        let full = committed.as_ref().is_err_and(|fault| fault.is_full());
        let full = full || group.iter().any(|job| job.found_disk_full());
        for job in group {
            job.answer(&committed);
        }
        if full {
            truncate_log(connection);
        }
    }
}

/// Truncates the write-ahead log, which may be what fills the disk, after copying its pages to the database file. This
/// is not possible while the checkpointer runs. The next transaction that finds the disk full then retries.
fn truncate_log(connection: &Connection) {
    let emptied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    match emptied {
        Ok(busy) => {
            tracing::warn!(busy, "The disk is full; the write-ahead log was truncated as far as possible")
        }
        Err(error) => tracing::warn!(%error, "The disk is full, and the write-ahead log cannot be truncated"),
    }
}

/// Runs the waiting jobs. Returns `Ok` only if they are committed to the files that the paths of the store name.
fn commit_to_store(
    connection: &Connection,
    files: &OpenFiles,
    group: &mut Vec<Box<dyn Job>>,
    waiting: &mut mpsc::Receiver<Box<dyn Job>>,
) -> Result<(), GroupFault> {
    files.known()?;
    write_group(connection, group, waiting)?;
    Ok(files.check()?)
}

/// Runs the waiting jobs in one transaction. If it fails, `group` contains every job that must receive the error.
fn write_group(
    connection: &Connection,
    group: &mut Vec<Box<dyn Job>>,
    waiting: &mut mpsc::Receiver<Box<dyn Job>>,
) -> rusqlite::Result<()> {
    // Dropping the transaction rolls it back.
    let sql_tx = match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
        Ok(sql_tx) => sql_tx,
        Err(error) => {
            // The jobs that arrived during the wait for the lock fail too. Otherwise each job would wait for the
            // timeouts of all jobs before it.
            while let Some(next) = next_of(group, waiting) {
                group.push(next);
            }
            return Err(error);
        }
    };
    for job in &mut *group {
        attempt_in_savepoint(&sql_tx, &mut **job)?;
    }
    while let Some(mut next) = next_of(group, waiting) {
        let attempted = attempt_in_savepoint(&sql_tx, &mut *next);
        group.push(next);
        attempted?;
    }
    sql_tx.commit()
}

fn next_of(group: &[Box<dyn Job>], waiting: &mut mpsc::Receiver<Box<dyn Job>>) -> Option<Box<dyn Job>> {
    if group.len() < GROUP_JOBS_MAX { waiting.try_recv().ok() } else { None }
}

/// Runs a job in a savepoint. Returns an error only if the whole transaction failed: after some errors SQLite rolls
/// back the whole transaction, and the savepoint no longer exists.
fn attempt_in_savepoint(connection: &Connection, job: &mut dyn Job) -> rusqlite::Result<()> {
    connection.prepare_cached("SAVEPOINT job")?.execute([])?;
    if !job.attempt(connection) {
        connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    connection.prepare_cached("RELEASE job")?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests;
