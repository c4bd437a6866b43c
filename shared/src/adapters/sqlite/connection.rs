//! Connections to the file, all with the same settings.

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, DEFAULT_NAME, Error, FileControl, OpenFlags, ffi};

use super::open_files::OpenFiles;
use super::paths::{absolute, resolved};
use super::private;

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Writes, and creates the file if it does not exist.
    Write,
    /// Reads an existing file.
    Read,
    /// Moves the write-ahead log of an existing file into it.
    Checkpoint,
}

/// Number of compiled statements that a connection caches: more than this program has.
const STATEMENTS_MAX: usize = 64;

/// Locked while a file is created and opened: closing the handle that created it would release the locks that
/// another thread of this process has acquired on it in the meantime (POSIX).
static CREATING: Mutex<()> = Mutex::new(());

/// Opens a connection.
pub(super) fn connect(path: &Path, role: Role) -> rusqlite::Result<Connection> {
    // An absolute path is not parsed as a URI. No mutex: a connection is used by one thread at a time.
    // SQLite does not create the file, because other users could read it then.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let creating = CREATING.lock();
    if role == Role::Write {
        create_if_missing(path)?;
    }
    let mut connection = Connection::open_with_flags(absolute(path), flags)?;
    drop(creating);
    // Before the first statement, which reads the log beside the path: it may be that of another file.
    if has_moved(&connection)? {
        let code = ffi::Error::new(ffi::SQLITE_CANTOPEN);
        return Err(Error::SqliteFailure(code, Some("the file was replaced while it was opened".to_owned())));
    }
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.execute_batch(match role {
        // FULL: committed data survives a loss of power, which NORMAL does not guarantee. A cache of 16 MiB: in a
        // file of less than 1 GiB, a COMMIT after a tree was balanced often visits every page of the cache, and
        // with 64 MiB that took a tenth of the processor time; pages that are not in it are mostly in the cache of
        // the system. The pages that a savepoint keeps for a rollback stay in memory, where they are few:
        // otherwise a temporary file is created for each savepoint that has more than 64 KiB.
        Role::Write => {
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384;
             PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;"
        }
        // Each commit of another connection empties this cache: it serves a single read.
        Role::Read => "PRAGMA query_only = ON; PRAGMA cache_size = -2048;",
        Role::Checkpoint => "PRAGMA synchronous = FULL;",
    })?;
    Ok(connection)
}

/// Returns whether the path of an open file names another file, or none.
pub(super) fn has_moved(connection: &Connection) -> rusqlite::Result<bool> {
    let mut moved = 0;
    connection.file_control(DEFAULT_NAME, FileControl::HasMoved(&mut moved))?;
    Ok(moved != 0)
}

/// A connection to a store in use.
pub(super) struct StoreConnection {
    connection: Connection,
    files: Arc<OpenFiles>,
}

impl StoreConnection {
    pub(super) const fn new(connection: Connection, files: Arc<OpenFiles>) -> Self {
        Self { connection, files }
    }
}

impl Deref for StoreConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for StoreConnection {
    /// The connection that is closed last removes the log at its path: it must not be that of another store.
    fn drop(&mut self) {
        if self.files.check().is_err()
            && let Err(error) =
                self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        {
            tracing::warn!(%error, "A connection to a store that was moved may remove the log at its old path");
        }
    }
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

/// Waits while another process writes, about five seconds in all; then it gives up (false), and SQLite returns
/// SQLITE_BUSY. SQLite's own `busy_timeout` waits up to 100 ms at a time, and a process that polls so rarely would
/// starve beside one that writes all the time: the lock is free for moments only.
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

    /// Only these settings make committed data survive a loss of power, which a test cannot simulate.
    #[test]
    fn the_writer_syncs_every_commit() {
        let folder = tempfile::tempdir().unwrap();
        let connection = connect(&folder.path().join("file.db"), Role::Write).unwrap();
        let number = |pragma: &str| {
            connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!(number("synchronous"), 2, "FULL");
        assert_eq!(number("foreign_keys"), 1, "deleting a message deletes its body");
    }
}
