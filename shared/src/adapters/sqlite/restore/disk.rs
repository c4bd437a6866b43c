//! Replaces a store file atomically: a crash at any time leaves a complete old or new store.
//!
//! SQLite applies the log at a path to any database file at this path. So the log of the old store must be removed before
//! the new file is renamed. If the old store can be read, `merge_log` lets SQLite checkpoint the log into it first.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::Connection;

use super::super::backup::space::free_bytes;
use super::super::backup::{BackupFault, FileOperation, remove_if_exists};
use super::super::connection::{Role, connect};
use super::super::fault::{Remedy, remedy};
use super::super::lock::lock_of;
use super::super::paths::{SIDECARS, beside, database_files, folder_of};

/// The file operations of a restore. Tests use an implementation that fails.
pub(super) trait Disk {
    /// Creates a second name (hard link) for a file.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames a file, replacing an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file if it exists.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Syncs a folder. Afterwards its changes survive a loss of power.
    fn sync(&self, folder: &Path) -> io::Result<()>;
    /// Returns the free bytes of the file system of a folder, or `None` if the file system does not report its size.
    fn free_bytes(&self, folder: &Path) -> io::Result<Option<u64>>;
}

/// The real file system.
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        remove_if_exists(path)
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<Option<u64>> {
        free_bytes(folder)
    }
}

/// Checkpoints the log of the old store into its file, and locks the file until the connection is dropped. Returns
/// `None` if the store cannot be read. Its log must then be renamed together with the file.
pub(super) fn merge_log(store: &Path) -> Result<Option<Connection>, BackupFault> {
    let in_use = || BackupFault::InUse { store: store.to_owned(), lock: lock_of(store) };
    let merged = connect(store, Role::Write).and_then(|connection| {
        // SQLite changes the mode only if no other connection of any program has the file open.
        let journal_mode: String =
            connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
        connection.execute_batch("BEGIN EXCLUSIVE")?;
        Ok((connection, journal_mode))
    });
    match merged {
        Ok((connection, journal_mode)) if journal_mode == "delete" => Ok(Some(connection)),
        Ok(_) => Err(in_use()),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Err(in_use()),
        Err(error) if remedy(&error) == Remedy::Repair => Ok(None),
        Err(error) => Err(FileOperation::of("get exclusive access to", store).sql(error)),
    }
}

/// Replaces the store with the prepared file, and keeps the old store under the name `kept`.
pub(super) fn replace(
    disk: &dyn Disk,
    store: &Path,
    prepared: &Path,
    kept: &Path,
) -> Result<(), BackupFault> {
    let folder = folder_of(store);
    let keeping = |error| FileOperation::of("keep", store).file(error);
    if store.exists() {
        disk.link(store, kept).map_err(keeping)?;
    }
    // Sidecars exist only if the old store is missing or its log could not be merged. A crash after this leaves an old
    // store that could not be read before either, and all its files are also under the name `kept`.
    for suffix in SIDECARS {
        let sidecar = beside(store, suffix);
        if sidecar.exists() {
            disk.rename(&sidecar, &beside(kept, suffix)).map_err(keeping)?;
        }
    }
    let syncing = |error| FileOperation::of("sync the folder", folder).file(error);
    disk.sync(folder).map_err(syncing)?;
    disk.rename(prepared, store)
        .map_err(|error| FileOperation::of("put the backup in the place of", store).file(error))?;
    disk.sync(folder).map_err(syncing)
}

/// Removes the files of a killed restore: its copy, and the second name of a store that was not replaced.
pub(super) fn remove_leftovers(disk: &dyn Disk, store: &Path, prepared: &Path) -> io::Result<()> {
    remove_whole(disk, prepared)?;
    let Ok(here) = store.metadata() else { return Ok(()) };
    let Some(name) = store.file_name() else { return Ok(()) };
    let mut kept = name.to_owned();
    kept.push(KEPT_MARK);
    for entry in std::fs::read_dir(folder_of(store))? {
        let entry = entry?;
        let is_kept = entry.file_name().as_encoded_bytes().starts_with(kept.as_encoded_bytes());
        let metadata = entry.metadata()?;
        if is_kept && (metadata.dev(), metadata.ino()) == (here.dev(), here.ino()) {
            disk.remove(&entry.path())?;
        }
    }
    Ok(())
}

/// The part of the name of a kept store between the name of the store and the time of its replacement.
pub(super) const KEPT_MARK: &str = ".before-restore-";

/// Removes a database file and the files that SQLite keeps beside it.
pub(super) fn remove_whole(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    database_files(path).try_for_each(|file| disk.remove(&file))
}
