//! Sets the commit of the build: that in the environment, or else that of the repository.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=POSTONCE_COMMIT");
    let given = std::env::var("POSTONCE_COMMIT").ok().filter(|commit| !commit.is_empty());
    // A debug build does not depend on the commit, so that a commit does not compile it again.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let found = || if is_release { of_repository() } else { None };
    let commit = given.or_else(found).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=POSTONCE_COMMIT={commit}");
}

/// Returns the commit that is checked out. The script runs again when another one is.
fn of_repository() -> Option<String> {
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
