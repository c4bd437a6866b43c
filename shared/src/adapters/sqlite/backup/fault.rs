//! Why a backup or a restore was not done.

use std::path::{Path, PathBuf};

use crate::adapters::sqlite::fault::{OpenFault, SqlFault};
use crate::domain::time::Timestamp;
use crate::ports::fault::Cause;
use crate::protocol::order_numbers::UnsoundRegister;

/// A backup or a restore that was not done. Until then nothing was changed that anybody relies on.
#[derive(Debug, thiserror::Error)]
pub enum BackupFault {
    /// The store or the backup cannot be opened, is another program's, or is from a newer program.
    #[error(transparent)]
    Open(#[from] OpenFault),
    /// There is no such file.
    #[error("there is no file {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file has nothing in it.
    #[error("the file {} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A file is there already.
    #[error("the file {} exists, and is left as it is: name another one, or replace it with --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The backup would be, or is, the store itself.
    #[error("the file {} is the store itself: name another one", path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// Another backup of this store is being taken.
    #[error("another backup of this store is under way: wait until it has ended")]
    UnderWay,
    /// Others use the store.
    #[error(
        "the store {} is in use: stop every postonce-web and postonce-worker first, and whatever else has it open \
         (`fuser -v {} {}` names them). Nothing was changed",
        store.display(),
        lock.display(),
        store.display()
    )]
    InUse {
        /// The store.
        store: PathBuf,
        /// The lock that they hold.
        lock: PathBuf,
    },
    /// The file has a log beside it, so it is not all by itself.
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
        /// Its log.
        beside: PathBuf,
    },
    /// The content of the file does not fit together.
    #[error("the file {} is damaged, and is not used: {findings}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite found.
        findings: String,
    },
    /// The register of order numbers cannot be moved ahead.
    #[error("the order numbers in {} cannot go on", path.display())]
    Register {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: UnsoundRegister,
    },
    /// Neither the replaced store nor the backup tells how many order numbers were told since.
    #[error(
        "how many order numbers were given out since the backup {} is not known: there is no store that tells, the backup \
         is of {}, and the clock says {now}. Set the clock right, or say with --order-number-gap how many to skip: more \
         than there can have been",
        path.display(),
        as_of.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string())
    )]
    AgeUnknown {
        /// The backup.
        path: PathBuf,
        /// The moment that it is of, as far as it tells.
        as_of: Option<Timestamp>,
        /// The time now.
        now: Timestamp,
    },
    /// A value that nobody can understand.
    #[error("the file {} has a value in it that this program cannot understand", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Which one, and why.
        #[source]
        source: Cause,
    },
    /// The system refused something to a file.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// SQLite refused something to a file.
    #[error("cannot {doing} {}", path.display())]
    Database {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: Cause,
    },
}

/// What is being done to which file, for the fault that may come of it.
#[derive(Debug, Clone)]
pub(in crate::adapters::sqlite) struct Doing {
    pub(in crate::adapters::sqlite) what: &'static str,
    pub(in crate::adapters::sqlite) path: PathBuf,
}

impl Doing {
    /// `what` as the end of "cannot …", and the file.
    pub(in crate::adapters::sqlite) fn of(what: &'static str, path: &Path) -> Self {
        Self { what, path: path.to_owned() }
    }

    /// The system refused it.
    pub(in crate::adapters::sqlite) fn file(self, source: std::io::Error) -> BackupFault {
        BackupFault::File { doing: self.what, path: self.path, source }
    }

    /// SQLite refused it.
    pub(in crate::adapters::sqlite) fn sql(self, source: impl Into<SqlFault>) -> BackupFault {
        BackupFault::Database { doing: self.what, path: self.path, source: source.into().into() }
    }
}
