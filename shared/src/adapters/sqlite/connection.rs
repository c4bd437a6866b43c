//! A connection to the file, set up the same way for everybody.

use std::io;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, Error, OpenFlags, ffi};

use super::paths::resolved;
use super::private;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Creates the file if need be, and writes.
    Write,
    /// Reads a file that exists.
    Read,
    /// Moves the write-ahead log of a file that exists to it.
    Checkpoint,
}

/// Statements that a connection keeps compiled: more than this program has.
const STATEMENTS_MAX: usize = 64;

/// Held while a file is created and opened: closing the handle that created it would give back the locks that
/// another thread of this process has got on it meanwhile (POSIX).
static CREATING: Mutex<()> = Mutex::new(());

/// Opens a connection.
pub(super) fn connect(path: &Path, role: Role) -> rusqlite::Result<Connection> {
    // No URI: a path is a path. No mutex: a connection is used by one thread at a time.
    // SQLite creates no file: it would let other users read it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let creating = CREATING.lock();
    if role == Role::Write {
        create_if_missing(path)?;
    }
    let mut connection = Connection::open_with_flags(path, flags)?;
    drop(creating);
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.execute_batch(match role {
        // FULL: what was answered survives a loss of power, which NORMAL does not promise. A cache of 16 MiB:
        // in a file of less than 1 GiB, a COMMIT after a tree was balanced often looks at every page of the
        // cache, and with 64 MiB that took a tenth of the processor time; what is not in it, the system mostly
        // has in memory. What a savepoint keeps to be undone stays in memory, where it is a few pages:
        // otherwise a temporary file is made for each savepoint that has more than 64 KiB.
        Role::Write => {
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384;
             PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;"
        }
        Role::Read => "PRAGMA query_only = ON; PRAGMA cache_size = -8192;",
        Role::Checkpoint => "PRAGMA synchronous = FULL;",
    })?;
    Ok(connection)
}

fn create_if_missing(path: &Path) -> rusqlite::Result<()> {
    match private::create(&resolved(path), Some(path)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let code = ffi::Error::new(ffi::SQLITE_CANTOPEN);
            Err(Error::SqliteFailure(code, Some(format!("unable to create the database file: {error}"))))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Waits while another process writes, some five seconds in all; then gives up (false), and SQLite
/// says busy. SQLite's own `busy_timeout` waits up to 100 ms at a time, and a process that waits so
/// rarely looks would starve beside one that always writes: the lock is free for a moment only.
fn wait_for_lock(attempts: i32) -> bool {
    let pause = match attempts {
        ..200 => Duration::from_micros(250),
        200..2_600 => Duration::from_millis(2),
        2_600.. => return false,
    };
    std::thread::sleep(pause);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was answered survives a loss of power only so, and no test can cut the power.
    #[test]
    fn the_writer_syncs_every_commit() {
        let folder = tempfile::tempdir().unwrap();
        let connection = connect(&folder.path().join("file.db"), Role::Write).unwrap();
        let number = |pragma: &str| {
            connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!(number("synchronous"), 2, "FULL");
        assert_eq!(number("foreign_keys"), 1, "a body goes with its message");
    }
}
