//! Paths of the workspace and of Cargo's target directory.

use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a member of the workspace")
}

/// Returns the directory of the running test binary's profile, such as `target/debug`.
fn profile_directory() -> PathBuf {
    let binary = std::env::current_exe().expect("the path of the program is known");
    let directory = binary.parent().expect("a program is in a directory");
    // Test binaries are in `deps`, other binaries in its parent.
    if directory.ends_with("deps") {
        directory.parent().expect("`deps` is in the directory of the profile").to_owned()
    } else {
        directory.to_owned()
    }
}

/// Returns Cargo's target directory.
pub fn target_directory() -> PathBuf {
    profile_directory().parent().expect("a profile is in the target directory").to_owned()
}

/// Returns the profile of the running test binary, for Cargo's `--profile`.
pub fn profile() -> String {
    let directory = profile_directory();
    match directory.file_name().and_then(|name| name.to_str()) {
        // For historical reasons, the directory of `dev` has another name.
        Some("debug") | None => "dev".to_owned(),
        Some(name) => name.to_owned(),
    }
}
