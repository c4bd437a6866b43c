//! Programs from Debian's packages, for tests that need them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Launch, succeeds};
use crate::workspace;

/// Longest time for getting a package.
const GET_TIME_MAX: Duration = Duration::from_secs(300);

/// A shell script that needs root, such as one that calls `apt-get install`. Of several at once, one runs and the others wait,
/// since apt-get refuses to run beside another. `hint` is for a machine on which that is not possible.
///
/// # Panics
/// When the machine is no Debian, or neither this process nor sudo without a password is root.
pub fn as_root(name: &str, script: &str, hint: &str) -> Launch {
    assert!(succeeds("apt-get", &["--version"]), "{hint}");
    let lock = workspace::target_directory().join("apt-get.lock");
    let lock = lock.to_str().expect("Cargo's directory has a name in UTF-8");
    let locked = ["flock", lock, "sh", "-ec", script];
    if is_root() {
        let [flock, arguments @ ..] = locked;
        return Launch::of(name, flock, Path::new("/")).arguments(arguments);
    }
    // Never asks for a password, since nobody may be there to enter it.
    assert!(succeeds("sudo", &["-n", "true"]), "{hint}; installing it needs root or sudo");
    Launch::of(format!("sudo {name}"), "sudo", Path::new("/")).arguments(["-n"]).arguments(locked)
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// A program that needs nothing else of its package.
#[derive(Debug, Clone, Copy)]
pub struct Packaged {
    /// The program, which is in `/usr/bin`.
    pub program: &'static str,
    /// The package.
    pub package: &'static str,
    /// Arguments with which the program ends at once and without an error.
    pub probe: &'static [&'static str],
    /// For a machine on which the program is missing and the package cannot be unpacked.
    pub hint: &'static str,
}

impl Packaged {
    /// The program of this machine, or else that of the package, which is unpacked beside the build and not installed.
    ///
    /// # Panics
    /// When it is missing and cannot be unpacked.
    pub fn path(&self) -> PathBuf {
        if succeeds(self.program, self.probe) {
            return PathBuf::from(self.program);
        }
        let directory = workspace::target_directory().join(self.program);
        fs::create_dir_all(&directory).expect("Cargo's directory can be written");
        let unpacked = directory.join("usr/bin").join(self.program);
        // One process unpacks it, and others that start at once wait here.
        let lock_file = File::create(directory.join("lock")).expect("Cargo's directory can be written");
        lock_file.lock().expect("a file can be locked");
        if !succeeds(&unpacked, self.probe) {
            self.unpack(&directory);
        }
        unpacked
    }

    fn unpack(&self, directory: &Path) {
        let Self { package, hint, .. } = self;
        let get =
            format!("apt-get download -q {package} && dpkg-deb -x {package}_*.deb . && rm {package}_*.deb");
        let unpack =
            || Launch::of("apt-get download", "sh", directory).arguments(["-ec", &get]).run(GET_TIME_MAX);
        if unpack().0.success() {
            return;
        }
        // The list of packages is missing or out of date.
        let (updated, output) = as_root("apt-get update", "apt-get update -q", hint).run(GET_TIME_MAX);
        assert!(updated.success(), "{hint}; apt-get printed\n{}", output.join("\n"));
        let (status, output) = unpack();
        assert!(status.success(), "{hint}; it printed\n{}", output.join("\n"));
    }
}
