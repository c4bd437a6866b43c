//! The thread that checkpoints the write-ahead log: it moves committed pages from the log to the database file. Every second it
//! also checks that both are still the files of the store.
//!
//! By default SQLite does this on the writer's thread, at the end of the COMMIT that makes the log long: some thousand
//! pages are copied and synced while all callers wait for that COMMIT. Here another thread copies them in parallel:
//!
//! 1. The writer wakes the thread when the log is long.
//! 2. The thread moves the pages of the log, and then those that were added in the meantime, fewer each time.
//! 3. The writer moves the last few pages itself, at the end of its next COMMIT. This process writes nothing
//!    meanwhile, so that the log is mostly empty afterwards, and is reused from its start.
//!
//! SQLite decides when a log may be reused: all of its pages have to be moved and synced. It syncs the database file
//! only after a checkpoint during which nothing was committed; if a COMMIT interrupts each checkpoint of the thread,
//! the writer syncs as well.
//!
//! When a file of the store is removed, moved or replaced, nothing is committed any more, and the thread moves the whole log into
//! the database, wherever that is now, and empties it: what was acknowledged is then in one file, which can be moved back, and no
//! log is left that SQLite would apply to another file. This waits until no other process uses the store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME, ErrorCode};

use super::connection::{Role, StoreConnection, connect};
use super::fault::OpenFault;
use super::lock::StoreLock;
use super::open_files::OpenFiles;

/// Pages that make the log long: a page that is written again and again is moved once. 16 MiB.
const LONG_LOG_PAGES: i32 = 4_000;
/// Pages after which the writer checkpoints at the end of each COMMIT, even while it is the turn of the thread, which
/// may have ended. 64 MiB.
const TOO_LONG_LOG_PAGES: i32 = 16_000;
/// Number of checkpoints in a row; each moves the pages that were added during the one before.
const CHECKPOINTS: u8 = 3;

/// Maximum time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Who checkpoints next.
#[derive(Debug, Default)]
struct Turn(AtomicU8);

impl Turn {
    const NONE: u8 = 0;
    const THREAD: u8 = 1;
    const WRITER: u8 = 2;
    const ENDED: u8 = 3;

    /// Passes the turn on; returns false if it was not at `from`.
    fn pass(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn end(&self) {
        self.0.store(Self::ENDED, Ordering::Release);
    }

    fn now(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }
}

/// The thread, which ends when this is dropped. The connection that is closed last, this one or the writer's, removes
/// the log; if both are closed at the same time, neither does.
pub(super) struct Checkpointer {
    turn: Arc<Turn>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread for the file of `writer`.
    pub(super) fn start(
        path: &Path,
        writer: &mut Connection,
        (files, lock): (&Arc<OpenFiles>, &Arc<StoreLock>),
    ) -> Result<Self, OpenFault> {
        let fault = |source| OpenFault::Database { path: path.to_owned(), source };
        let connection = connect(path, Role::Checkpoint).map_err(fault)?;
        let connection = StoreConnection::new(connection, Arc::clone(files));
        // SQLite opens the log at its first use, by its path.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(fault)?;
        files.check()?;
        let turn = Arc::new(Turn::default());
        let threads = Arc::clone(&turn);
        let (files, lock) = (Arc::clone(files), Arc::clone(lock));
        let thread = std::thread::Builder::new()
            .name("sqlite-log".to_owned())
            .spawn(move || serve(&connection, &threads, (&files, &lock)))
            .map_err(OpenFault::Thread)?;
        let (writers, called) = (Arc::clone(&turn), thread.thread().clone());
        let checkpointer = Self { turn, thread: Some(thread) };
        let hook = move |log: &mut Wal, pages| {
            after_commit(log, pages, &writers, &called);
            Ok(())
        };
        writer.wal_hook(Some(hook)).map_err(fault)?;
        Ok(checkpointer)
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.turn.end();
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("The thread that checkpoints the write-ahead log panicked");
        }
    }
}

/// Runs on the writer's thread after a COMMIT, which is complete in any case: an error here is retried at the end of
/// the next COMMIT.
fn after_commit(log: &mut Wal, pages: i32, turn: &Turn, thread: &Thread) {
    if turn.pass(Turn::WRITER, Turn::NONE) {
        checkpoint(log, pages);
    } else if pages >= LONG_LOG_PAGES && turn.pass(Turn::NONE, Turn::THREAD) {
        thread.unpark();
    } else if pages >= TOO_LONG_LOG_PAGES {
        checkpoint(log, pages);
    }
}

fn checkpoint(log: &mut Wal, pages: i32) {
    if let Err(error) = log.checkpoint() {
        tracing::debug!(%error, pages, "The write-ahead log cannot be checkpointed");
    }
}

fn serve(connection: &Connection, turn: &Turn, (files, lock): (&OpenFiles, &StoreLock)) {
    let mut is_saved = false;
    loop {
        if files.is_lost() && !is_saved {
            is_saved = save_log(connection, files, lock);
        }
        match turn.now() {
            Turn::ENDED => return,
            Turn::THREAD => {
                checkpoint_log(connection);
                turn.pass(Turn::THREAD, Turn::WRITER);
            }
            _ => std::thread::park_timeout(CHECK_INTERVAL),
        }
    }
}

/// Moves the log of a store whose files are lost into its database, and empties it. Returns whether that is done; it is not
/// while another process may use the files.
fn save_log(connection: &Connection, files: &OpenFiles, lock: &StoreLock) -> bool {
    let mut is_saved = false;
    let mut save = || match connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
    {
        Ok(is_busy) => is_saved = !is_busy,
        Err(error) => {
            tracing::warn!(%error, "The write-ahead log of the store cannot be moved into its database yet")
        }
    };
    let is_alone = files.lock_counts_users() && lock.alone(&mut save);
    if is_saved {
        tracing::warn!("Everything that was acknowledged is in the database itself now; its log is empty");
    } else if !is_alone {
        tracing::debug!("The log is not moved into the database, because another process uses the store");
    }
    is_saved
}

fn checkpoint_log(connection: &Connection) {
    for _ in 0..CHECKPOINTS {
        match connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::PASSIVE) {
            Ok(_) => {}
            // The writer or another process checkpoints now.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => return,
            Err(error) => {
                tracing::warn!(%error, "The write-ahead log cannot be checkpointed");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
