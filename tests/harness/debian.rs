//! Programs from Debian packages, for tests that need them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Launch, succeeds};
use crate::workspace;

const GET_TIME_MAX: Duration = Duration::from_secs(300);

/// Downloads and unpacks packages into the current directory.
const UNPACK: &str = r#"
    apt-get download -q "$@"
    for package in *.deb; do
        dpkg-deb -x "$package" .
        rm "$package"
    done
"#;

/// Returns a shell script to run as root, such as `apt-get install`. Scripts run one at a time, because apt-get refuses to run
/// concurrently. `hint` is the failure message on a machine that cannot run it.
///
/// # Panics
/// When the machine is not Debian, or neither this process nor sudo without a password is root.
pub fn as_root(name: &str, script: &str, hint: &str) -> Launch {
    assert!(succeeds("apt-get", &["--version"]), "{hint}");
    let lock = workspace::target_directory().join("apt-get.lock");
    let lock = lock.to_str().expect("Cargo's directory has a name in UTF-8");
    privileged(name, "flock", &format!("{hint}; installing it needs root or sudo"))
        .arguments([lock, "sh", "-ec", script])
}

/// Returns a program to run as root. Sudo, if it is needed, hides the variables of this process from the program, and this
/// process cannot kill a program that sudo started.
///
/// # Panics
/// When neither this process nor sudo without a password is root, with the hint.
pub fn privileged(name: &str, program: &str, hint: &str) -> Launch {
    if is_root() {
        return Launch::of(name, program, Path::new("/"));
    }
    // `-n` never asks for a password, because tests run unattended.
    assert!(succeeds("sudo", &["-n", "true"]), "{hint}");
    Launch::of(format!("sudo {name}"), "sudo", Path::new("/")).arguments(["-n", program])
}

/// Unpacks packages into a directory without installing them.
///
/// # Panics
/// When they cannot be downloaded or unpacked, with the hint.
pub fn unpack(packages: &[&str], directory: &Path, hint: &str) {
    let get = || {
        let launch = Launch::of("apt-get download", "sh", directory).arguments(["-ec", UNPACK, "sh"]);
        launch.arguments(packages).run(GET_TIME_MAX)
    };
    if get().0.success() {
        return;
    }
    // The package list is missing or out of date.
    let (updated, output) = as_root("apt-get update", "apt-get update -q", hint).run(GET_TIME_MAX);
    assert!(updated.success(), "{hint}; apt-get printed\n{}", output.join("\n"));
    let (status, output) = get();
    assert!(status.success(), "{hint}; it printed\n{}", output.join("\n"));
}

/// Unpacks packages into a directory below the target directory, unless what is there is usable, and returns the directory.
///
/// # Panics
/// When they cannot be downloaded or unpacked, with the hint.
pub fn unpacked(name: &str, packages: &[&str], is_usable: impl Fn(&Path) -> bool, hint: &str) -> PathBuf {
    let directory = workspace::target_directory().join(name);
    fs::create_dir_all(&directory).expect("Cargo's directory can be written");
    // One process unpacks them. Others that start at the same time wait here.
    let lock_file = File::create(directory.join("lock")).expect("Cargo's directory can be written");
    lock_file.lock().expect("a file can be locked");
    if !is_usable(&directory) {
        unpack(packages, &directory, hint);
    }
    directory
}

/// Returns whether this process runs as root.
pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// A program that needs no other file of its package.
#[derive(Debug, Clone, Copy)]
pub struct Packaged {
    /// The program, in `/usr/bin`.
    pub program: &'static str,
    /// The package that contains it.
    pub package: &'static str,
    /// Arguments with which the program ends at once and without an error.
    pub probe: &'static [&'static str],
    /// Failure message if the program is missing and the package cannot be unpacked.
    pub hint: &'static str,
}

impl Packaged {
    /// Returns the program of this machine, or unpacks it from the package below the target directory.
    ///
    /// # Panics
    /// When it is missing and cannot be unpacked.
    pub fn path(&self) -> PathBuf {
        if succeeds(self.program, self.probe) {
            return PathBuf::from(self.program);
        }
        let in_directory = |directory: &Path| directory.join("usr/bin").join(self.program);
        let is_usable = |directory: &Path| succeeds(in_directory(directory), self.probe);
        in_directory(&unpacked(self.program, &[self.package], is_usable, self.hint))
    }
}
