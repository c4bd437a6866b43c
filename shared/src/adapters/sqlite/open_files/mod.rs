//! Compares the files of an open store with the files that their paths name now.
//!
//! A process that has a file open can use it after it was removed, moved or replaced, without an error. Later commits
//! would then be lost with the file, while another process creates a second store at the path. SQLite does not detect
//! this either once the write-ahead log is in use. So the device and the inode of each file, recorded when it was
//! opened, are compared with those at its path: before the answers to a COMMIT are sent, and every second.
//!
//! A difference is final until the process ends, even if the file is moved back, because another program may have written to it
//! with its own log in the meantime. The comparison never opens a file, because closing it would release SQLite's POSIX locks.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::fault::FilesFault;
use super::paths::{absolute, beside, resolved};
use crate::ports::store_files::StoreFiles;

/// The identity of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Returns the identity of the file at a path.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        path.metadata().map(|found| Self::of(&found))
    }

    pub(super) fn encode(self) -> String {
        format!("{} {}\n", self.device, self.inode)
    }

    pub(super) fn decode(text: &str) -> Option<Self> {
        let (device, inode) = text.trim_end().split_once(' ')?;
        Some(Self { device: device.parse().ok()?, inode: inode.parse().ok()? })
    }
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    id: FileId,
}

/// The open files of a store.
#[derive(Debug)]
pub(super) struct OpenFiles {
    /// The database, with its configured path and its resolved path.
    database: Vec<Watched>,
    /// The files that SQLite keeps beside the database.
    sidecars: Vec<Watched>,
    /// The lock file; `None` in unit tests.
    lock: Option<Watched>,
    /// Largest observed size of the database, which never shrinks.
    bytes: AtomicU64,
    fault: Mutex<Option<FilesFault>>,
    /// Whether `fault` is `None`.
    is_intact: AtomicBool,
    intact: watch::Sender<bool>,
    told: StoreFiles,
}

impl OpenFiles {
    /// Records the identities of a store, just after its database and the sidecars with these suffixes were opened.
    ///
    /// # Errors
    /// [`FilesFault`] when a file is no longer at its path.
    pub(super) fn of(store: &Path, suffixes: &[&str], lock: (&Path, FileId)) -> Result<Self, FilesFault> {
        let (named, real) = (absolute(store), resolved(store));
        let watched = |path: PathBuf| match FileId::at(&path) {
            Ok(id) => Ok(Watched { path, id }),
            Err(error) => Err(FilesFault::of(&path, error)),
        };
        let sidecars: Result<Vec<_>, _> =
            suffixes.iter().map(|suffix| watched(beside(&real, suffix))).collect();
        let mut database = vec![watched(real.clone())?];
        if named != real {
            database.push(watched(named)?);
        }
        let (path, id) = lock;
        let lock = Some(Watched { path: path.to_owned(), id });
        let files = Self { database, sidecars: sidecars?, lock, ..Self::none() };
        files.check()?;
        Ok(files)
    }

    /// Watches no files. The base of [`Self::of`], and used as it is in unit tests.
    pub(super) fn none() -> Self {
        let (intact, told) = StoreFiles::watched();
        Self {
            database: Vec::new(),
            sidecars: Vec::new(),
            lock: None,
            bytes: AtomicU64::new(0),
            fault: Mutex::new(None),
            is_intact: AtomicBool::new(true),
            intact,
            told,
        }
    }

    /// Returns the observable state of the files, for readiness and metrics.
    pub(super) fn told(&self) -> StoreFiles {
        self.told.clone()
    }

    /// Returns the result of the last check, without accessing the file system.
    pub(super) fn known(&self) -> Result<(), FilesFault> {
        if self.is_intact.load(Ordering::Acquire) {
            return Ok(());
        }
        self.fault.lock().clone().map_or(Ok(()), Err)
    }

    /// Compares the open files with the files at their paths. Takes some microseconds.
    pub(super) fn check(&self) -> Result<(), FilesFault> {
        if let Err(lost) = self.known()
            && lost.is_final()
        {
            return Err(lost);
        }
        let compared = self.compare();
        if compared.is_ok() && self.is_intact.load(Ordering::Acquire) {
            return Ok(());
        }
        self.note(compared)
    }

    /// Checks the files, and returns whether this process can never use them again.
    pub(super) fn is_lost(&self) -> bool {
        self.check().is_err_and(|fault| fault.is_final())
    }

    /// Returns whether the holders of the lock are all processes that use this database. If so, the log may be
    /// checkpointed when no other process holds the lock.
    pub(super) fn lock_counts_users(&self) -> bool {
        let is_there = |file: &Watched| FileId::at(&file.path).is_ok_and(|found| found == file.id);
        self.lock.iter().all(is_there) || !self.database.iter().all(is_there)
    }

    fn compare(&self) -> Result<(), FilesFault> {
        // Loaded before the sizes are read, because other threads may extend the file and increase this value.
        let before = self.bytes.load(Ordering::Acquire);
        for Watched { path, id } in self.database.iter().chain(&self.sidecars).chain(&self.lock) {
            let found = path.metadata().map_err(|error| FilesFault::of(path, error))?;
            if FileId::of(&found) != *id {
                return Err(FilesFault::Replaced { path: path.clone() });
            }
            if self.database.first().is_some_and(|database| database.path == *path) {
                if found.len() < before {
                    return Err(FilesFault::Shortened { path: path.clone(), before, bytes: found.len() });
                }
                self.bytes.fetch_max(found.len(), Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// Records the result of a comparison, and logs changes.
    fn note(&self, compared: Result<(), FilesFault>) -> Result<(), FilesFault> {
        let mut fault = self.fault.lock();
        // Another thread may have recorded a final fault.
        if let Some(lost) = fault.as_ref().filter(|fault| fault.is_final()) {
            return Err(lost.clone());
        }
        match &compared {
            Ok(()) if fault.is_some() => tracing::info!("The files of the store can be looked at again"),
            Ok(()) => {}
            Err(found) if found.is_final() => tracing::error!("{found}. {}", self.remedy(found)),
            Err(found) if fault.is_none() => tracing::error!(
                "{found}. Until it can, no transaction is acknowledged, and requests that need the store are answered with 503"
            ),
            Err(_) => {}
        }
        fault.clone_from(&compared.clone().err());
        self.is_intact.store(compared.is_ok(), Ordering::Release);
        self.intact.send_replace(compared.is_ok());
        compared
    }

    fn remedy(&self, fault: &FilesFault) -> String {
        let database = self.database.first().map(|file| file.path.display().to_string()).unwrap_or_default();
        let is_database = self.database.iter().any(|file| file.path == *fault.path());
        let act = if is_database {
            format!(
                "End every process that uses the store. Move the file back to {database}, with its -wal file if there is one, \
                 or restore a backup; then start again"
            )
        } else {
            format!(
                "End every process that uses the store, change nothing else beside {database}, and start again"
            )
        };
        format!(
            "From now on no transaction is acknowledged, and requests that need the store are answered with 503. {act} (part \
             \"files\" in deploy/runbook.md)"
        )
    }
}

/// Returns whether an open file is the file at a path.
pub(super) fn is_at(path: &Path, file: &std::fs::File) -> io::Result<bool> {
    Ok(FileId::at(path)? == FileId::of(&file.metadata()?))
}

impl FilesFault {
    /// Converts an error that occurred when a path was examined.
    fn of(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            Self::Missing { path }
        } else {
            Self::Unseen { path, error: Arc::new(error) }
        }
    }

    fn path(&self) -> &PathBuf {
        match self {
            Self::Missing { path }
            | Self::Replaced { path }
            | Self::Shortened { path, .. }
            | Self::Unseen { path, .. } => path,
        }
    }

    fn is_final(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::Replaced { .. } | Self::Shortened { .. } => true,
            Self::Unseen { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
