//! The binaries under test, built by the test process: Cargo does not give their paths to tests of another package, and the
//! result of an earlier build must never run.
//!
//! They are built with the profile and the target directory of the tests, for the whole workspace at once, so that features
//! unify as in `cargo test --workspace` and no dependency is built twice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use crate::prelude::*;

/// Maximum duration of a build from scratch on a slow machine.
const BUILD_TIME_MAX: Duration = Duration::from_secs(1500);

/// Executable that contains the programs of the tests.
const TESTS: &str = "postonce-tests";

/// An executable of the web process from an earlier build, for benchmarks. Tests never set it.
static GIVEN_WEB: OnceLock<PathBuf> = OnceLock::new();

/// A program of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// The web process.
    Web,
    /// The worker process.
    Worker,
    /// The worker with ports that crash at a named point, for tests only.
    CrashingWorker,
    /// The classic design, a comparison for benchmarks.
    PeerClassic,
    /// A service on PostgreSQL, a comparison for benchmarks.
    PeerPostgres,
}

impl Binary {
    /// Returns the name of the executable, or of the command that is its [first argument](Self::command).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Web => "postonce-web",
            Self::Worker => "postonce-worker",
            Self::CrashingWorker => "crashing-worker",
            Self::PeerClassic => "peer-classic",
            Self::PeerPostgres => "peer-postgres",
        }
    }

    /// Returns the first argument, if the executable contains several programs.
    pub const fn command(self) -> Option<&'static str> {
        match self {
            Self::Web | Self::Worker => None,
            Self::CrashingWorker | Self::PeerClassic | Self::PeerPostgres => Some(self.name()),
        }
    }

    /// Returns whether the process serves HTTP.
    pub const fn serves(self) -> bool {
        match self {
            Self::Web | Self::Worker | Self::PeerClassic | Self::PeerPostgres => true,
            Self::CrashingWorker => false,
        }
    }

    /// Uses an earlier build of the web process, to compare it with the current one.
    ///
    /// # Panics
    /// When an earlier build is already in use.
    pub fn use_web(path: PathBuf) {
        GIVEN_WEB.set(path).expect("the executable is given once");
    }

    /// Returns the path of the executable. The first call in a test process builds all executables.
    pub fn path(self) -> &'static Path {
        if let (Self::Web, Some(given)) = (self, GIVEN_WEB.get()) {
            return given;
        }
        static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
        let executable = if self.command().is_some() { TESTS } else { self.name() };
        let built = BUILT.get_or_init(|| build(&[Self::Web.name(), Self::Worker.name(), TESTS]));
        built.get(executable).unwrap_or_else(|| panic!("the workspace has no binary {executable}"))
    }
}

fn build(executables: &[&str]) -> BTreeMap<String, PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut launch = Launch::of("cargo build", cargo, workspace::root())
        .arguments(["build", "--workspace", "--message-format=json-render-diagnostics"])
        .arguments(executables.iter().flat_map(|executable| ["--bin", executable]))
        .arguments(["--profile", &workspace::profile()])
        .arguments([std::ffi::OsStr::new("--target-dir"), workspace::target_directory().as_os_str()]);
    // Cargo sets these variables for this test package, and they do not apply to the packages to build.
    launch.hidden_prefixes =
        vec!["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    let (status, lines) = launch.run(BUILD_TIME_MAX);
    assert!(status.success(), "the binaries cannot be built:\n{}", lines.join("\n"));
    lines.iter().filter_map(|line| executable(line)).collect()
}

/// Returns the name and the path of the executable in a line of Cargo's JSON output.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    Some((name.to_owned(), PathBuf::from(path)))
}
