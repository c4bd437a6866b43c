//! `promtool`, which checks metrics, alert rules and configurations of Prometheus.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::debian::Packaged;

const PROMTOOL: Packaged = Packaged {
    program: "promtool",
    package: "prometheus",
    probe: &["--version"],
    hint: "the tests check metrics with promtool, which is missing here (Debian: `apt-get install prometheus`)",
};

/// Runs promtool with an input. Returns whether it ended without an error, and its output.
///
/// # Panics
/// When promtool is missing and cannot be unpacked.
pub fn run(arguments: &[&str], directory: &Path, input: &str) -> (bool, String) {
    let mut child = Command::new(PROMTOOL.path())
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
