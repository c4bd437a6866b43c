//! Azurite, installed from the committed lock file into `tests/azurite/node_modules`.

use std::path::PathBuf;

use crate::npm::Locked;

const AZURITE: Locked = Locked { directory: "tests/azurite", why: "the tests run against Azurite" };

/// Returns the start script for `node`. Installs Azurite first if it is not installed for the current lock file.
///
/// # Panics
/// When Node.js or npm is missing, or the installation fails. The message says how to fix it.
pub fn program() -> PathBuf {
    AZURITE.installed().join("start.js")
}
