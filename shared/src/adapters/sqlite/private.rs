//! Access rights of the store's files. Only the owner may read or write them.
//!
//! Files are created with mode 0600 ([`create`]), and the mode is set again on the open file, so that the umask has no effect.
//! Folders are created with mode 0700 ([`create_folder`]). SQLite gives its files beside a database the mode and the owner of
//! the database. When the store is opened, access of other users to existing files and folders is removed ([`restrict`]).

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::Path;

use super::paths::{beside, database_files, folder_of, resolved};
use crate::files::{open_regular, open_regular_with};

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// The mode bits that give access to the group and to other users.
const OTHERS: u32 = 0o077;
/// The mode bits that give write access to the group and to other users.
const OTHERS_WRITE: u32 = 0o022;

/// Suffixes of the lock files of a store.
pub(super) const LOCKS: [&str; 2] = [".lock", ".backup-lock"];

/// Creates a folder and its missing parents with mode 0700. An existing folder is not changed.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        create_folder(parent)?;
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        // Another process created the folder.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => return Ok(()),
        created => created?,
    }
    // The umask may have removed rights of the owner. Then the folder cannot be opened, so its mode is set by path.
    if folder.metadata()?.mode() & 0o777 != FOLDER_MODE {
        std::fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))?;
    }
    if let Err(error) = check(folder.metadata()?.mode()) {
        tracing::warn!("The folder {} is not private: {error}", folder.display());
    }
    Ok(())
}

/// Creates an empty file with mode 0600, and fails if it exists. A file created by root gets the owner of the store, so
/// that commands run as root do not lock the service out.
pub(super) fn create(path: &Path, store: Option<&Path>) -> io::Result<File> {
    // Read before the file is created, because the file may be the store itself.
    let owner = store.and_then(owner_of);
    let file = File::options().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
    if let Err(error) = set_mode(&file, FILE_MODE) {
        tracing::warn!("The file {} is not private: {error}", path.display());
    }
    if let Some(owner) = owner {
        // Only root can change the owner, and only files created by root need it.
        drop(set_owner(&file, owner));
    }
    Ok(file)
}

/// Opens a file of the store for locking. Creates it with [`create`] if it is missing.
pub(super) fn open_or_create(path: &Path, store: &Path) -> io::Result<File> {
    loop {
        match open_regular_with(File::options().read(true).write(true), path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Read access is sufficient to lock a file.
            Err(_) => return open_regular(path),
            opened => return opened,
        }
        match create(path, Some(store)) {
            // Another process created the file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
}

/// Removes the access of other users to the files of a store, and to its folder if it contains nothing else. Logs a
/// warning for access that was removed or that cannot be removed. Failures do not prevent use of the store.
pub(super) fn restrict(store: &Path) {
    let store = &resolved(store);
    let Some(owner) = owner_of(store) else { return };
    restrict_folder(store, owner);
    let mut restricted = Vec::new();
    for path in database_files(store).chain(LOCKS.map(|suffix| beside(store, suffix))) {
        match restrict_file(&path, owner) {
            Ok(None) => {}
            Ok(Some(mode)) => restricted.push(format!("{} had mode {mode:04o}", path.display())),
            Err(error) => {
                tracing::warn!("Other users have access to the file {}: {error}", path.display());
            }
        }
    }
    if !restricted.is_empty() {
        let files = restricted.join(", ");
        tracing::warn!("Other users had access to the store. Its files have mode 0600 now: {files}");
    }
}

/// Restricts a file to its owner. Returns the previous mode if the mode was changed.
fn restrict_file(path: &Path, owner: (u32, u32)) -> io::Result<Option<u32>> {
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    if found.mode() & OTHERS == 0 {
        return Ok(None);
    }
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // This handle is never closed. If SQLite has the file open in this process, closing another handle of the file
    // would release SQLite's POSIX locks. A file is restricted only once, so at most a few handles are leaked.
    let file = ManuallyDrop::new(File::open(path)?);
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
        return Err(io::Error::other("it was replaced just now"));
    }
    // The owner is set before the mode, because the owner of the store may have had access only through the old mode.
    set_owner(&file, owner)?;
    set_mode(&file, FILE_MODE)?;
    Ok(Some(found.mode() & 0o777))
}

fn restrict_folder(store: &Path, owner: (u32, u32)) {
    let folder = folder_of(store);
    let Ok(found) = folder.metadata() else { return };
    let (path, mode) = (folder.display(), found.mode() & 0o7777);
    if mode & OTHERS == 0 {
        return;
    }
    // A folder with another owner, such as root, is not changed: the service may need its mode to reach the store.
    if found.uid() == owner.0 && contains_only(folder, store) {
        let restrict = || set_mode(&File::open(folder)?, FOLDER_MODE | (mode & 0o7000));
        match restrict() {
            Ok(()) => tracing::warn!(
                "Other users had access to the folder of the store. {path} has mode 0700 now, it had {mode:04o}"
            ),
            Err(error) => tracing::warn!("Other users have access to the folder {path}: {error}"),
        }
    } else if mode & OTHERS_WRITE != 0 {
        tracing::warn!(
            "Other users can write to the folder {path} (mode {mode:04o}), and so replace the files of the store. \
             The folder has other contents or another owner, and is left as it is: give the store its own folder"
        );
    }
}

/// Returns whether the names of all files in the folder begin with the name of the store.
fn contains_only(folder: &Path, store: &Path) -> bool {
    let (Some(name), Ok(mut entries)) = (store.file_name(), folder.read_dir()) else { return false };
    let name = name.as_encoded_bytes();
    entries.all(|entry| entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(name)))
}

/// Returns the user id and the group id of the store's owner, or of its folder if the store does not exist.
fn owner_of(store: &Path) -> Option<(u32, u32)> {
    let found = store.metadata().or_else(|_| folder_of(store).metadata()).ok()?;
    Some((found.uid(), found.gid()))
}

fn set_owner(file: &File, (uid, gid): (u32, u32)) -> io::Result<()> {
    if file.metadata()?.uid() == uid { Ok(()) } else { fchown(file, Some(uid), Some(gid)) }
}

fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))?;
    check(file.metadata()?.mode())
}

/// Fails if setting the mode had no effect.
fn check(mode: u32) -> io::Result<()> {
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let why = "the file system keeps no access rights, so every user of this machine may read it";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some file systems, such as FAT, ignore modes.
    #[test]
    fn a_mode_without_effect_is_reported() {
        assert!(check(0o100_600).is_ok() && check(0o040_700).is_ok());
        for mode in [0o100_755, 0o100_640, 0o100_604, 0o100_601] {
            let error = check(mode).unwrap_err();
            assert!(error.to_string().starts_with("the file system keeps no access rights"), "{error}");
        }
    }
}
