//! Errors of the database file, classified by their remedy.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::ErrorCode;

use crate::panic_text::panic_text;
use crate::ports::fault::{Cause, StoreFault};

/// Why a file cannot be opened as the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// The folder of the file cannot be created.
    #[error("the folder {} cannot be created", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// SQLite cannot open, read or migrate the file.
    #[error("the database {} cannot be opened", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        #[source]
        source: rusqlite::Error,
    },
    /// The schema of the file is newer than this program, which could only damage the file.
    #[error(
        "the database {} has schema version {found}, and this program knows up to {known}: start a newer program",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The file was written by a program before the first release.
    #[error(
        "the database {} has schema version {found}, and those of released programs begin with {first}: use another file",
        path.display()
    )]
    Unreleased {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: i64,
        /// The version of the first release.
        first: i64,
    },
    /// The file does not exist.
    #[error("there is no database {}", path.display())]
    Missing {
        /// The expected path.
        path: PathBuf,
    },
    /// The schema of the file is older than this program, and a read-only connection must not migrate it.
    #[error(
        "the database {} has schema version {found}, and this program reads {known}: start the service \
         with this program once, which migrates the file",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: i64,
        /// The version that this program reads.
        known: i64,
    },
    /// The file is a database of another program.
    #[error("the database {} belongs to another program", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is on a file system where SQLite cannot keep a write-ahead log, such as a network share.
    #[error("the database {} cannot have a write-ahead log, only {journal_mode:?}", path.display())]
    NoWriteAheadLog {
        /// The file.
        path: PathBuf,
        /// The journal mode that SQLite offers instead.
        journal_mode: String,
    },
    /// The lock file beside the database cannot be opened or locked.
    #[error("the lock {} of the database cannot be used", path.display())]
    Lock {
        /// The lock.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The path names something that cannot be a database.
    #[error("{} cannot be the database: {reason}", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
        /// Its type, and what to do.
        reason: &'static str,
    },
    /// The lock file shows that a database existed at the path, but it is gone.
    #[error(
        "the database {} is gone: the lock {} shows that it existed. Move it back, with its -wal file, or restore a backup; only \
         to create a new, empty store, remove the lock",
        path.display(), lock.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// Its lock.
        lock: PathBuf,
    },
    /// Another process still uses the file that was at the path before.
    #[error(
        "another process still uses the file that was at {0}, or its log at {0}-wal, before it was moved, removed or replaced: \
         end that process first",
        path.display()
    )]
    UsedElsewhere {
        /// The file.
        path: PathBuf,
    },
    /// The files changed while they were opened.
    #[error(transparent)]
    Files(#[from] FilesFault),
    /// A restore is replacing the file.
    #[error("the database {} is being restored: start again when the restore has ended", path.display())]
    BeingRestored {
        /// The file.
        path: PathBuf,
    },
    /// The system cannot start a thread.
    #[error("a thread of the database cannot be started")]
    Thread(#[source] std::io::Error),
}

/// The paths of an open store no longer name its files.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FilesFault {
    /// A path names no file any more.
    #[error("the file {} of the open store was removed or moved away", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// A path names another file.
    #[error("another file was put in the place of {}, which is a file of the open store", path.display())]
    Replaced {
        /// The path.
        path: PathBuf,
    },
    /// The database has become shorter. This program never truncates it.
    #[error(
        "another program has overwritten the open database {}: it had {before} bytes, and has {bytes} now",
        path.display()
    )]
    Shortened {
        /// The path.
        path: PathBuf,
        /// Its largest size, in bytes.
        before: u64,
        /// Its size, in bytes.
        bytes: u64,
    },
    /// The system does not report which file a path names.
    #[error("it cannot be checked that {} is still a file of the open store: {error}", path.display())]
    Unseen {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        error: Arc<std::io::Error>,
    },
}

/// Why a job on a connection failed, before it is mapped to a fault of the port.
#[derive(Debug, thiserror::Error)]
pub(super) enum SqlFault {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    /// The paths of the store no longer name its files.
    #[error(transparent)]
    Files(#[from] FilesFault),
    /// A stored value is invalid.
    #[error("the column {0} holds an invalid value")]
    Column(&'static str),
    /// Stored data is readable but inconsistent.
    #[error(transparent)]
    Unsound(Cause),
    /// The cursor was issued by another listing.
    #[error("the cursor is not one of this listing")]
    ForeignCursor,
    /// The store does not support the requested operation.
    #[error("{0}")]
    Refused(String),
}

impl SqlFault {
    /// Returns the fault of a job that panicked. A panic is a bug, so a retry would fail too.
    pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        Self::Refused(format!("a bug: {}", panic_text(panic).unwrap_or("no message")))
    }

    /// Returns whether the error concerns a single row and not the whole file.
    pub(super) fn is_of_a_row(&self) -> bool {
        match self {
            Self::Column(_) | Self::Unsound(_) => true,
            Self::Database(error) => is_of_a_value(error),
            Self::Refused(_) | Self::ForeignCursor | Self::Files(_) => false,
        }
    }

    /// Converts to the fault of the port. `doing` names the attempted operation.
    pub(super) fn doing(self, doing: &'static str) -> StoreFault {
        match self {
            Self::Database(source) => match remedy(&source) {
                Remedy::Wait => StoreFault::Unavailable { doing, source: source.into() },
                Remedy::Repair => StoreFault::Corrupt { doing, source: source.into() },
                Remedy::Change => StoreFault::Refused { doing, source: source.into() },
            },
            // A write may have been committed to a file that is no longer the store.
            Self::Files(source) => StoreFault::Unavailable { doing, source: source.into() },
            Self::Column(_) => StoreFault::Corrupt { doing, source: self.into() },
            Self::Unsound(source) => StoreFault::Corrupt { doing, source },
            Self::ForeignCursor => StoreFault::ForeignCursor { doing },
            Self::Refused(_) => StoreFault::Refused { doing, source: self.into() },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Retry later.
    Wait,
    /// An operator has to repair the file.
    Repair,
    /// Use another program or another configuration.
    Change,
}

/// Returns whether a stored value has a type that this program does not write.
fn is_of_a_value(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(
        error,
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..)
    )
}

pub(super) fn remedy(error: &rusqlite::Error) -> Remedy {
    if is_of_a_value(error) {
        return Remedy::Repair;
    }
    let Some(code) = error.sqlite_error_code() else { return Remedy::Change };
    if matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) {
        return Remedy::Repair;
    }
    let passes = matches!(
        code,
        ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationAborted
            | ErrorCode::OperationInterrupted
            | ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::CannotOpen
            | ErrorCode::FileLockingProtocolFailed
    );
    if passes { Remedy::Wait } else { Remedy::Change }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn every_error_of_sqlite_has_its_fault() {
        let fault = |code| {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            match SqlFault::from(error).doing("testing") {
                StoreFault::Unavailable { .. } => "unavailable",
                StoreFault::Corrupt { .. } => "corrupt",
                StoreFault::Refused { .. } => "refused",
                StoreFault::ForeignCursor { .. } => "foreign cursor",
            }
        };
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_FULL, ffi::SQLITE_IOERR, ffi::SQLITE_IOERR_FSYNC] {
            assert_eq!(fault(code), "unavailable", "{code}");
        }
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB] {
            assert_eq!(fault(code), "corrupt", "{code}");
        }
        for code in [ffi::SQLITE_READONLY, ffi::SQLITE_CONSTRAINT, ffi::SQLITE_ERROR] {
            assert_eq!(fault(code), "refused", "{code}");
        }
    }
}
