//! The Python tools of the tests, installed from pinned requirements into `tests/python/.venv`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Launch, Process};
use crate::workspace;

/// Longest time for the installation.
const INSTALL_TIME_MAX: Duration = Duration::from_secs(600);
/// Names of Python to try; the first that is new enough is used.
const PYTHONS: [&str; 4] = ["python3", "python3.13", "python3.12", "python3.11"];
/// Succeeds with a version that the requirements support.
const IS_NEW_ENOUGH: &str = "import sys; sys.exit(sys.version_info < (3, 11))";

/// The directory of the Python tools.
pub fn directory() -> PathBuf {
    workspace::root().join("tests/python")
}

/// The Python with the requirements. Creates its environment first if it is not installed for the current
/// requirements, or if its Python was removed.
///
/// # Panics
/// When there is no Python 3.11 or newer with the module `venv`, or the installation fails. The message
/// says how to fix it.
pub fn program() -> PathBuf {
    let directory = directory();
    let environment = directory.join(".venv");
    let program = environment.join("bin/python");
    // The stamp contains all requirements, so any change of them causes an installation.
    let stamp = environment.join(".installed-from");
    let requirements = directory.join("requirements.txt");
    let lock_file = File::open(&requirements).expect("the requirements are part of the tests");
    // Several test processes may start at once: one installs, and the others wait here.
    lock_file.lock().expect("a file can be locked");
    let wanted = fs::read(&requirements).expect("the requirements can be read");
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) || !succeeds(&program, &["-c", IS_NEW_ENOUGH]) {
        install(&directory, &environment, &program);
        fs::write(&stamp, &wanted).expect("the installation can be marked as complete");
    }
    program
}

fn install(directory: &Path, environment: &Path, program: &Path) {
    let found = PYTHONS.into_iter().find(|python| succeeds(Path::new(python), &["-c", IS_NEW_ENOUGH]));
    let python = found.unwrap_or_else(|| {
        panic!(
            "Python 3.11 or newer is missing: the tests check XML and the HTTP API with tools of Python \
             (Debian: `apt-get install python3 python3-venv`)"
        )
    });
    assert!(
        succeeds(Path::new(python), &["-c", "import ensurepip, venv"]),
        "{python} has no module `venv` that can install: the tests keep their tools of Python in an \
         environment of their own (Debian: `apt-get install python3-venv`)"
    );
    // An incomplete environment, or one of another Python, is replaced.
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
    let mut process = Process::start(&Launch::of(what, program, directory).arguments(arguments));
    let status = process.wait(INSTALL_TIME_MAX);
    process.wait_for_output();
    assert!(
        status.success(),
        "the tools of Python that the tests use cannot be installed: `{what}` in tests/python printed\n{}",
        process.log().lines().join("\n")
    );
}

fn succeeds(program: &Path, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}
