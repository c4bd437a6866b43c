//! Chromium and its WebDriver server, from this machine or from Debian's packages.

use std::env;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use crate::{debian, workspace};

const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);

/// Installs the packages, and a font, without which Chromium shows no text.
const INSTALL: &str = "
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    apt-get install -y -q --no-install-recommends chromium chromium-driver fonts-dejavu-core
";

const HINT: &str = "the tests of pages use Chromium and chromedriver, which are missing here \
                    (Debian: `apt-get install chromium chromium-driver fonts-dejavu-core`)";

/// The programs, both of the same version.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    /// The browser.
    pub(super) chromium: PathBuf,
    /// Its WebDriver server.
    pub(super) chromedriver: PathBuf,
}

impl Programs {
    /// Returns the programs of this machine. Installs them if they are missing.
    ///
    /// # Panics
    /// When they are missing and cannot be installed. The message says how to fix it.
    pub(super) fn get() -> Self {
        // One process installs. Others wait here, because the first files exist before the installation is complete.
        let lock_path = workspace::target_directory().join("installs-chromium.lock");
        let lock_file = File::create(&lock_path).expect("Cargo's directory can be written");
        lock_file.lock().expect("a file can be locked");
        Self::find().unwrap_or_else(|| {
            install();
            Self::find().expect("an installed Chromium is found")
        })
    }

    fn find() -> Option<Self> {
        Some(Self { chromium: program("chromium")?, chromedriver: program("chromedriver")? })
    }
}

/// Returns the first program with this name in `PATH`.
fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

fn install() {
    let launch = debian::as_root("apt-get install chromium", INSTALL, HINT);
    let (status, output) = launch.run(INSTALL_TIME_MAX);
    assert!(status.success(), "{HINT}; apt-get printed\n{}", output.join("\n"));
}
