//! `systemd-analyze`, which checks units, from this machine or from Debian's package.

use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use crate::debian;
use crate::process::succeeds;

const INSTALL_TIME_MAX: Duration = Duration::from_secs(300);
const INSTALL: &str =
    "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends systemd";
const HINT: &str =
    "the tests check units with systemd-analyze, which is missing here (Debian: `apt-get install systemd`)";

/// Runs systemd-analyze. Returns whether it succeeded, and its output.
///
/// # Panics
/// When it is missing and cannot be installed.
pub fn analyze(arguments: impl IntoIterator<Item = String>) -> (bool, String) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        if !succeeds("systemd-analyze", &["--version"]) {
            let launch = debian::as_root("apt-get install systemd", INSTALL, HINT);
            let (status, output) = launch.run(INSTALL_TIME_MAX);
            assert!(status.success(), "{HINT}; it printed\n{}", output.join("\n"));
        }
    });
    let output = Command::new("systemd-analyze").args(arguments).output().expect("it can be started");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
}
