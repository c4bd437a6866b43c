//! Access to files that an operator names by path, or that are written for an operator.
//!
//! A path may name a folder, a device, a pipe whose open blocks forever, or a symbolic link placed by an attacker.
//! Inputs that are read again later must therefore be regular files ([`open_regular`], [`read_regular`]). Outputs are
//! created anew without following links, readable only by their owner ([`create_private`], [`NewFile`]).

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rand::RngExt as _;
use rustix::fs::OFlags;

/// Mode of created files: only the owner can read or write them.
const PRIVATE_MODE: u32 = 0o600;

/// Opens a regular file for reading, without blocking. Follows symbolic links, because container platforms mount
/// secrets as links.
///
/// # Errors
/// When the file cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(File::options().read(true), path)
}

/// Like [`open_regular`], with the given options. Their custom flags are replaced.
///
/// # Errors
/// As for [`open_regular`].
pub fn open_regular_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Checked before the open, which has side effects on some devices.
    check_regular(fs::metadata(path)?.file_type())?;
    // Checked again, because the file may have been replaced meanwhile. The flag has no effect on regular files.
    let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    check_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// When it cannot be opened ([`open_regular`]) or read, or is larger.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_bounded(open_regular(path)?, bytes_max)
}

/// Reads an input of at most `bytes_max` bytes to its end.
///
/// # Errors
/// When it cannot be read, or is larger.
pub fn read_bounded(input: impl io::Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = input.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(length).unwrap_or(u64::MAX) > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {bytes_max} bytes"),
        ));
    }
    Ok(bytes)
}

/// Checks that a file is a regular file.
///
/// # Errors
/// An error that names the actual file type.
pub fn check_regular(found: FileType) -> io::Result<()> {
    let kind = match found {
        _ if found.is_file() => return Ok(()),
        _ if found.is_dir() => "a folder",
        _ if found.is_symlink() => "a symbolic link",
        _ if found.is_fifo() => "a pipe",
        _ if found.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {kind}, and not a regular file")))
}

/// Checks that a path does not exist or names a regular file (not a link to one), so that a new file may replace it.
///
/// # Errors
/// When the path names anything else, or cannot be inspected.
pub fn check_replaceable(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        found => check_regular(found?.file_type()),
    }
}

/// Creates a file with mode 0600 for reading and writing.
///
/// # Errors
/// When the file cannot be created, or the path exists. A symbolic link counts as existing and is not followed.
pub fn create_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(PRIVATE_MODE).open(path)
}

/// Creates an unnamed file in the folder for temporary files. It disappears when it is closed, even by a crash.
///
/// # Errors
/// When the file cannot be created.
pub fn create_unnamed() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("postonce-{:016x}", rand::rng().random::<u64>()));
    let file = create_private(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// A file that appears under its name only when it is complete. Until then it has an unpredictable name in the same
/// folder, and is removed if it is not completed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl NewFile {
    /// Creates the file under its temporary name ([`create_private`]).
    ///
    /// # Errors
    /// When the file cannot be created, or the path names something other than a regular file ([`check_replaceable`]).
    pub fn create(path: &Path) -> io::Result<Self> {
        check_replaceable(path)?;
        let mut part = path.to_owned().into_os_string();
        part.push(format!(".{:016x}.part", rand::rng().random::<u64>()));
        let part = PathBuf::from(part);
        let file = create_private(&part)?;
        Ok(Self { path: path.to_owned(), part, file })
    }

    /// Returns the file, to write to it.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Syncs the file, and renames it to its final name, replacing an older file. The name survives a power failure.
    ///
    /// # Errors
    /// When the file cannot be synced or renamed, or its temporary name belongs to another file.
    pub fn publish(self) -> io::Result<()> {
        self.file.sync_all()?;
        let (written, found) = (self.file.metadata()?, fs::symlink_metadata(&self.part)?);
        if (written.dev(), written.ino()) != (found.dev(), found.ino()) {
            let part = self.part.display();
            return Err(io::Error::other(format!("another file was put in the place of {part}")));
        }
        check_replaceable(&self.path)?;
        fs::rename(&self.part, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After `publish`, the file no longer has this name.
        drop(fs::remove_file(&self.part));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        fs::write(path("file"), "content").unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink(path("pipe"), path("link-to-pipe")).unwrap();
        let refused = |path: &Path| read_regular(path, 7).unwrap_err().to_string();
        assert!(refused(&path("pipe")).contains("it is a pipe"));
        assert!(refused(&path("link-to-pipe")).contains("it is a pipe"));
        assert!(refused(&path("socket")).contains("it is a socket"));
        assert!(refused(folder.path()).contains("it is a folder"));
        assert!(refused(Path::new("/dev/zero")).contains("it is a device"));
        assert_eq!(open_regular(&path("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read_regular(&path("file"), 7).unwrap(), b"content");
        assert_eq!(read_regular(&path("link"), 7).unwrap(), b"content");
        assert!(read_regular(&path("file"), 6).unwrap_err().to_string().contains("more than 6 bytes"));
    }

    #[test]
    fn a_new_file_is_private_follows_no_link_and_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names = || fs::read_dir(folder.path()).unwrap().count();
        fs::write(path("target"), "kept").unwrap();
        symlink(path("target"), path("results")).unwrap();
        symlink(path("target"), path("other.part")).unwrap();
        assert!(NewFile::create(&path("results")).unwrap_err().to_string().contains("a symbolic link"));
        assert!(NewFile::create(folder.path()).unwrap_err().to_string().contains("a folder"));
        let before = names();
        drop(NewFile::create(&path("other")).unwrap());
        assert_eq!(names(), before, "nothing is left of a file that was not completed");
        let (one, two) = (NewFile::create(&path("other")).unwrap(), NewFile::create(&path("other")).unwrap());
        one.file().write_all(b"one").unwrap();
        two.file().write_all(b"two").unwrap();
        one.publish().unwrap();
        assert_eq!((fs::read(path("other")).unwrap(), mode(&path("other"))), (b"one".to_vec(), 0o600));
        two.publish().unwrap();
        assert_eq!(fs::read(path("other")).unwrap(), b"two");
        assert_eq!((fs::read(path("target")).unwrap(), names()), (b"kept".to_vec(), before + 1));
        assert!(create_private(&path("results")).is_err(), "a link is not followed");
    }

    #[test]
    fn an_unnamed_file_is_written_and_read() {
        let mut file = create_unnamed().unwrap();
        file.write_all(b"copy").unwrap();
        let found = file.metadata().unwrap();
        assert_eq!((found.len(), found.nlink(), found.mode() & 0o777), (4, 0, 0o600));
    }
}
