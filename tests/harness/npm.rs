//! Programs of Node.js, installed from committed lock files into the folders of these.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::{Launch, Process};
use crate::workspace;

/// Longest time for an installation.
const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);

/// Installs the packages of a folder of the workspace, if they are not installed for its current lock file. `what` names
/// them, with the reason why tests need them.
///
/// # Panics
/// When Node.js or npm is missing, or the installation fails. The message says how to fix it.
pub fn install(folder: &str, what: &str) {
    let directory = workspace::root().join(folder);
    // The stamp contains the whole lock file, so any change of it causes an installation.
    let stamp = directory.join("node_modules/.installed-from");
    let lock_path = directory.join("package-lock.json");
    let lock_file = File::open(&lock_path).expect("a lock file is part of the tests");
    // Several test processes may start at once: one installs, and the others wait here.
    lock_file.lock().expect("a file can be locked");
    let wanted = fs::read(&lock_path).expect("the lock file can be read");
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        require("node", what);
        require("npm", what);
        run_npm(&directory, folder, what);
        fs::write(&stamp, &wanted).expect("the installation can be marked as complete");
    }
    require("node", what);
}

fn run_npm(directory: &Path, folder: &str, what: &str) {
    let launch = Launch::of("npm ci", "npm", directory).arguments(["ci", "--no-audit", "--no-fund"]);
    let mut npm = Process::start(&launch);
    let status = npm.wait(INSTALL_TIME_MAX);
    npm.wait_for_output();
    assert!(
        status.success(),
        "{what} cannot be installed: `npm ci` in {folder} printed\n{}",
        npm.log().lines().join("\n")
    );
}

fn require(program: &str, what: &str) {
    let answer = Command::new(program).arg("--version").output();
    assert!(
        answer.is_ok_and(|output| output.status.success()),
        "`{program}` is missing: {what} needs Node.js 20 or newer with npm (Debian: `apt-get install nodejs npm`)"
    );
}
