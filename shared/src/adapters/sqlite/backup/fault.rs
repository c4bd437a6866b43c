//! Errors of backups and restores.

use std::path::{Path, PathBuf};

use crate::adapters::sqlite::fault::{OpenFault, SqlFault};
use crate::domain::time::Timestamp;
use crate::ports::fault::Cause;
use crate::posting::order_numbers::RegisterError;

/// Why a backup or a restore failed. The store and existing backups are unchanged, unless only the last sync failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupFault {
    /// The store or the backup cannot be opened, belongs to another program, or was written by a newer program.
    #[error(transparent)]
    Open(#[from] OpenFault),
    /// The file does not exist.
    #[error("there is no file {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file is empty.
    #[error("the file {} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file exists already.
    #[error("the file {} exists, and was not changed: name another one, or replace it with --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The target of the backup, or the backup to restore, is the store itself.
    #[error("the file {} is the store itself: name another one", path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// Another backup of this store is being taken.
    #[error("another backup of this store, or into this file, is under way: wait until it has ended")]
    UnderWay,
    /// The copy does not fit on the disk.
    #[error(
        "the file system of {} has {free_mib} MiB free: the copy needs {rest_mib} MiB more, and {reserve_mib} MiB must \
         stay free. Make room, or use another file system",
        file.display()
    )]
    NoRoom {
        /// The file of the copy.
        file: PathBuf,
        /// Free space in MiB, rounded down.
        free_mib: u64,
        /// Space in MiB that the rest of the copy needs, rounded up.
        rest_mib: u64,
        /// Space in MiB that must stay free.
        reserve_mib: u64,
    },
    /// The write-ahead log of the store has grown too much during the backup.
    #[error(
        "the write-ahead log {} has grown by {growth_mib} MiB to {log_mib} MiB during the backup; at most \
         {growth_mib_max} MiB are allowed, because the log cannot be emptied before the copy is complete. Repeat the \
         backup when the service writes less, copy to a faster disk, or allow more with --log-growth-mib-max",
        log.display()
    )]
    LogGrows {
        /// The log.
        log: PathBuf,
        /// The length of the log in MiB, rounded up.
        log_mib: u64,
        /// The growth of the log in MiB, rounded up.
        growth_mib: u64,
        /// The maximum growth in MiB, rounded down.
        growth_mib_max: u64,
    },
    /// The write-ahead log of the store grows during the backup, and its disk is almost full.
    #[error(
        "the file system of the store {} has {free_mib} MiB free, and {reserve_mib} MiB must stay free: the \
         write-ahead log has grown by {growth_mib} MiB during the backup, and cannot be emptied before the copy is \
         complete. Make room, or repeat the backup when the service writes less",
        store.display()
    )]
    StoreDiskFills {
        /// The store.
        store: PathBuf,
        /// Free space in MiB, rounded down.
        free_mib: u64,
        /// Space in MiB that must stay free.
        reserve_mib: u64,
        /// The growth of the log in MiB, rounded up.
        growth_mib: u64,
    },
    /// Other processes use the store.
    #[error(
        "the store {} is in use: stop every postonce-web, postonce-worker and other program that uses it \
         (`fuser -v {} {}` names them). Nothing was changed",
        store.display(),
        lock.display(),
        store.display()
    )]
    InUse {
        /// The store.
        store: PathBuf,
        /// The lock file that they hold.
        lock: PathBuf,
    },
    /// The file has a log beside it, so the file alone is incomplete.
    #[error(
        "the file {} has {} beside it: it is a store that is in use or was not closed, and no backup. Take a backup of \
         it (POSTONCE_STORAGE=sqlite:{} postonce-web backup …), and restore that",
        path.display(),
        beside.display(),
        path.display()
    )]
    NotClosed {
        /// The file.
        path: PathBuf,
        /// The log.
        beside: PathBuf,
    },
    /// The contents of the file are inconsistent.
    #[error("the file {} is damaged, and is not used: {findings}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The findings of SQLite.
        findings: String,
    },
    /// The register of order numbers cannot be advanced.
    #[error("the register of order numbers in {} cannot be advanced", path.display())]
    Register {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: RegisterError,
    },
    /// The number of order numbers that were issued since the backup cannot be bounded.
    #[error(
        "it is not known how many order numbers were issued since the backup {}: there is no store to read, the \
         backup is of {}, and the clock says {now}. Correct the clock, or set --order-number-gap to the number of \
         order numbers to skip: more than can have been issued",
        path.display(),
        as_of.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string())
    )]
    AgeUnknown {
        /// The backup.
        path: PathBuf,
        /// The time of the backup, if it is known.
        as_of: Option<Timestamp>,
        /// The current time.
        now: Timestamp,
    },
    /// A stored value cannot be decoded.
    #[error("the file {} contains a value that this program cannot decode", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The value and the reason.
        #[source]
        source: Cause,
    },
    /// A file operation failed.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// The attempted operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A database operation failed.
    #[error("cannot {doing} {}", path.display())]
    Database {
        /// The attempted operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        #[source]
        source: Cause,
    },
}

/// An attempted operation on a file, for the fault that it may cause.
#[derive(Debug, Clone)]
pub(in crate::adapters::sqlite) struct FileOperation {
    pub(in crate::adapters::sqlite) what: &'static str,
    pub(in crate::adapters::sqlite) path: PathBuf,
}

impl FileOperation {
    /// Creates the description of an operation. `what` completes the sentence "cannot …".
    pub(in crate::adapters::sqlite) fn of(what: &'static str, path: &Path) -> Self {
        Self { what, path: path.to_owned() }
    }

    /// Converts an error of the system.
    pub(in crate::adapters::sqlite) fn file(self, source: std::io::Error) -> BackupFault {
        BackupFault::File { doing: self.what, path: self.path, source }
    }

    /// Converts an error of SQLite.
    pub(in crate::adapters::sqlite) fn sql(self, source: impl Into<SqlFault>) -> BackupFault {
        BackupFault::Database { doing: self.what, path: self.path, source: source.into().into() }
    }
}
