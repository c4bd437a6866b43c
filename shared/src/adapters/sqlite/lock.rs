//! Who may use the file: an advisory lock on a file beside it.
//!
//! Every process that has the store open holds the lock together with the others. Putting a backup in the
//! place of the store needs the lock alone, so that nobody writes into a file that is no longer the store, or
//! remembers what is no longer true. SQLite's own locks cannot say that: they are free between two transactions.
//!
//! The system gives the lock back when a process ends, however it ends. The file stays: it has nothing in it.

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
    /// For a process that uses the store beside others. The folder of the store exists.
    pub(super) fn shared(store: &Path) -> Result<Self, OpenFault> {
        let (path, file) = open(store)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenFault::BeingRestored { path: store.to_owned() }),
            Err(TryLockError::Error(source)) => Err(OpenFault::Lock { path, source }),
        }
    }

    /// For whoever must be alone; `None` while others use the store. The folder of the store exists.
    pub(super) fn alone(store: &Path) -> Result<Option<Self>, OpenFault> {
        let (path, file) = open(store)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(OpenFault::Lock { path, source }),
        }
    }
}

/// The file that carries the lock of a store.
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
    fn many_share_it_and_one_is_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("postonce.db");
        let (one, other) = (StoreLock::shared(&store).unwrap(), StoreLock::shared(&store).unwrap());
        drop(one);
        assert!(StoreLock::alone(&store).unwrap().is_none());
        drop(other);
        let alone = StoreLock::alone(&store).unwrap();
        assert!(alone.is_some() && StoreLock::alone(&store).unwrap().is_none());
        assert!(matches!(StoreLock::shared(&store), Err(OpenFault::BeingRestored { .. })));
        drop(alone);
        assert!(StoreLock::shared(&store).is_ok());
    }

    #[test]
    fn a_store_has_one_lock_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let (store, link) = (folder.path().join("postonce.db"), folder.path().join("link.db"));
        File::create(&store).unwrap();
        std::os::unix::fs::symlink(&store, &link).unwrap();
        let _shared = StoreLock::shared(&link).unwrap();
        assert!(StoreLock::alone(&store).unwrap().is_none());
    }
}
