//! npm programs, installed from a committed lock file into `node_modules` beside it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::installation::install_once;
use crate::process::{Launch, succeeds};
use crate::workspace;

const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);

/// Tools that check and generate TypeScript clients.
pub const TYPESCRIPT: Locked =
    Locked { directory: "tests/clients", why: "the tests compile clients in TypeScript, and generate one" };

/// A directory with a lock file of npm.
#[derive(Debug, Clone, Copy)]
pub struct Locked {
    /// Path of the directory, relative to the root of the workspace.
    pub directory: &'static str,
    /// The purpose of Node.js in the tests, such as `the tests run against Azurite`.
    pub why: &'static str,
}

impl Locked {
    /// Returns the directory. Installs the packages first if they are not installed for the current lock file.
    ///
    /// # Panics
    /// When Node.js or npm is missing, or the installation fails. The message says how to fix it.
    pub fn installed(self) -> PathBuf {
        let directory = workspace::root().join(self.directory);
        let (lock_path, modules) = (directory.join("package-lock.json"), directory.join("node_modules"));
        install_once(&lock_path, &modules, || true, || self.install(&directory));
        self.require("node");
        directory
    }

    fn install(self, directory: &Path) {
        self.require("node");
        self.require("npm");
        let npm = Launch::of("npm ci", "npm", directory).arguments(["ci", "--no-audit", "--no-fund"]);
        let (status, output) = npm.run(INSTALL_TIME_MAX);
        assert!(
            status.success(),
            "{}, but `npm ci` in {} failed; it printed\n{}",
            self.why,
            self.directory,
            output.join("\n")
        );
    }

    fn require(self, program: &str) {
        assert!(
            succeeds(program, &["--version"]),
            "`{program}` is missing: {}, which needs Node.js 20 or newer with npm \
             (Debian: `apt-get install nodejs npm`)",
            self.why
        );
    }
}
