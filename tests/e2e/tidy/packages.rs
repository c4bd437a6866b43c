//! The packages of the workspace: which of them each uses, their dependencies, the features of these, and their test
//! executables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use postonce_tests::workspace;
use serde_json::Value;

use super::{Source, collect};

fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output =
        cargo.args(arguments).args(["--locked", "--offline"]).current_dir(workspace::root()).output();
    let output = output.expect("Cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The members of the workspace, as Cargo describes them.
fn packages() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let mut metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    let packages = metadata["packages"].take();
    serde_json::from_value(packages).expect("a list")
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_else(|| panic!("{member} is missing in {value}"))
}

fn list<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    value[member].as_array().unwrap_or_else(|| panic!("{member} is missing in {value}"))
}

/// All crates of the workspace and below it, each with the features that it is compiled with.
fn features(more: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--workspace", "--prefix", "none", "--format", "{p} [{f}]"];
    let lines = cargo(&[&tree, more].concat());
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

/// The packages of the workspace that each of them uses. Only the tests use all.
const USES: [(&str, &[&str]); 7] = [
    ("postonce-schemas", &[]),
    ("postonce-shared", &[]),
    ("postonce-benches", &["postonce-shared"]),
    ("postonce-conformance", &["postonce-shared"]),
    ("postonce-process", &["postonce-shared"]),
    ("postonce-worker", &["postonce-process", "postonce-shared"]),
    ("postonce-web", &["postonce-process", "postonce-schemas", "postonce-shared", "postonce-worker"]),
];

#[test]
fn each_package_uses_only_those_below_it() {
    let packages = packages();
    let found = packages.iter().map(|package| {
        let used = list(package, "dependencies").iter().map(|dependency| text(dependency, "name"));
        (text(package, "name"), used.filter(|name| name.starts_with("postonce-")).collect())
    });
    let found: BTreeMap<&str, BTreeSet<&str>> = found.filter(|(name, _)| *name != "postonce-tests").collect();
    let expected = USES.map(|(package, used)| (package, used.iter().copied().collect()));
    assert_eq!(found, BTreeMap::from(expected));
}

/// The directory of a package from the root of the workspace, with `/` at its end.
fn directory(package: &Value) -> String {
    let manifest = Path::new(text(package, "manifest_path"));
    let directory = manifest.parent().expect("a manifest is in a directory");
    let relative = directory.strip_prefix(workspace::root()).expect("it is in the workspace");
    format!("{}/", relative.to_string_lossy())
}

#[test]
fn every_dependency_is_used() {
    let (mut unused, packages) = (Vec::new(), packages());
    let directories: Vec<String> = packages.iter().map(directory).collect();
    for package in &packages {
        let own = directory(package);
        let below: Vec<&str> = directories.iter().map(String::as_str).filter(|it| *it != own).collect();
        let below: Vec<&str> = below.into_iter().filter(|it| it.starts_with(&own)).collect();
        let mut sources = Vec::new();
        collect(&workspace::root().join(&own), &mut sources);
        sources.retain(|source| !source.is_in(&below));
        for dependency in list(package, "dependencies") {
            let name = text(dependency, "name").replace('-', "_");
            let uses = [format!("{name}::"), format!("use {name} as "), format!("{name};")];
            let is_in =
                |source: &Source| source.code().any(|(_, line)| uses.iter().any(|used| line.contains(used)));
            if !sources.iter().any(is_in) {
                unused.push(format!("{} does not use {name}", text(package, "name")));
            }
        }
    }
    assert!(unused.is_empty(), "{unused:#?}");
}

/// A suite that it does not name would not be run.
#[test]
fn the_checks_before_a_merge_name_every_test_executable() {
    let run = fs::read_to_string(workspace::root().join(".ci/run")).expect("a script");
    let mut found = 0;
    for package in packages() {
        for target in list(&package, "targets") {
            if target["kind"] == serde_json::json!(["test"]) {
                let name = text(target, "name");
                found += 1;
                assert!(
                    run.contains(&format!("--test {name}")),
                    "{name} of {} is missing",
                    text(&package, "name")
                );
            }
        }
    }
    assert!(found > 3, "{found} executables");
}
