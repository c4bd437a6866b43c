//! Programs from Debian's packages, for tests that need them.

use std::path::Path;
use std::process::Command;

use crate::process::{Launch, succeeds};

/// A shell script that needs root, such as one that calls `apt-get install`. `hint` is for a machine on which that is not
/// possible.
///
/// # Panics
/// When the machine is no Debian, or neither this process nor sudo without a password is root.
pub fn as_root(name: &str, script: &str, hint: &str) -> Launch {
    assert!(succeeds("apt-get", &["--version"]), "{hint}");
    if is_root() {
        return Launch::of(name, "sh", Path::new("/")).arguments(["-ec", script]);
    }
    // Never asks for a password, since nobody may be there to enter it.
    assert!(succeeds("sudo", &["-n", "true"]), "{hint}; installing it needs root or sudo");
    Launch::of(format!("sudo {name}"), "sudo", Path::new("/")).arguments(["-n", "sh", "-ec", script])
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
