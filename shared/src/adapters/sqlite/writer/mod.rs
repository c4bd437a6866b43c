//! The one thread that writes, and how many callers share one COMMIT.
//!
//! 1. The thread waits for a job and begins a database transaction (`BEGIN IMMEDIATE`: the lock is
//!    taken first, so that nothing that is read under it can be overtaken).
//! 2. It runs that job and all that wait, up to a limit, each in a savepoint. A job that fails, panics
//!    or finds a guard broken is rolled back alone; the others stay.
//! 3. It commits, and only then answers. Where the COMMIT failed nobody knows what is stored, so that
//!    everybody hears [`StoreFault::Unavailable`]: also those who only found a guard broken, since
//!    what broke it may be gone.
//!
//! Nothing waits for a timer: while one COMMIT is under way, the jobs of the next one collect.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::fault::{OpenFault, SqlFault};
use crate::ports::fault::StoreFault;

/// Most jobs of one COMMIT: a bound on how long the first of them waits for the last.
const GROUP_JOBS_MAX: usize = 128;

/// Most jobs that wait in the channel; who comes then waits in front of it.
const WAITING_JOBS_MAX: usize = 1024;

/// Longest wait for the answer to a job: several times as long as the thread waits for the lock of
/// another process. A disk that hangs must not hold every caller for ever.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// What a job decided about what it wrote.
pub(super) enum Verdict<T> {
    /// Every guard held: keep it.
    Keep(T),
    /// A guard did not hold: undo all of it.
    Undo(T),
}

/// The way to the thread that writes.
pub(super) struct Writer {
    /// `None` only while it is dropped.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    commits: Arc<AtomicU64>,
    answer_max: Duration,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(connection: Connection) -> Result<Self, OpenFault> {
        let (jobs, waiting) = mpsc::channel(WAITING_JOBS_MAX);
        let commits = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&commits);
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || serve(&connection, waiting, &counter))
            .map_err(OpenFault::Thread)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), commits, answer_max: ANSWER_MAX })
    }

    /// Runs a job and waits until it is committed. Without an answer in time it may still run.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        body: impl FnOnce(&Connection) -> Result<Verdict<T>, SqlFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let ended = || StoreFault::Unavailable { doing, source: "the thread that writes has ended".into() };
        let (answer, answered) = oneshot::channel();
        let errand = Errand { doing, body: Some(body), outcome: None, answer };
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        let told = async {
            jobs.send(Box::new(errand)).await.map_err(|_| ended())?;
            answered.await.map_err(|_| ended())?
        };
        let late =
            |elapsed: tokio::time::error::Elapsed| StoreFault::Unavailable { doing, source: elapsed.into() };
        tokio::time::timeout(self.answer_max, told).await.map_err(late)?
    }

    /// How many database transactions were committed so far.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    /// Lets the thread finish what waits, and waits for it, so that a store that is opened next does
    /// not meet this one's lock.
    fn drop(&mut self) {
        drop(self.jobs.take());
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() {
            tracing::error!("The thread that writes to the database panicked");
        }
        tracing::debug!(commits = self.commits(), "The thread that writes to the database ended");
    }
}

/// A job without its type.
trait Job: Send {
    /// Runs it; true when what it wrote is to be kept.
    fn attempt(&mut self, connection: &Connection) -> bool;

    /// Whether it failed because the disk is full.
    fn met_full_disk(&self) -> bool;

    /// Tells the caller, now that it is known whether the transaction was committed.
    fn answer(self: Box<Self>, committed: &Result<(), Arc<rusqlite::Error>>);
}

struct Errand<T, F> {
    doing: &'static str,
    body: Option<F>,
    outcome: Option<Result<T, SqlFault>>,
    answer: oneshot::Sender<Result<T, StoreFault>>,
}

impl<T, F> Job for Errand<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<Verdict<T>, SqlFault> + Send,
{
    fn attempt(&mut self, connection: &Connection) -> bool {
        let Some(body) = self.body.take() else { return false };
        // Unwind safe: the savepoint takes back what the job left half done in the database, and
        // nobody sees anything else of it.
        let ended = catch_unwind(AssertUnwindSafe(|| body(connection)));
        let (outcome, keep) = match ended {
            Ok(Ok(Verdict::Keep(value))) => (Ok(value), true),
            Ok(Ok(Verdict::Undo(value))) => (Ok(value), false),
            Ok(Err(fault)) => (Err(fault), false),
            Err(panic) => (Err(SqlFault::Refused(format!("a bug: {}", words_of(&*panic)))), false),
        };
        self.outcome = Some(outcome);
        keep
    }

    fn met_full_disk(&self) -> bool {
        matches!(&self.outcome, Some(Err(SqlFault::Database(error))) if is_full(error))
    }

    fn answer(self: Box<Self>, committed: &Result<(), Arc<rusqlite::Error>>) {
        let Self { doing, body: _, outcome, answer } = *self;
        let told = match (outcome, committed) {
            (Some(Err(fault)), _) => Err(fault.doing(doing)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (Some(Ok(_)) | None, Err(source)) => {
                Err(StoreFault::Unavailable { doing, source: Arc::clone(source).into() })
            }
            (None, Ok(())) => Err(StoreFault::Unavailable { doing, source: "the job did not run".into() }),
        };
        // Nobody listens when the caller was canceled; what is written stays written.
        drop(answer.send(told));
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

fn serve(connection: &Connection, mut waiting: mpsc::Receiver<Box<dyn Job>>, commits: &AtomicU64) {
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        let committed = write_group(connection, &mut group, &mut waiting).map_err(Arc::new);
        match &committed {
            Ok(()) => {
                commits.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%error, jobs = group.len(), "A database transaction failed"),
        }
        let full = committed.as_ref().is_err_and(|error| is_full(error));
        let full = full || group.iter().any(|job| job.met_full_disk());
        for job in group {
            job.answer(&committed);
        }
        if full {
            give_room_back(connection);
        }
    }
}

/// Empties the write-ahead log, which may be what fills the disk: what was committed moves to the
/// file, and the log has no length any more. Not while it is moved beside this thread; then the next
/// transaction that meets the full disk tries again.
fn give_room_back(connection: &Connection) {
    let emptied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    match emptied {
        Ok(busy) => {
            tracing::warn!(busy, "The disk is full; the write-ahead log was given back as far as possible")
        }
        Err(error) => tracing::warn!(%error, "The disk is full, and the write-ahead log cannot be emptied"),
    }
}

/// Writes what waits in one transaction. When it fails, `group` has everybody who has to hear it.
fn write_group(
    connection: &Connection,
    group: &mut Vec<Box<dyn Job>>,
    waiting: &mut mpsc::Receiver<Box<dyn Job>>,
) -> rusqlite::Result<()> {
    // Rolled back when dropped.
    let sql_tx = match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
        Ok(sql_tx) => sql_tx,
        Err(error) => {
            // Whoever came while we waited for the lock hears it too, or the last one in the line
            // would wait that long for each one before.
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

/// An error here is of the whole transaction: some failures make SQLite roll all of it back by
/// itself, and then the savepoint is gone.
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
