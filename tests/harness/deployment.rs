//! Reads the files of `deploy`, and validates them for Kubernetes and for the programs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use postonce_shared::config::add_settings;
use serde_json::Value;

use crate::debian::Packaged;
use crate::process::output_for;
use crate::{python, workspace};

const KUBECTL: Packaged = Packaged {
    program: "kubectl",
    package: "kubernetes-client",
    probe: &["version", "--client"],
    hint: "the tests build manifests with kubectl, which is missing here (Debian: `apt-get install kubernetes-client`)",
};

/// Reads a file of the project as text.
///
/// # Panics
/// When it is missing.
pub fn read(path: &str) -> String {
    let path = workspace::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Builds the manifests of a directory with a `kustomization.yaml`, as YAML.
///
/// # Panics
/// When they cannot be built.
pub fn kustomize(folder: &Path) -> String {
    let output = Command::new(KUBECTL.path()).arg("kustomize").arg(folder).output();
    let output = output.expect("kubectl can be started");
    // Standard error also has warnings about members that only older versions need.
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", folder.display());
    String::from_utf8(output.stdout).expect("manifests are UTF-8")
}

/// Parses the documents of a YAML text.
///
/// # Panics
/// When it is not YAML.
pub fn documents(yaml: &str) -> Vec<Value> {
    valid_documents(yaml, &[])
}

/// Parses the documents of a YAML text, which must be valid in these versions of Kubernetes, without unknown members. Custom
/// kinds are not validated.
///
/// # Panics
/// When one is invalid, with the reason.
pub fn valid_documents(yaml: &str, kubernetes: &[&str]) -> Vec<Value> {
    let script = python::directory().join("yaml_documents.py");
    let output = output_for(Command::new(python::program()).arg(script).args(kubernetes), yaml);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    printed.lines().map(|line| serde_json::from_str(line).expect("it prints JSON")).collect()
}

/// Returns the environment variables of all settings, such as `POSTONCE_BIND`.
pub fn variables() -> BTreeSet<String> {
    let command = add_settings(clap::Command::new("settings"));
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    variables.map(|variable| variable.to_string_lossy().into_owned()).collect()
}

/// Returns those of these variables of the service that are neither settings nor names of files with a secret.
pub fn unknown_variables<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let (known, command) = (variables(), add_settings(clap::Command::new("settings")));
    let secrets = command.get_arguments().filter(|arg| arg.is_hide_env_values_set());
    let secrets: Vec<_> = secrets.filter_map(clap::Arg::get_env).collect();
    let is_secret = |name: &str| secrets.iter().any(|secret| *secret == name);
    let is_known = |name: &str| known.contains(name) || name.strip_suffix("_FILE").is_some_and(is_secret);
    names.into_iter().filter(|name| name.starts_with("POSTONCE_") && !is_known(name)).collect()
}

/// Returns the items of a list; none if it is missing.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the texts of a list; none if it is missing.
pub fn texts(value: &Value) -> impl Iterator<Item = &str> {
    items(value).iter().filter_map(Value::as_str)
}

/// Returns the members of an object; none if it is missing.
pub fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// Returns the text at a JSON pointer.
///
/// # Panics
/// When there is no text.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text at {pointer} of {value:#}"))
}

/// Returns the whole number at a JSON pointer.
///
/// # Panics
/// When there is no whole number.
pub fn number(value: &Value, pointer: &str) -> u64 {
    let found = value.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no number at {pointer} of {value:#}"))
}

/// Returns whether an image is pinned to a version or to the hash of its content.
pub fn is_pinned(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    name.contains('@') || name.split_once(':').is_some_and(|(_, tag)| !tag.is_empty() && tag != "latest")
}
