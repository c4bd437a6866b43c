//! A backup of the store in one file, while the service runs.
//!
//! 1. The pages are copied as of one moment (`copy`), to `FILE.partial`.
//! 2. The copy gets a note of that moment, and is read from beginning to end: a backup that nobody could
//!    restore is none.
//! 3. It is synced, and gets its name. Under that name there is a whole backup, or nothing.
//!
//! Nothing is written to the store, not even a newer schema: a backup before an upgrade is what one is for.

pub(super) mod contents;
pub(super) mod copy;
mod fault;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use self::contents::{ORIGIN, Origin};
use self::copy::{check_closed, check_sound, seal};
pub(super) use self::fault::Doing;
use super::connection::{Role, connect};
use super::lock::StoreLock;
use super::migrations::check;
use super::paths::{SIDECARS, beside, folder_of, resolved, whole};
use super::private;
use super::sync_store::overwrite;
use crate::ports::world::World;

pub use self::contents::Contents;
pub use self::copy::{Progress, Watcher};
pub use self::fault::BackupFault;

/// What to do with a file that has the name of the backup already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and take no backup.
    Keep,
    /// Replace it, once the new one is whole.
    Replace,
}

/// A backup that was taken.
#[derive(Debug)]
pub struct Taken {
    /// Its size in bytes.
    pub bytes: u64,
    /// What is in it.
    pub contents: Contents,
}

/// Takes a backup of the store into a file. Blocks until it is whole and safe from a loss of power.
///
/// # Errors
/// [`BackupFault`]: there is no new backup, and whatever had its name is as it was.
pub fn take(
    store: &Path,
    file: &Path,
    existing: Existing,
    world: &dyn World,
    watcher: Watcher<'_>,
) -> Result<Taken, BackupFault> {
    let (store, file) = (resolved(store), resolved(file));
    if !store.exists() {
        return Err(BackupFault::Missing { path: store });
    }
    let own = private::LOCKS.iter().chain(&SIDECARS).any(|suffix| beside(&store, suffix) == file);
    if own || store == file {
        return Err(BackupFault::SameFile { path: file });
    }
    if file.exists() {
        match existing {
            Existing::Keep => return Err(BackupFault::Exists { path: file }),
            // Another store is no old backup.
            Existing::Replace => check_closed(&file)?,
        }
    }
    let _in_use = StoreLock::shared(&store)?;
    let _only_one = lock_backups(&store)?;
    private::narrow(&store);
    let partial = Partial::fresh(beside(&file, ".partial"))?;

    let reading = |error| Doing::of("read", &store).sql(error);
    let source = connect(&store, Role::Read).map_err(reading)?;
    if check(&source, &store)? == 0 {
        return Err(BackupFault::Empty { path: store });
    }
    let taken_at = world.now();
    // Elsewhere the backup belongs to the user who takes it.
    let beside = folder_of(&file) == folder_of(&store);
    let copy = copy::copy((&source, &store), &partial.0, beside.then_some(&*store), watcher)?;
    drop(source);
    overwrite(&copy, ORIGIN, &Origin::of(Some(taken_at), None).encode())
        .map_err(|fault| Doing::of("write", &partial.0).sql(fault))?;
    check_sound(&copy, &partial.0, watcher)?;
    let contents = Contents::read(&copy, &partial.0)?;
    seal(copy, &partial.0)?;
    let bytes = partial.0.metadata().map_err(|error| Doing::of("read", &partial.0).file(error))?.len();
    partial.publish(&file, existing)?;
    Ok(Taken { bytes, contents })
}

/// One backup of a store at a time: two would share the name of the unfinished file.
fn lock_backups(store: &Path) -> Result<File, BackupFault> {
    let path = beside(store, ".backup-lock");
    let opened = private::open_or_create(&path, store);
    let file = opened.map_err(|error| Doing::of("open", &path).file(error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BackupFault::UnderWay),
        Err(TryLockError::Error(error)) => Err(Doing::of("lock", &path).file(error)),
    }
}

/// The unfinished backup. Removed when it is dropped before it was published; what a killed process left
/// is removed by the next one.
struct Partial(PathBuf);

impl Partial {
    fn fresh(path: PathBuf) -> Result<Self, BackupFault> {
        let partial = Self(path);
        partial.remove().map_err(|error| Doing::of("remove", &partial.0).file(error))?;
        Ok(partial)
    }

    fn remove(&self) -> io::Result<()> {
        whole(&self.0).try_for_each(|file| remove_if_there(&file))
    }

    /// Gives it its name, and makes that safe from a loss of power.
    fn publish(self, file: &Path, existing: Existing) -> Result<(), BackupFault> {
        let naming = |error| Doing::of("write", file).file(error);
        match existing {
            Existing::Replace => std::fs::rename(&self.0, file).map_err(naming)?,
            // A rename would replace what came into being meanwhile; a link does not.
            Existing::Keep => match std::fs::hard_link(&self.0, file) {
                Ok(()) => {}
                Err(_) if file.exists() => return Err(BackupFault::Exists { path: file.to_owned() }),
                // Not every file system has links, such as that of a memory stick.
                Err(_) => std::fs::rename(&self.0, file).map_err(naming)?,
            },
        }
        drop(self);
        let folder = folder_of(file);
        let sync = || File::open(folder)?.sync_all();
        sync().map_err(|error| Doing::of("sync the folder", folder).file(error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "The unfinished backup {} stays", self.0.display());
        }
    }
}

/// Removes a file, if there is one.
pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
