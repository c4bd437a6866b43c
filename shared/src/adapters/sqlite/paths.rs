//! Paths of the files of a store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Suffixes of the files that SQLite may keep beside a database.
pub(super) const SIDECARS: [&str; 3] = ["-wal", "-journal", "-shm"];

/// Returns the path of a database file and of the files that SQLite may keep beside it.
pub(super) fn database_files(path: &Path) -> impl Iterator<Item = PathBuf> {
    [path.to_owned()].into_iter().chain(SIDECARS.map(|suffix| beside(path, suffix)))
}

/// Returns the path with a suffix appended to the file name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the absolute path. SQLite parses a relative path that begins with `file:` as a URI, and uses no file for `:memory:`.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| Path::new(".").join(path))
}

/// Resolves symbolic links, so that a store has one lock regardless of the path in use.
pub(super) fn resolved(path: &Path) -> PathBuf {
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    // The file does not exist yet.
    match (folder_of(path).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        (Ok(_) | Err(_), _) => absolute(path),
    }
}

/// Returns the folder that contains a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
