//! How one file takes the place of another, so that a crash at any moment leaves one of them whole.
//!
//! A store is a file and perhaps a log beside it, and SQLite reads a log whatever file it stands beside. So
//! the log of the old store has to be gone before the new one gets the name: `settle` makes SQLite take it
//! into the old file first, where that can be read at all.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::Connection;

use super::super::backup::{BackupFault, Doing, remove_if_there};
use super::super::connection::{Role, connect};
use super::super::fault::{Remedy, remedy};
use super::super::lock::lock_of;
use super::super::paths::{SIDECARS, beside, folder_of, whole};

/// What is done to a folder. Tests have one that dies.
pub(super) trait Disk {
    /// Gives a file another name besides the one that it has.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file another name, and takes it from whatever had that.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file, if there is one.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Returns when what was done to the folder survives a loss of power.
    fn sync(&self, folder: &Path) -> io::Result<()>;
}

/// The file system.
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        remove_if_there(path)
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

/// The old store, all in its file, and nobody else at it until this is dropped. `None` where it cannot be
/// read: then its log has to be moved with it.
pub(super) fn settle(store: &Path) -> Result<Option<Connection>, BackupFault> {
    let in_use = || BackupFault::InUse { store: store.to_owned(), lock: lock_of(store) };
    let settled = connect(store, Role::Write).and_then(|connection| {
        // SQLite does this only for the last one who has the file open, other programs included.
        let journal_mode: String =
            connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
        connection.execute_batch("BEGIN EXCLUSIVE")?;
        Ok((connection, journal_mode))
    });
    match settled {
        Ok((connection, journal_mode)) if journal_mode == "delete" => Ok(Some(connection)),
        Ok(_) => Err(in_use()),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Err(in_use()),
        Err(error) if remedy(&error) == Remedy::Repair => Ok(None),
        Err(error) => Err(Doing::of("be alone with", store).sql(error)),
    }
}

/// Puts the prepared file in the place of the store. What was there gets the name `kept`.
pub(super) fn replace(
    disk: &dyn Disk,
    store: &Path,
    prepared: &Path,
    kept: &Path,
) -> Result<(), BackupFault> {
    let folder = folder_of(store);
    let keeping = |error| Doing::of("keep", store).file(error);
    if store.exists() {
        disk.link(store, kept).map_err(keeping)?;
    }
    // Only where the store could not be settled, or is missing. Between this and the end a crash leaves a
    // store that could not be read before either, and all of it under the name of what is kept.
    for suffix in SIDECARS {
        let sidecar = beside(store, suffix);
        if sidecar.exists() {
            disk.rename(&sidecar, &beside(kept, suffix)).map_err(keeping)?;
        }
    }
    let syncing = |error| Doing::of("sync the folder", folder).file(error);
    disk.sync(folder).map_err(syncing)?;
    disk.rename(prepared, store)
        .map_err(|error| Doing::of("put the backup in the place of", store).file(error))?;
    disk.sync(folder).map_err(syncing)
}

/// Removes what a restore that was killed has left: its copy, and the second name of a store that was not
/// replaced after all.
pub(super) fn tidy_up(disk: &dyn Disk, store: &Path, prepared: &Path) -> io::Result<()> {
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

/// What stands between the name of a store and the time at which it was replaced.
pub(super) const KEPT_MARK: &str = ".before-restore-";

/// Removes a file, and whatever SQLite keeps beside it.
pub(super) fn remove_whole(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    whole(path).try_for_each(|file| disk.remove(&file))
}
