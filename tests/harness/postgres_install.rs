//! The programs of PostgreSQL, from this machine or from Debian's package.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{debian, workspace};

const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);
/// Directory with one subdirectory per version on Debian.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Installs the package without the cluster that Debian normally creates and starts on the default port.
const INSTALL: &str = "
    export DEBIAN_FRONTEND=noninteractive
    install() { apt-get install -y -q --no-install-recommends \"$@\"; }
    apt-get update -q
    install postgresql-common
    no_cluster=/etc/postgresql-common/createcluster.d/postonce-installs.conf
    mkdir -p \"${no_cluster%/*}\"
    trap 'rm -f \"$no_cluster\"' EXIT
    echo 'create_main_cluster = false' >\"$no_cluster\"
    install postgresql
";

/// The programs that create and run a cluster.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Creates a cluster.
    pub initdb: PathBuf,
    /// Runs a cluster.
    pub postgres: PathBuf,
    /// The command-line client.
    pub psql: PathBuf,
}

impl Programs {
    /// Returns the programs of this machine. Installs them if they are missing.
    ///
    /// # Panics
    /// When they are missing and cannot be installed. The message says how to fix it.
    pub fn get() -> Self {
        Self::find().unwrap_or_else(|| {
            install();
            Self::find().expect("an installed PostgreSQL is found")
        })
    }

    /// Searches `PATH` for a directory with all programs, and then Debian's directory for the newest version.
    fn find() -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).find_map(|directory| Self::of(&directory)).or_else(|| {
            let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(VERSIONS)
                .ok()?
                .flatten()
                .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
                .collect();
            versions.sort_unstable();
            versions.iter().rev().find_map(|(_, directory)| Self::of(&directory.join("bin")))
        })
    }

    fn of(directory: &Path) -> Option<Self> {
        let program = |name: &str| Some(directory.join(name)).filter(|path| path.is_file());
        Some(Self { initdb: program("initdb")?, postgres: program("postgres")?, psql: program("psql")? })
    }
}

fn install() {
    // One process installs. Others that start at the same time wait here, and then find the programs.
    let lock_path = workspace::target_directory().join("installs-postgresql.lock");
    let lock_file = File::create(&lock_path).expect("Cargo's directory can be written");
    lock_file.lock().expect("a file can be locked");
    if Programs::find().is_some() {
        return;
    }
    let hint = "the benchmark compares the bank with a service on PostgreSQL, which is missing here \
                (Debian: `apt-get install postgresql`)";
    let launch = debian::as_root("apt-get install postgresql", INSTALL, hint);
    let (status, output) = launch.run(INSTALL_TIME_MAX);
    assert!(status.success(), "{hint}; apt-get printed\n{}", output.join("\n"));
}
