//! The binaries under test, built by the test process. A test of another package does not receive their
//! paths, and must never run the result of an earlier build.
//!
//! They are built with the profile and into the target directory of the tests, for the whole workspace at
//! once, so that features unify as in `cargo test --workspace` and no dependency is built twice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use crate::prelude::*;

/// Longest build: from scratch, on a slow machine.
const BUILD_TIME_MAX: Duration = Duration::from_secs(1500);

/// The executable that contains the programs of the tests.
const TESTS: &str = "postonce-tests";

/// The web process that a program of the tests is given. Tests never are.
static GIVEN_WEB: OnceLock<PathBuf> = OnceLock::new();

/// A program of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// The web process.
    Web,
    /// The worker process.
    Worker,
    /// The worker with ports that crash at a named point, which only tests use.
    CrashingWorker,
    /// The classic design, for comparison in benchmarks.
    PeerClassic,
    /// A service on PostgreSQL, for comparison in benchmarks.
    PeerPostgres,
}

impl Binary {
    /// The name of the program: of its executable, or of the command that is its [first argument](Self::command).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Web => "postonce-web",
            Self::Worker => "postonce-worker",
            Self::CrashingWorker => "crashing-worker",
            Self::PeerClassic => "peer-classic",
            Self::PeerPostgres => "peer-postgres",
        }
    }

    /// The argument before all others, if the executable contains several programs.
    pub const fn command(self) -> Option<&'static str> {
        match self {
            Self::Web | Self::Worker => None,
            Self::CrashingWorker | Self::PeerClassic | Self::PeerPostgres => Some(self.name()),
        }
    }

    /// Whether the process serves HTTP.
    pub const fn serves(self) -> bool {
        match self {
            Self::Web | Self::Worker | Self::PeerClassic | Self::PeerPostgres => true,
            Self::CrashingWorker => false,
        }
    }

    /// Uses an executable for the web process that was built before, for a comparison with it.
    ///
    /// # Panics
    /// When one is used already.
    pub fn use_web(path: PathBuf) {
        GIVEN_WEB.set(path).expect("the executable is given once");
    }

    /// The path of the executable. The first call in a test process builds all of them.
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
    // The variables that Cargo sets for this test do not apply to the packages that are built.
    launch.hidden_prefixes =
        vec!["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    let (status, lines) = launch.run(BUILD_TIME_MAX);
    assert!(status.success(), "the binaries cannot be built:\n{}", lines.join("\n"));
    lines.iter().filter_map(|line| executable(line)).collect()
}

/// The binary in a line of Cargo's JSON output.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    Some((name.to_owned(), PathBuf::from(path)))
}
