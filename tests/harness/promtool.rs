//! `promtool`, which checks metrics and alert rules: that of this machine, or that of Debian's package, which is unpacked
//! beside the build and not installed.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{Launch, succeeds};
use crate::{debian, workspace};

/// Longest time for getting the package.
const GET_TIME_MAX: Duration = Duration::from_secs(300);

const HINT: &str =
    "the tests check metrics with promtool, which is missing here (Debian: `apt-get install prometheus`)";

/// Runs promtool with an input. Returns whether it ended without an error, and its output.
///
/// # Panics
/// When promtool is missing and cannot be unpacked.
pub fn run(arguments: &[&str], directory: &Path, input: &str) -> (bool, String) {
    let mut child = Command::new(program())
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool can be started");
    let mut stdin = child.stdin.take().expect("its input is a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn program() -> PathBuf {
    if succeeds("promtool", &["--version"]) {
        return PathBuf::from("promtool");
    }
    let directory = workspace::target_directory().join("promtool");
    fs::create_dir_all(&directory).expect("Cargo's directory can be written");
    let unpacked = directory.join("usr/bin/promtool");
    // One process unpacks it, and others that start at once wait here.
    let lock_file = File::create(directory.join("lock")).expect("Cargo's directory can be written");
    lock_file.lock().expect("a file can be locked");
    if !succeeds(&unpacked, &["--version"]) {
        unpack(&directory);
    }
    unpacked
}

fn unpack(directory: &Path) {
    let get = "apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb";
    let unpack = || Launch::of("apt-get download", "sh", directory).arguments(["-ec", get]).run(GET_TIME_MAX);
    if unpack().0.success() {
        return;
    }
    // The list of packages is missing or out of date.
    let (updated, output) = debian::as_root("apt-get update", "apt-get update -q", HINT).run(GET_TIME_MAX);
    assert!(updated.success(), "{HINT}; apt-get printed\n{}", output.join("\n"));
    let (status, output) = unpack();
    assert!(status.success(), "{HINT}; it printed\n{}", output.join("\n"));
}
