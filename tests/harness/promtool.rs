//! `promtool`, which checks metrics, alert rules and configurations of Prometheus, and Prometheus itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::Packaged;
use crate::process::output_for;

const PROMTOOL: Packaged = Packaged {
    program: "promtool",
    package: "prometheus",
    probe: &["--version"],
    hint: "the tests check metrics with promtool, which is missing here (Debian: `apt-get install prometheus`)",
};

/// Runs promtool with an input. Returns whether it succeeded, and its output.
///
/// # Panics
/// When promtool is missing and cannot be unpacked.
pub fn run(arguments: &[&str], directory: &Path, input: &str) -> (bool, String) {
    let output = output_for(Command::new(PROMTOOL.path()).args(arguments).current_dir(directory), input);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Returns the path of Prometheus, which is in the same package.
///
/// # Panics
/// When Prometheus is missing and cannot be unpacked.
pub fn prometheus() -> PathBuf {
    PROMTOOL.path().with_file_name("prometheus")
}
