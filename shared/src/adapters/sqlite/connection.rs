//! Opens connections to the database file.

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

/// The purpose of a connection, which determines its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Writes, and creates the file if it is missing.
    Write,
    /// Reads an existing file.
    Read,
    /// Checkpoints the write-ahead log of an existing file.
    Checkpoint,
}

/// Number of prepared statements that a connection caches. It exceeds the number of statements in this program.
const STATEMENTS_MAX: usize = 64;

/// Held while a file is created and opened. Closing the descriptor that created the file would release POSIX locks that
/// another thread of this process has acquired on it since.
static CREATING: Mutex<()> = Mutex::new(());

pub(super) fn connect(path: &Path, role: Role) -> rusqlite::Result<Connection> {
    // An absolute path is not parsed as a URI. NO_MUTEX: a connection is used by one thread at a time. Without CREATE,
    // SQLite does not create the file itself with access for other users.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let creating = CREATING.lock();
    if role == Role::Write {
        create_if_missing(path)?;
    }
    let mut connection = Connection::open_with_flags(absolute(path), flags)?;
    drop(creating);
    // Checked before the first statement, which reads the write-ahead log at this path: the log may belong to another file.
    if has_moved(&connection)? {
        let code = ffi::Error::new(ffi::SQLITE_CANTOPEN);
        return Err(Error::SqliteFailure(code, Some("the file was replaced while it was opened".to_owned())));
    }
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.execute_batch(match role {
        // With FULL, committed data survives a loss of power; NORMAL does not guarantee this. The cache has 16 MiB. In
        // a file smaller than 1 GiB, a COMMIT after a B-tree was balanced often visits every cached page; with 64 MiB
        // this took a tenth of the processor time. Other pages are mostly in the page cache of the system. MEMORY keeps
        // the few pages that a savepoint needs for a rollback in memory. Otherwise SQLite creates a temporary file for
        // each savepoint above 64 KiB.
        Role::Write => {
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384;
             PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;"
        }
        // A commit of another connection invalidates this cache, so it serves a single read.
        Role::Read => "PRAGMA query_only = ON; PRAGMA cache_size = -2048;",
        Role::Checkpoint => "PRAGMA synchronous = FULL;",
    })?;
    Ok(connection)
}

/// Returns whether the path of an open file names another file or no file.
pub(super) fn has_moved(connection: &Connection) -> rusqlite::Result<bool> {
    let mut moved = 0;
    connection.file_control(DEFAULT_NAME, FileControl::HasMoved(&mut moved))?;
    Ok(moved != 0)
}

/// A connection to an open store.
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
    /// The last connection that is closed deletes the write-ahead log at its path, which must not be the log of another store.
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

/// Waits while another process writes, for about five seconds in total. Then it returns false, and SQLite reports
/// SQLITE_BUSY. SQLite's own `busy_timeout` sleeps for up to 100 ms at a time. The lock of a continuous writer is free
/// only for moments, so a process that polls this rarely would starve.
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

    /// Committed data survives a loss of power only with these settings. A test cannot simulate that loss.
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
