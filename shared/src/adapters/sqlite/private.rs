//! Access rights of the store's files: only their owner may read or write them.
//!
//! A file is created with mode 0600, and the mode is set once more on the open file, so that no umask changes
//! it ([`create`]); a folder is created with mode 0700 ([`create_folder`]). SQLite gives the files that it keeps
//! beside a database the mode and the owner of the database. Files and folders that an older version or an
//! operator has left open to other users are narrowed when the store is opened ([`narrow`]).

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::Path;

use super::paths::{beside, folder_of, resolved, whole};

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// The bits of a mode that let other users in, those of the group included.
const OTHERS: u32 = 0o077;
/// The bits of a mode that let other users write.
const OTHERS_WRITE: u32 = 0o022;

/// Locks of the store, which are empty files.
pub(super) const LOCKS: [&str; 2] = [".lock", ".backup-lock"];

/// Creates a folder with mode 0700, and its missing parents likewise. A folder that exists is left alone.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        create_folder(parent)?;
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => return Ok(()),
        created => created?,
    }
    // A umask may have taken rights from the owner; then the folder cannot be opened either.
    if folder.metadata()?.mode() & 0o777 != FOLDER_MODE {
        std::fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))?;
    }
    if let Err(error) = check(folder.metadata()?.mode()) {
        tracing::warn!("The folder {} is not private: {error}", folder.display());
    }
    Ok(())
}

/// Creates an empty file with mode 0600; an error where it exists. Where root creates it, it belongs to the
/// owner of the store, so that an operator who is root does not lock the service out.
pub(super) fn create(path: &Path, store: Option<&Path>) -> io::Result<File> {
    // The file may be the store itself.
    let owner = store.and_then(owner_of);
    let file = File::options().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
    if let Err(error) = set_mode(&file, FILE_MODE) {
        tracing::warn!("The file {} is not private: {error}", path.display());
    }
    if let Some(owner) = owner {
        // Only root can do it, and only root needs to.
        drop(give(&file, owner));
    }
    Ok(file)
}

/// Opens a file of the store to lock it, and creates it as [`create`] does where it is missing.
pub(super) fn open_or_create(path: &Path, store: &Path) -> io::Result<File> {
    loop {
        // Read access is enough to lock a file.
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match create(path, Some(store)) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
}

/// Takes the rights of other users from the files of a store, and from its folder where nothing else is in it.
/// Warns of what was open to others, and of what stays open; the store can be used in any case.
pub(super) fn narrow(store: &Path) {
    let store = &resolved(store);
    let Some(owner) = owner_of(store) else { return };
    narrow_folder(store, owner);
    let mut narrowed = Vec::new();
    for path in whole(store).chain(LOCKS.map(|suffix| beside(store, suffix))) {
        match narrow_file(&path, owner) {
            Ok(None) => {}
            Ok(Some(mode)) => narrowed.push(format!("{} had mode {mode:04o}", path.display())),
            Err(error) => {
                tracing::warn!("Other users have access to the file {}: {error}", path.display());
            }
        }
    }
    if !narrowed.is_empty() {
        let files = narrowed.join(", ");
        tracing::warn!("Other users had access to the store. Its files have mode 0600 now: {files}");
    }
}

/// The mode that the file had, where it was narrowed.
fn narrow_file(path: &Path, owner: (u32, u32)) -> io::Result<Option<u32>> {
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
    // Never closed: where this process has the file open in SQLite, closing another handle of it would give
    // back SQLite's locks (POSIX). A file is narrowed once, so this is a handle or two.
    let file = ManuallyDrop::new(File::open(path)?);
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
        return Err(io::Error::other("it was replaced just now"));
    }
    // Before the mode: the owner of the store must keep the access that the mode gave to everybody.
    give(&file, owner)?;
    set_mode(&file, FILE_MODE)?;
    Ok(Some(found.mode() & 0o777))
}

fn narrow_folder(store: &Path, owner: (u32, u32)) {
    let folder = folder_of(store);
    let Ok(found) = folder.metadata() else { return };
    let (path, mode) = (folder.display(), found.mode() & 0o7777);
    if mode & OTHERS == 0 {
        return;
    }
    // A folder of another owner, such as root, may be what gives the service access to the store.
    if found.uid() == owner.0 && holds_only(folder, store) {
        let narrow = || set_mode(&File::open(folder)?, FOLDER_MODE | (mode & 0o7000));
        match narrow() {
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

/// Whether everything in the folder is of the store, by its name.
fn holds_only(folder: &Path, store: &Path) -> bool {
    let (Some(name), Ok(mut entries)) = (store.file_name(), folder.read_dir()) else { return false };
    let name = name.as_encoded_bytes();
    entries.all(|entry| entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(name)))
}

/// The user and the group that own the store; where there is none yet, those of its folder.
fn owner_of(store: &Path) -> Option<(u32, u32)> {
    let found = store.metadata().or_else(|_| folder_of(store).metadata()).ok()?;
    Some((found.uid(), found.gid()))
}

fn give(file: &File, (uid, gid): (u32, u32)) -> io::Result<()> {
    if file.metadata()?.uid() == uid { Ok(()) } else { fchown(file, Some(uid), Some(gid)) }
}

fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))?;
    check(file.metadata()?.mode())
}

/// An error where a mode that was set has no effect.
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

    /// As on a file system that ignores what is set, such as that of a memory stick.
    #[test]
    fn a_mode_that_has_no_effect_is_said_in_plain_words() {
        assert!(check(0o100_600).is_ok() && check(0o040_700).is_ok());
        for mode in [0o100_755, 0o100_640, 0o100_604, 0o100_601] {
            let error = check(mode).unwrap_err();
            assert!(error.to_string().starts_with("the file system keeps no access rights"), "{error}");
        }
    }
}
