//! Programs of npm, installed from a committed lock file into `node_modules` of its directory.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process::{Launch, Process};
use crate::workspace;

/// Longest time for the installation.
const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);

/// A directory below `tests` with a lock file, and what it installs.
#[derive(Debug, Clone, Copy)]
pub struct Locked {
    /// The name of the directory.
    pub directory: &'static str,
    /// What the tests need Node.js for, such as `the tests run against Azurite`.
    pub why: &'static str,
}

impl Locked {
    /// The directory, after an installation if there was none for the current lock file.
    ///
    /// # Panics
    /// When Node.js or npm is missing, or the installation fails. The message says how to fix it.
    pub fn installed(self) -> PathBuf {
        let directory = workspace::root().join("tests").join(self.directory);
        let modules = directory.join("node_modules");
        // The stamp contains the whole lock file, so any change of it causes an installation.
        let stamp = modules.join(".installed-from");
        let lock_path = directory.join("package-lock.json");
        let lock_file = File::open(&lock_path).expect("the lock file is part of the tests");
        // Several test processes may start at once: one installs, and the others wait here.
        lock_file.lock().expect("a file can be locked");
        let wanted = fs::read(&lock_path).expect("the lock file can be read");
        if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
            self.require("node");
            self.require("npm");
            let launch = Launch::of("npm ci", "npm", &directory).arguments(["ci", "--no-audit", "--no-fund"]);
            let mut npm = Process::start(&launch);
            let status = npm.wait(INSTALL_TIME_MAX);
            npm.wait_for_output();
            assert!(
                status.success(),
                "{}, but `npm ci` in tests/{} failed; it printed\n{}",
                self.why,
                self.directory,
                npm.log().lines().join("\n")
            );
            fs::write(&stamp, &wanted).expect("the installation can be marked as complete");
        }
        self.require("node");
        directory
    }

    fn require(self, program: &str) {
        let answer = Command::new(program).arg("--version").output();
        assert!(
            answer.is_ok_and(|output| output.status.success()),
            "`{program}` is missing: {}, which needs Node.js 20 or newer with npm \
             (Debian: `apt-get install nodejs npm`)",
            self.why
        );
    }
}
