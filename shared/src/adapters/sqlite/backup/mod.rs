//! A backup of the store in one file, while the service runs.
//!
//! 1. A snapshot of the pages is copied (`copy`) to `FILE.partial`, while there is room for it (`space`).
//! 2. The time of the snapshot is written into the copy, and the copy is checked from beginning to end: a backup that
//!    cannot be restored is useless.
//! 3. The copy is synced and renamed. The name always refers to a complete backup, or to nothing.
//!
//! Nothing is written to the store, not even a schema migration: a backup before an upgrade must be possible.

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

/// What to do if a file with the name of the backup exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Keep the file, and take no backup.
    Keep,
    /// Replace it when the new backup is complete.
    Replace,
}

/// Decisions of the operator about a backup.
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
    /// Its size in bytes.
    pub bytes: u64,
    /// Its contents.
    pub contents: Contents,
}

/// Takes a backup of the store into a file. Blocks until the backup is complete and synced.
///
/// # Errors
/// [`BackupFault`]: there is no new backup, and an existing file of that name is unchanged.
pub fn take(
    store: &Path,
    file: &Path,
    options: BackupOptions,
    world: &dyn World,
    on_progress: ProgressCallback<'_>,
) -> Result<TakenBackup, BackupFault> {
    take_on(&free_bytes, (store, file), options, world, on_progress)
}

/// Takes a backup, on file systems with the free space that `free` reports.
fn take_on(
    free: FreeBytes<'_>,
    (store, file): (&Path, &Path),
    BackupOptions { existing, limits }: BackupOptions,
    world: &dyn World,
    on_progress: ProgressCallback<'_>,
) -> Result<TakenBackup, BackupFault> {
    // Before links are resolved: a backup takes the place of no file to which a link leads.
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
            // The file may be another store rather than an old backup.
            Existing::Replace => check_closed(&file)?,
        }
    }
    let _in_use = StoreLock::shared(&store, IfMissing::Leave)?;
    let _only_one = lock_backups(&store)?;
    private::restrict(&store);
    let partial = Partial::fresh(beside(&file, ".partial"))?;

    let reading = |error| FileOperation::of("read", &store).sql(error);
    let source = connect(&store, Role::Read).map_err(reading)?;
    if check(&source, &store)? == 0 {
        return Err(BackupFault::Empty { path: store });
    }
    let taken_at = world.now();
    // In another folder, the backup belongs to the user who takes it.
    let beside = folder_of(&file) == folder_of(&store);
    let space = SpaceWatch::start((&store, &partial.0), limits, free)?;
    let check_space = |rest| space.check(rest);
    let beside = beside.then_some(&*store);
    let copy = copy::copy((&source, &store), &partial.0, beside, &check_space, on_progress)?;
    // A backup of a file that was the store is not one of the store.
    check_in_place(&source, &store)?;
    drop(source);
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

/// Locks the backups of a store, or those into a file: two at a time would use the same name for the unfinished file.
fn lock_backups(store: &Path) -> Result<File, BackupFault> {
    let path = beside(store, ".backup-lock");
    let opened = private::open_or_create(&path, store);
    let file = opened.map_err(|error| FileOperation::of("open", &path).file(error))?;
    match file.try_lock() {
        // The process that held it has replaced or removed it: the next attempt finds the present one.
        Ok(()) if !is_at(&path, &file).unwrap_or(false) => Err(BackupFault::UnderWay),
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BackupFault::UnderWay),
        Err(TryLockError::Error(error)) => Err(FileOperation::of("lock", &path).file(error)),
    }
}

/// The unfinished backup. It is removed when it is dropped before it was published; after a crash, the next backup
/// removes it.
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

    /// Gives the file its final name.
    fn publish(self, file: &Path, existing: Existing) -> Result<(), BackupFault> {
        publish(&self.0, file, existing)
    }
}

/// Renames an unfinished file to its final name, and syncs the folder.
fn publish(partial: &Path, file: &Path, existing: Existing) -> Result<(), BackupFault> {
    let naming = |error| FileOperation::of("write", file).file(error);
    match existing {
        Existing::Replace => std::fs::rename(partial, file).map_err(naming)?,
        // A rename would replace a file that was created in the meantime; a link does not.
        Existing::Keep => match std::fs::hard_link(partial, file) {
            Ok(()) => remove_if_exists(partial).map_err(naming)?,
            Err(_) if file.exists() => return Err(BackupFault::Exists { path: file.to_owned() }),
            // Not every file system has hard links, for example that of a memory stick.
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

/// Refuses a name that belongs to something else than a regular file: a backup would take the place of a device, or the open
/// of a pipe would wait for ever.
pub(super) fn check_regular(path: &Path) -> Result<(), BackupFault> {
    check_replaceable(path).map_err(|error| FileOperation::of("use", path).file(error))
}

/// Removes a file, if it exists.
pub(super) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests;
