//! Installation of packages that a lock file pins.

use std::fs::{self, File};
use std::path::Path;

/// Runs `install` unless it was completed for the current content of the lock file and the result is intact. If several test
/// processes start at once, one installs and the others wait.
///
/// # Panics
/// When the lock file cannot be read.
pub fn install_once(
    lock_path: &Path,
    directory: &Path,
    is_intact: impl FnOnce() -> bool,
    install: impl FnOnce(),
) {
    // The stamp contains the whole lock file, so any change of it causes an installation.
    let stamp = directory.join(".installed-from");
    let lock_file = File::open(lock_path).expect("the lock file is part of the tests");
    lock_file.lock().expect("a file can be locked");
    let wanted = fs::read(lock_path).expect("the lock file can be read");
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) || !is_intact() {
        install();
        fs::write(&stamp, &wanted).expect("the installation can be marked as complete");
    }
}
