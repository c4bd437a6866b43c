//! The thread that moves what was committed from the write-ahead log to the file.
//!
//! SQLite lets the writer do it, at the end of the COMMIT that makes the log long: some thousand pages are
//! copied and synced while everybody waits for that COMMIT. Here another thread copies, beside the writer:
//!
//! 1. The writer calls it when the log has become long.
//! 2. It moves what is there, and then what came meanwhile, which is less each time.
//! 3. The writer moves the last few pages itself, at the end of its next COMMIT: this process writes nothing
//!    meanwhile, so that the log mostly has nothing left, and begins anew.
//!
//! What a log must have moved and synced before it may begin anew is SQLite's business, whoever moves. SQLite
//! syncs the file only after a move that nobody committed beside; where each of the thread's moves met a
//! COMMIT, that is left to the writer, too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{JoinHandle, Thread};

use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME, ErrorCode};

use super::connection::{Role, connect};
use super::fault::OpenFault;

/// Pages of the log that make it long: what is written again and again is moved once. 16 MiB.
const LONG: i32 = 4_000;
/// Pages of the log after which the writer tries at the end of each COMMIT, also while it is the turn of the
/// thread, which may be gone. 64 MiB.
const TOO_LONG: i32 = 16_000;
/// How often the thread moves, each time what came during the time before.
const MOVES: u8 = 3;

/// Whose turn it is.
#[derive(Debug, Default)]
struct Turn(AtomicU8);

impl Turn {
    const NOBODYS: u8 = 0;
    const THREADS: u8 = 1;
    const WRITERS: u8 = 2;
    const OVER: u8 = 3;

    /// True for whoever takes it.
    fn pass(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn end(&self) {
        self.0.store(Self::OVER, Ordering::Release);
    }

    fn now(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }
}

/// The thread, until it is dropped. Whichever connection is closed last, this one's or the writer's, removes
/// the log; where both are closed at the same time, neither does.
pub(super) struct Checkpointer {
    turn: Arc<Turn>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread for the file that `writer` writes.
    pub(super) fn start(path: &Path, writer: &mut Connection) -> Result<Self, OpenFault> {
        let fault = |source| OpenFault::Database { path: path.to_owned(), source };
        let connection = connect(path, Role::Checkpoint).map_err(fault)?;
        let turn = Arc::new(Turn::default());
        let threads = Arc::clone(&turn);
        let thread = std::thread::Builder::new()
            .name("sqlite-log".to_owned())
            .spawn(move || serve(&connection, &threads))
            .map_err(OpenFault::Thread)?;
        let (writers, called) = (Arc::clone(&turn), thread.thread().clone());
        let checkpointer = Self { turn, thread: Some(thread) };
        let hook = move |log: &mut Wal, pages| {
            at_the_end_of_a_commit(log, pages, &writers, &called);
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
            tracing::error!("The thread that empties the write-ahead log panicked");
        }
    }
}

/// On the thread of the writer. The COMMIT is done, whatever comes of this: what fails here is tried again
/// at the end of the next one.
fn at_the_end_of_a_commit(log: &mut Wal, pages: i32, turn: &Turn, thread: &Thread) {
    if turn.pass(Turn::WRITERS, Turn::NOBODYS) {
        checkpoint(log, pages);
    } else if pages >= LONG && turn.pass(Turn::NOBODYS, Turn::THREADS) {
        thread.unpark();
    } else if pages >= TOO_LONG {
        checkpoint(log, pages);
    }
}

fn checkpoint(log: &mut Wal, pages: i32) {
    if let Err(error) = log.checkpoint() {
        tracing::debug!(%error, pages, "The write-ahead log was not emptied");
    }
}

fn serve(connection: &Connection, turn: &Turn) {
    loop {
        match turn.now() {
            Turn::OVER => return,
            Turn::THREADS => {
                move_log(connection);
                turn.pass(Turn::THREADS, Turn::WRITERS);
            }
            _ => std::thread::park(),
        }
    }
}

fn move_log(connection: &Connection) {
    for _ in 0..MOVES {
        match connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::PASSIVE) {
            Ok(_) => {}
            // Somebody else moves it: the writer, or another process.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => return,
            Err(error) => {
                tracing::warn!(%error, "The write-ahead log cannot be moved to the database");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
