//! Azurite, installed from the committed lock file into `tests/azurite/node_modules`.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process::{Launch, Process};
use crate::workspace;

/// Longest time for the installation.
const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);

/// The start script for `node`. Installs Azurite first if it is not installed for the current lock file.
///
/// # Panics
/// When Node.js or npm is missing, or the installation fails. The message says how to fix it.
pub fn program() -> PathBuf {
    let directory = workspace::root().join("tests/azurite");
    let modules = directory.join("node_modules");
    // The stamp contains the whole lock file, so any change of it causes an installation.
    let stamp = modules.join(".installed-from");
    let lock_path = directory.join("package-lock.json");
    let lock_file = File::open(&lock_path).expect("the lock file of Azurite is part of the tests");
    // Several test processes may start at once: one installs, and the others wait here.
    lock_file.lock().expect("a file can be locked");
    let wanted = fs::read(&lock_path).expect("the lock file can be read");
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        require("node");
        require("npm");
        let launch = Launch::of("npm ci", "npm", &directory).arguments(["ci", "--no-audit", "--no-fund"]);
        let mut npm = Process::start(&launch);
        let status = npm.wait(INSTALL_TIME_MAX);
        npm.wait_for_output();
        assert!(
            status.success(),
            "Azurite, which the tests run against, cannot be installed: `npm ci` in tests/azurite printed\n{}",
            npm.log().lines().join("\n")
        );
        fs::write(&stamp, &wanted).expect("the installation can be marked as complete");
    }
    require("node");
    directory.join("start.js")
}

fn require(program: &str) {
    let answer = Command::new(program).arg("--version").output();
    assert!(
        answer.is_ok_and(|output| output.status.success()),
        "`{program}` is missing: the tests run against Azurite, which needs Node.js 20 or newer with npm \
         (Debian: `apt-get install nodejs npm`)"
    );
}
