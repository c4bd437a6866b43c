//! Takes a backup of the store into one file, while the service runs.
//!
//! 1. A snapshot of the pages is copied to `FILE.partial` (`copy`), while there is enough space (`space`).
//! 2. The time of the snapshot is written into the copy, and the whole copy is checked, so that every backup can be restored.
//! 3. The copy is synced and renamed, so that `FILE` is always a complete backup or does not exist.
//!
//! Nothing is written to the store, not even a schema migration, so that a backup is possible before an upgrade.

pub(super) mod contents;
pub(super) mod copy;
mod fault;
pub(super) mod space;
mod unfinished;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use self::contents::{ORIGIN, Origin};
use self::copy::{check_closed, check_in_place, check_sound, seal};
pub(super) use self::fault::FileOperation;
use self::space::{FreeBytes, SpaceWatch, free_bytes};
use super::connection::{Role, connect};
use super::lock::{IfMissing, StoreLock};
use super::migrations::check;
use super::open_files::is_at;
use super::paths::{SIDECARS, beside, database_files, folder_of, resolved};
use super::private;
use super::sync_store::overwrite;
use crate::files::check_replaceable;
use crate::ports::world::World;

pub use self::contents::Contents;
pub use self::copy::{Progress, ProgressCallback};
pub use self::fault::BackupFault;
pub use self::space::SpaceLimits;
pub use self::unfinished::{Begin, Unfinished};

/// What to do if the backup file already exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Keep the file, and take no backup.
    Keep,
    /// Replace it when the new backup is complete.
    Replace,
}

/// Options of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupOptions {
    /// What to do if the file exists.
    pub existing: Existing,
    /// The space that the backup may use.
    pub limits: SpaceLimits,
}

/// Result of a backup.
#[derive(Debug)]
pub struct TakenBackup {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Contents of the file.
    pub contents: Contents,
}

/// Takes a backup of the store into a file. Blocks until the backup is complete and synced.
///
/// # Errors
/// [`BackupFault`]: there is no new backup, and an existing file of this name is unchanged. If only the sync of the
/// folder failed, the new backup has its name, but may not survive a loss of power.
pub fn take(
    store: &Path,
    file: &Path,
    options: BackupOptions,
    world: &dyn World,
    on_progress: ProgressCallback<'_>,
) -> Result<TakenBackup, BackupFault> {
    take_on(&free_bytes, (store, file), options, world, on_progress)
}

/// Like [`take`], with `free` as the source of the free space on file systems.
fn take_on(
    free: FreeBytes<'_>,
    (store, file): (&Path, &Path),
    BackupOptions { existing, limits }: BackupOptions,
    world: &dyn World,
    on_progress: ProgressCallback<'_>,
) -> Result<TakenBackup, BackupFault> {
    // Checked before symbolic links are resolved, because a backup must not replace the target of a link.
    check_regular(file)?;
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
            // The existing file may be another store and not an old backup.
            Existing::Replace => check_closed(&file)?,
        }
    }
    let in_use = StoreLock::shared(&store, IfMissing::Leave)?;
    let _only_one = lock_backups(&store)?;
    private::restrict(&store);
    let partial = Partial::fresh(beside(&file, ".partial"))?;

    let reading = |error| FileOperation::of("read", &store).sql(error);
    let source = connect(&store, Role::Read).map_err(reading)?;
    if check(&source, &store)? == 0 {
        return Err(BackupFault::Empty { path: store });
    }
    let taken_at = world.now();
    // In another folder, the backup is owned by the user who takes it.
    let beside = folder_of(&file) == folder_of(&store);
    let space = SpaceWatch::start((&store, &partial.0), limits, free)?;
    let check_space = |rest| space.check(rest);
    let beside = beside.then_some(&*store);
    let copy = copy::copy((&source, &store), &partial.0, beside, &check_space, on_progress)?;
    // If the store was replaced during the copy, the copy is not a backup of the current store.
    check_in_place(&source, &store)?;
    // Together: a process that starts meanwhile would look for a log that the last connection has removed.
    drop((source, in_use));
    overwrite(&copy, ORIGIN, &Origin::of(Some(taken_at), None).encode())
        .map_err(|fault| FileOperation::of("write", &partial.0).sql(fault))?;
    check_sound(&copy, &partial.0, on_progress)?;
    let contents = Contents::read(&copy, &partial.0)?;
    seal(copy, &partial.0)?;
    let bytes =
        partial.0.metadata().map_err(|error| FileOperation::of("read", &partial.0).file(error))?.len();
    partial.publish(&file, existing)?;
    Ok(TakenBackup { bytes, contents })
}

/// Acquires the lock for backups of a store or into a file. Two concurrent backups would use the same partial file.
fn lock_backups(store: &Path) -> Result<File, BackupFault> {
    let path = beside(store, ".backup-lock");
    let opened = private::open_or_create(&path, store);
    let file = opened.map_err(|error| FileOperation::of("open", &path).file(error))?;
    match file.try_lock() {
        // The previous holder replaced or removed the lock file. The next attempt opens the current one.
        Ok(()) if !is_at(&path, &file).unwrap_or(false) => Err(BackupFault::UnderWay),
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BackupFault::UnderWay),
        Err(TryLockError::Error(error)) => Err(FileOperation::of("lock", &path).file(error)),
    }
}

/// The partial file of a backup. It is removed when it is dropped unpublished, or after a crash by the next backup.
struct Partial(PathBuf);

impl Partial {
    fn fresh(path: PathBuf) -> Result<Self, BackupFault> {
        let partial = Self(path);
        partial.remove().map_err(|error| FileOperation::of("remove", &partial.0).file(error))?;
        Ok(partial)
    }

    fn remove(&self) -> io::Result<()> {
        database_files(&self.0).try_for_each(|file| remove_if_exists(&file))
    }

    /// Renames the file to its final name.
    fn publish(self, file: &Path, existing: Existing) -> Result<(), BackupFault> {
        publish(&self.0, file, existing)
    }
}

/// Renames an unfinished file to its final name, and syncs the folder.
fn publish(partial: &Path, file: &Path, existing: Existing) -> Result<(), BackupFault> {
    let naming = |error| FileOperation::of("write", file).file(error);
    match existing {
        Existing::Replace => std::fs::rename(partial, file).map_err(naming)?,
        // A rename would replace a file that was created in the meantime; a hard link fails instead.
        Existing::Keep => match std::fs::hard_link(partial, file) {
            Ok(()) => remove_if_exists(partial).map_err(naming)?,
            Err(_) if file.exists() => return Err(BackupFault::Exists { path: file.to_owned() }),
            // Some file systems, such as FAT, have no hard links.
            Err(_) => std::fs::rename(partial, file).map_err(naming)?,
        },
    }
    let folder = folder_of(file);
    let sync = || File::open(folder)?.sync_all();
    sync().map_err(|error| FileOperation::of("sync the folder", folder).file(error))
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "The unfinished backup {} cannot be removed", self.0.display());
        }
    }
}

/// Refuses a path that is not a regular file: a backup would replace a device, and opening a pipe would block.
pub(super) fn check_regular(path: &Path) -> Result<(), BackupFault> {
    check_replaceable(path).map_err(|error| FileOperation::of("use", path).file(error))
}

/// Removes a file if it exists.
pub(super) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests;
