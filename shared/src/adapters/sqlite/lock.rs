//! The lock of the store: an advisory lock on a file beside the database.
//!
//! Every process that has the store open holds a shared lock. Replacing the store with a backup needs the exclusive
//! lock, so that no process writes to a file that is no longer the store or keeps outdated values in memory.
//! SQLite's own locks are not enough, because they are released between transactions.
//!
//! The lock file records the device and inode of the database and of the write-ahead log that its holders use. So a process does not
//! open or create another file while a process still uses the previous one, does not read a database whose log was moved away, and
//! does not take a path whose database is gone for a new store. A process records the database while it holds the lock exclusively,
//! and the log once it has opened it.
//!
//! The system releases the lock when a process ends. The lock file is never removed.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl};

use super::fault::OpenFault;
use super::open_files::{FileId, is_at};
use super::paths::{beside, resolved};
use super::private;

/// Maximum number of attempts to share the lock, with pauses: a process that opens the store holds it alone for a moment.
const ATTEMPTS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// Size of the read buffer. Two recorded identities are shorter.
const RECORD_BYTES_MAX: usize = 128;

/// What to do if the database is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMissing {
    /// Create an empty file, unless the lock file records an earlier database.
    Create,
    /// Do not create a file.
    Leave,
}

/// The files that the holders of the lock use.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Record {
    database: FileId,
    /// `None` until a holder has opened it.
    log: Option<FileId>,
}

impl Record {
    fn encode(self) -> String {
        [Some(self.database), self.log].into_iter().flatten().map(FileId::encode).collect()
    }

    fn decode(text: &str) -> Option<Self> {
        let mut files = text.lines().map(FileId::decode);
        Some(Self { database: files.next()??, log: files.next().flatten() })
    }
}

/// The lock, until it is dropped.
#[derive(Debug)]
pub(super) struct StoreLock {
    path: PathBuf,
    file: File,
}

impl StoreLock {
    /// Acquires the shared lock. The folder of the store must exist. Blocks for at most one second.
    pub(super) fn shared(store: &Path, if_missing: IfMissing) -> Result<Self, OpenFault> {
        let mut refused = OpenFault::BeingRestored { path: store.to_owned() };
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            let lock = Self::open(store)?;
            // Only an exclusive holder can know that no process uses the recorded database any more.
            if lock.acquired(lock.file.try_lock())? && lock.is_at_its_path()? {
                lock.record(store, if_missing)?;
            }
            // Changing to a shared lock is not atomic, so the record is compared afterwards.
            if lock.acquired(lock.file.try_lock_shared())? && lock.is_at_its_path()? {
                if lock.is_of(store) {
                    return Ok(lock);
                }
                refused = OpenFault::UsedElsewhere { path: store.to_owned() };
            }
        }
        Err(refused)
    }

    /// Acquires the exclusive lock. Returns `None` if other processes use the store. The folder of the store must exist.
    pub(super) fn exclusive(store: &Path) -> Result<Option<Self>, OpenFault> {
        let lock = Self::open(store)?;
        let is_acquired = lock.acquired(lock.file.try_lock())? && lock.is_at_its_path()?;
        Ok(is_acquired.then_some(lock))
    }

    /// Runs `act` under the exclusive lock and then shares the lock again. Returns false if another process holds the lock.
    pub(super) fn alone(&self, act: impl FnOnce()) -> bool {
        let is_alone = self.file.try_lock().is_ok();
        if is_alone {
            act();
        }
        // With flock, a failed attempt to convert the lock has released it.
        if let Err(error) = self.file.try_lock_shared() {
            tracing::warn!("The lock {} cannot be shared again: {error}", self.path.display());
        }
        is_alone
    }

    /// Returns the path and the identity of the lock file.
    pub(super) fn identity(&self) -> Result<(&Path, FileId), OpenFault> {
        let found = self.file.metadata().map_err(|error| self.fault(error))?;
        Ok((&self.path, FileId::of(&found)))
    }

    fn open(store: &Path) -> Result<Self, OpenFault> {
        let path = lock_of(store);
        match private::open_or_create(&path, store) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(OpenFault::Lock { path, source }),
        }
    }

    fn fault(&self, source: io::Error) -> OpenFault {
        OpenFault::Lock { path: self.path.clone(), source }
    }

    fn acquired(&self, outcome: Result<(), TryLockError>) -> Result<bool, OpenFault> {
        match outcome {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(source)) => Err(self.fault(source)),
        }
    }

    /// Returns whether the lock file is still at its path, and was not replaced by another file.
    fn is_at_its_path(&self) -> Result<bool, OpenFault> {
        match is_at(&self.path, &self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            compared => compared.map_err(|error| self.fault(error)),
        }
    }

    /// Records the identity of the database that the holders of the lock use.
    fn record(&self, store: &Path, if_missing: IfMissing) -> Result<(), OpenFault> {
        let recorded = self.recorded();
        let found = match FileId::at(store) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match if_missing {
                IfMissing::Leave => return Ok(()),
                IfMissing::Create if recorded.is_some() => {
                    return Err(OpenFault::Gone { path: store.to_owned(), lock: self.path.clone() });
                }
                // No connection has the file open, so closing this descriptor releases no lock of SQLite.
                IfMissing::Create => private::create(&resolved(store), Some(store))
                    .and_then(|file| file.metadata())
                    .map(|created| FileId::of(&created)),
            },
            found => found,
        };
        // What cannot be looked at is reported when it is opened.
        let Ok(found) = found else { return Ok(()) };
        let found = Record { database: found, log: None };
        if recorded != Some(found) {
            self.write(found);
        }
        Ok(())
    }

    /// Records the log that the holders of the lock use. This process has opened the database.
    pub(super) fn record_log(&self, store: &Path) {
        if let (Some(recorded), Ok(log)) = (self.recorded(), FileId::at(&wal_of(store)))
            && recorded.log != Some(log)
        {
            self.write(Record { log: Some(log), ..recorded });
        }
    }

    fn write(&self, record: Record) {
        let text = record.encode();
        let len = u64::try_from(text.len()).unwrap_or_default();
        let written = self.file.write_all_at(text.as_bytes(), 0).and_then(|()| self.file.set_len(len));
        if let Err(error) = written {
            tracing::debug!("The lock {} cannot name its files: {error}", self.path.display());
        }
    }

    /// Returns whether the database at the path and its log are the recorded ones.
    fn is_of(&self, store: &Path) -> bool {
        // It has no record: its creator could only read the lock file.
        let Some(recorded) = self.recorded() else { return true };
        // A process that may not write it could not have renewed it either.
        let is_writable = fcntl_getfl(&self.file).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        let is_at = |path: &Path, recorded: FileId| match FileId::at(path) {
            Ok(found) => found == recorded || !is_writable,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        is_at(store, recorded.database) && recorded.log.is_none_or(|log| is_at(&wal_of(store), log))
    }

    fn recorded(&self) -> Option<Record> {
        let mut bytes = [0; RECORD_BYTES_MAX];
        let len = self.file.read_at(&mut bytes, 0).ok()?;
        Record::decode(std::str::from_utf8(bytes.get(..len)?).ok()?)
    }
}

/// Returns the write-ahead log of a store.
fn wal_of(store: &Path) -> PathBuf {
    beside(&resolved(store), "-wal")
}

/// Returns the lock file of a store.
pub(super) fn lock_of(store: &Path) -> PathBuf {
    beside(&resolved(store), ".lock")
}

#[cfg(test)]
mod tests {
    use super::IfMissing::{Create, Leave};
    use super::*;

    fn shared(store: &Path) -> Result<StoreLock, OpenFault> {
        StoreLock::shared(store, Leave)
    }

    #[test]
    fn the_lock_is_shared_or_exclusive() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("postonce.db");
        let (one, other) = (shared(&store).unwrap(), shared(&store).unwrap());
        drop(one);
        assert!(StoreLock::exclusive(&store).unwrap().is_none());
        assert!(other.alone(|| assert!(shared(&store).is_err())));
        let third = shared(&store).unwrap();
        assert!(!other.alone(|| panic!("another process uses the store")));
        drop(third);
        assert!(StoreLock::exclusive(&store).unwrap().is_none(), "it is shared again");
        drop(other);
        let exclusive = StoreLock::exclusive(&store).unwrap();
        assert!(exclusive.is_some() && StoreLock::exclusive(&store).unwrap().is_none());
        assert!(matches!(shared(&store), Err(OpenFault::BeingRestored { .. })));
        drop(exclusive);
        assert!(shared(&store).is_ok());
    }

    #[test]
    fn a_store_has_one_lock_for_all_of_its_paths() {
        let folder = tempfile::tempdir().unwrap();
        let (store, link) = (folder.path().join("postonce.db"), folder.path().join("link.db"));
        File::create(&store).unwrap();
        std::os::unix::fs::symlink(&store, &link).unwrap();
        let _shared = shared(&link).unwrap();
        assert!(StoreLock::exclusive(&store).unwrap().is_none());
    }

    #[test]
    fn another_file_is_not_opened_while_the_one_before_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (store, aside) = (at("postonce.db"), at("aside.db"));
        let used = StoreLock::shared(&store, Create).unwrap();
        assert!(store.exists());
        std::fs::rename(&store, &aside).unwrap();
        let elsewhere = |opened: Result<StoreLock, OpenFault>| {
            assert!(matches!(opened, Err(OpenFault::UsedElsewhere { .. })), "{opened:?}");
        };
        elsewhere(StoreLock::shared(&store, Create));
        assert!(!store.exists(), "no second store is created");
        std::fs::write(&store, "another file").unwrap();
        elsewhere(StoreLock::shared(&store, Create));
        drop(used);
        drop(StoreLock::shared(&store, Create).unwrap());
        // The record names the file that is now at the path.
        std::fs::remove_file(&store).unwrap();
        assert!(matches!(StoreLock::shared(&store, Create), Err(OpenFault::Gone { .. })));
        assert!(!store.exists());
        std::fs::rename(&aside, &store).unwrap();
        assert!(StoreLock::shared(&store, Create).is_ok());
        std::fs::remove_file(&store).unwrap();
        std::fs::remove_file(lock_of(&store)).unwrap();
        assert!(StoreLock::shared(&store, Create).is_ok(), "a new store is wanted");
    }

    #[test]
    fn a_lock_that_was_replaced_locks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("postonce.db");
        let held = StoreLock::exclusive(&store).unwrap().unwrap();
        let opened = StoreLock::open(&store).unwrap();
        std::fs::remove_file(lock_of(&store)).unwrap();
        assert!(!opened.is_at_its_path().unwrap());
        drop(held);
        assert!(StoreLock::shared(&store, Create).is_ok());
    }
}
