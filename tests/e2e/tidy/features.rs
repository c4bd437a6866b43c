//! The programs and their tests need the same features of each crate.

use std::collections::BTreeSet;
use std::process::Command;

use postonce_tests::workspace;

/// All crates of the workspace and below it, each with the features that it is compiled with.
fn features(more: &[&str]) -> BTreeSet<String> {
    let mut tree = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tree.args(["tree", "--workspace", "--locked", "--offline", "--prefix", "none", "--format", "{p} [{f}]"]);
    let output = tree.args(more).current_dir(workspace::root()).output().expect("Cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout);
    lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// Otherwise the programs that the tests start would be compiled a second time, and much below them.
#[test]
fn development_dependencies_change_no_features_of_the_programs() {
    let (for_tests, for_programs) = (features(&[]), features(&["--edges", "no-dev"]));
    assert!(for_programs.len() > 100, "{for_programs:?}");
    let others: Vec<&String> = for_programs.difference(&for_tests).collect();
    assert!(others.is_empty(), "tests need more features of these: {others:#?}");
}
