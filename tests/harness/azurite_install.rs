//! Azurite, installed from the committed lock file into `tests/azurite/node_modules`.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process::{Launch, Process};
use crate::workspace;

/// Longest installation.
const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);

/// The program to give to `node`. Installs it first, where that was not done for this lock file.
///
/// # Panics
/// When Node.js or npm is missing, or the installation fails; with what to do about it.
pub fn program() -> PathBuf {
    let directory = workspace::root().join("tests/azurite");
    let modules = directory.join("node_modules");
    // The whole lock file is the stamp: any change of it installs again.
    let stamp = modules.join(".installed-from");
    let lock_path = directory.join("package-lock.json");
    let lock_file = File::open(&lock_path).expect("the lock file of Azurite is part of the tests");
    // Several test processes may start at once: one installs, the others wait here.
    lock_file.lock().expect("a file can be locked");
    let wanted = fs::read(&lock_path).expect("the lock file can be read");
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        demand("node");
        demand("npm");
        let launch = Launch::of("npm ci", "npm", &directory).arguments(["ci", "--no-audit", "--no-fund"]);
        let mut npm = Process::start(&launch);
        let status = npm.wait(INSTALL_TIME_MAX);
        npm.wait_for_output();
        assert!(
            status.success(),
            "Azurite, which the tests run against, cannot be installed: `npm ci` in tests/azurite said\n{}",
            npm.log().lines().join("\n")
        );
        fs::write(&stamp, &wanted).expect("the installation can be marked as complete");
    }
    demand("node");
    modules.join("azurite/dist/src/azurite.js")
}

fn demand(program: &str) {
    let answer = Command::new(program).arg("--version").output();
    assert!(
        answer.is_ok_and(|output| output.status.success()),
        "`{program}` is missing: the tests run against Azurite, which needs Node.js 20 or newer with npm \
         (Debian: `apt-get install nodejs npm`)"
    );
}
