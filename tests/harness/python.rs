//! The Python tools of the tests, installed from pinned requirements into `tests/python/.venv`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::installation::install_once;
use crate::process::{Launch, succeeds};
use crate::workspace;

const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);
/// Names of Python to try, in this order. The first one that is new enough is used.
const PYTHONS: [&str; 4] = ["python3", "python3.13", "python3.12", "python3.11"];
/// Program that succeeds with a version that the requirements support.
const IS_NEW_ENOUGH: &str = "import sys; sys.exit(sys.version_info < (3, 11))";

/// Returns the directory of the Python tools.
pub fn directory() -> PathBuf {
    workspace::root().join("tests/python")
}

/// Returns the path of Python with the requirements. Creates the environment first if it is not installed for the current
/// requirements, or if its Python was removed.
///
/// # Panics
/// When there is no Python 3.11 or newer with the module `venv`, or the installation fails. The message says how to fix it.
pub fn program() -> PathBuf {
    let directory = directory();
    let environment = directory.join(".venv");
    let program = environment.join("bin/python");
    install_once(
        &directory.join("requirements.txt"),
        &environment,
        || succeeds(&program, &["-c", IS_NEW_ENOUGH]),
        || install(&directory, &environment, &program),
    );
    program
}

fn install(directory: &Path, environment: &Path, program: &Path) {
    let found = PYTHONS.into_iter().find(|python| succeeds(python, &["-c", IS_NEW_ENOUGH]));
    let python = found.unwrap_or_else(|| {
        panic!(
            "Python 3.11 or newer is missing: the tests check XML and the HTTP API with tools of Python \
             (Debian: `apt-get install python3 python3-venv`)"
        )
    });
    assert!(
        succeeds(python, &["-c", "import ensurepip, venv"]),
        "{python} has no module `venv` that can install: the tests keep their tools of Python in an \
         environment of their own (Debian: `apt-get install python3-venv`)"
    );
    // `--clear` replaces an incomplete environment, or one of another Python.
    let make = [Path::new("-m"), Path::new("venv"), Path::new("--clear"), environment];
    run("python -m venv", Path::new(python), make, directory);
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"];
    let pinned = ["--require-hashes", "--only-binary=:all:", "--requirement", "requirements.txt"];
    run("pip install", program, pip.into_iter().chain(pinned), directory);
}

fn run(
    what: &str,
    program: &Path,
    arguments: impl IntoIterator<Item = impl Into<std::ffi::OsString>>,
    directory: &Path,
) {
    let (status, output) = Launch::of(what, program, directory).arguments(arguments).run(INSTALL_TIME_MAX);
    assert!(
        status.success(),
        "the tools of Python that the tests use cannot be installed: `{what}` in tests/python printed\n{}",
        output.join("\n")
    );
}
