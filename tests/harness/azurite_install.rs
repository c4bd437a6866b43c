//! Azurite, installed from the committed lock file into `tests/azurite/node_modules`.

use std::path::PathBuf;

use crate::{npm, workspace};

/// The folder of its lock file.
const FOLDER: &str = "tests/azurite";

/// The start script for `node`. Installs Azurite first if it is not installed for the current lock file.
///
/// # Panics
/// When Node.js or npm is missing, or the installation fails. The message says how to fix it.
pub fn program() -> PathBuf {
    npm::install(FOLDER, "Azurite, which the tests run against,");
    workspace::root().join(FOLDER).join("start.js")
}
