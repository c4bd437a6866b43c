//! The thread that checkpoints the write-ahead log: it copies committed pages from the log to the database file. Every
//! second it also checks that both files are still at their paths.
//!
//! By default, SQLite checkpoints on the writer's thread, at the end of the COMMIT that makes the log long. It copies
//! and syncs some thousand pages while all callers wait. This thread does it concurrently:
//!
//! 1. The writer wakes the thread when the log is long.
//! 2. The thread copies the pages of the log, then the pages that were added meanwhile, fewer in each round.
//! 3. The writer copies the last few pages itself, at the end of its next COMMIT. This process writes nothing
//!    meanwhile, so the log is usually completely copied and is reused from its start.
//!
//! SQLite reuses the log only after all its pages were copied and synced. It syncs the database file only after a
//! checkpoint that no COMMIT interrupted. If a COMMIT interrupts every checkpoint of the thread, the writer syncs as well.
//!
//! When a file of the store is removed, moved or replaced, commits stop. The thread then copies the whole log into the
//! database file, wherever it is now, and truncates the log. All acknowledged data is then in one file, which can be moved
//! back, and no log remains that SQLite could apply to another file. The thread waits until no other process uses the store.

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

/// Length of the log, in pages, at which the thread checkpoints: 16 MiB. A page that is rewritten before is copied once.
const LONG_LOG_PAGES: i32 = 4_000;
/// Length of the log, in pages, at which the writer checkpoints after each COMMIT, even if it is the thread's turn,
/// because the thread may have ended. 64 MiB.
const TOO_LONG_LOG_PAGES: i32 = 16_000;
/// Number of consecutive checkpoints. Each copies the pages that were added during the previous one.
const CHECKPOINTS: u8 = 3;

/// Maximum time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Which thread checkpoints next.
#[derive(Debug, Default)]
struct Turn(AtomicU8);

impl Turn {
    const NONE: u8 = 0;
    const THREAD: u8 = 1;
    const WRITER: u8 = 2;
    const ENDED: u8 = 3;

    /// Passes the turn from `from` to `to`. Returns false if it was not at `from`.
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

/// Handle to the thread, which ends when this value is dropped. Whichever connection is closed last, the thread's or
/// the writer's, deletes the log. If both are closed at the same time, the log remains.
pub(super) struct Checkpointer {
    turn: Arc<Turn>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread for the database file of `writer`.
    pub(super) fn start(
        path: &Path,
        writer: &mut Connection,
        (files, lock): (&Arc<OpenFiles>, &Arc<StoreLock>),
    ) -> Result<Self, OpenFault> {
        let fault = |source| OpenFault::Database { path: path.to_owned(), source };
        let connection = connect(path, Role::Checkpoint).map_err(fault)?;
        let connection = StoreConnection::new(connection, Arc::clone(files));
        // SQLite opens the log by path when it is first used, so the paths are checked afterwards.
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

/// Called on the writer's thread after a COMMIT, which is complete even if this fails. The next COMMIT retries.
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

/// Checkpoints and truncates the log of a store whose files were moved or replaced. Returns whether this succeeded. It
/// does not succeed while another process may use the files.
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
            // The writer or another process is checkpointing.
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
