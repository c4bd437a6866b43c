//! The lock of the store: an advisory lock on a file beside the database.
//!
//! Every process that has the store open holds a shared lock. Replacing the store by a backup needs the exclusive
//! lock, so that no process writes into a file that is no longer the store, or keeps outdated values in memory.
//! SQLite's own locks are not enough: they are released between two transactions.
//!
//! The system releases the lock when a process ends. The lock file is empty, and is never removed.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use super::fault::OpenFault;
use super::paths::{beside, resolved};
use super::private;

/// The lock, until it is dropped.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: File,
}

impl StoreLock {
    /// Acquires the lock shared with other processes that use the store. The folder of the store exists.
    pub(super) fn shared(store: &Path) -> Result<Self, OpenFault> {
        let (path, file) = open(store)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenFault::BeingRestored { path: store.to_owned() }),
            Err(TryLockError::Error(source)) => Err(OpenFault::Lock { path, source }),
        }
    }

    /// Acquires the lock exclusively; `None` if other processes use the store. The folder of the store exists.
    pub(super) fn exclusive(store: &Path) -> Result<Option<Self>, OpenFault> {
        let (path, file) = open(store)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(OpenFault::Lock { path, source }),
        }
    }
}

/// Returns the lock file of a store.
pub(super) fn lock_of(store: &Path) -> PathBuf {
    beside(&resolved(store), ".lock")
}

fn open(store: &Path) -> Result<(PathBuf, File), OpenFault> {
    let path = lock_of(store);
    match private::open_or_create(&path, store) {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(OpenFault::Lock { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_shared_or_exclusive() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("postonce.db");
        let (one, other) = (StoreLock::shared(&store).unwrap(), StoreLock::shared(&store).unwrap());
        drop(one);
        assert!(StoreLock::exclusive(&store).unwrap().is_none());
        drop(other);
        let exclusive = StoreLock::exclusive(&store).unwrap();
        assert!(exclusive.is_some() && StoreLock::exclusive(&store).unwrap().is_none());
        assert!(matches!(StoreLock::shared(&store), Err(OpenFault::BeingRestored { .. })));
        drop(exclusive);
        assert!(StoreLock::shared(&store).is_ok());
    }

    #[test]
    fn a_store_has_one_lock_for_all_of_its_paths() {
        let folder = tempfile::tempdir().unwrap();
        let (store, link) = (folder.path().join("postonce.db"), folder.path().join("link.db"));
        File::create(&store).unwrap();
        std::os::unix::fs::symlink(&store, &link).unwrap();
        let _shared = StoreLock::shared(&link).unwrap();
        assert!(StoreLock::exclusive(&store).unwrap().is_none());
    }
}
