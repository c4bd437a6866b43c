//! The file for Compose.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use postonce_tests::deployment::{self, is_pinned, items, members, text};
use postonce_tests::process::output_for;
use postonce_tests::{python, workspace};
use serde_json::Value;

use super::manifests::{AZURITE, Manifests, containers};

pub const FOLDER: &str = "deploy/compose";
/// Where containers find the values of secrets.
pub const SECRETS: &str = "/run/secrets/";
const README: &str = include_str!("../../../deploy/compose/README.md");
/// Time in which requests and work in progress end, in seconds.
const DRAIN_S: u64 = 10;

/// The content of the file.
pub struct Compose(Value);

impl Compose {
    pub fn read() -> Self {
        let documents = deployment::documents(&deployment::read(&format!("{FOLDER}/compose.yaml")));
        let [file] = documents.as_slice() else { panic!("one document") };
        Self(file.clone())
    }

    /// All services by their names.
    pub fn services(&self) -> BTreeMap<&str, &Value> {
        members(&self.0["services"]).collect()
    }

    /// The services that run a program of the bank, such as `postonce-web`.
    pub fn services_of(&self, program: &str) -> Vec<(&str, &Value)> {
        let image = format!("{program}:");
        let services = self.services().into_iter();
        services.filter(|(_, service)| text(service, "/image").starts_with(&image)).collect()
    }

    /// The secrets and the files with their values.
    pub fn secrets(&self) -> BTreeMap<&str, &str> {
        members(&self.0["secrets"]).map(|(name, secret)| (name, text(secret, "/file"))).collect()
    }

    fn has(&self, part: &str, name: &Value) -> bool {
        self.0[part].get(name.as_str().expect("a name")).is_some()
    }
}

/// The variables of a service.
pub fn variables(service: &Value) -> BTreeMap<&str, &str> {
    let value = |value| Value::as_str(value).expect("a text: a number would be written in another way");
    members(&service["environment"]).map(|(name, found)| (name, value(found))).collect()
}

fn seconds(service: &Value) -> u64 {
    let time = text(service, "/stop_grace_period");
    time.strip_suffix('s').and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{time}"))
}

/// Whether a text for Compose is valid by the schema of the Compose specification, and why not. The schema comes with the tools of
/// Python, which are pinned.
fn validated(file: &str) -> (bool, String) {
    let schema = ["--builtin-schema", "vendor.compose-spec", "--default-filetype", "yaml", "-"];
    let mut command = Command::new(python::program());
    let output = output_for(command.args(["-m", "check_jsonschema"]).args(schema), file);
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn it_is_valid_by_the_schema_of_the_specification() {
    let file = deployment::read(&format!("{FOLDER}/compose.yaml"));
    let (is_valid, output) = validated(&file);
    assert!(is_valid, "{output}");
    let mistakes = [
        ("restart: unless-stopped", "restrat: unless-stopped", "restrat"),
        ("stop_grace_period: 40s", "stop_grace_period: 40", "40 is not of type 'string'"),
        ("condition: service_healthy", "condition: service_well", "service_well"),
        ("\nvolumes:\n", "\nvolume:\n", "'volume' does not match"),
    ];
    for (right, wrong, reason) in mistakes {
        let (is_valid, output) = validated(&file.replace(right, wrong));
        assert!(!is_valid && output.contains(reason), "{wrong}: {output}");
    }
}

#[test]
fn each_service_has_the_least_rights_and_a_health_check() {
    let compose = Compose::read();
    for (name, service) in compose.services() {
        assert!(is_pinned(text(service, "/image")), "{name}: {}", service["image"]);
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(items(&service["cap_drop"]), ["ALL"], "{name}");
        assert_eq!(items(&service["security_opt"]), ["no-new-privileges:true"], "{name}");
        let user = text(service, "/user").split(':').next().and_then(|user| user.parse::<u32>().ok());
        assert!(user.is_some_and(|user| user > 0), "{name}: {}", service["user"]);
        assert_eq!(service["healthcheck"]["test"][0], "CMD", "{name}: the image has no shell");
        assert!(seconds(service) > 0, "{name}");
        for port in items(&service["ports"]) {
            assert!(port.as_str().is_some_and(|port| port.starts_with("127.0.0.1:")), "{name}: {port}");
        }
    }
}

#[test]
fn there_are_two_processes_of_each_kind_that_have_time_to_drain() {
    let compose = Compose::read();
    for program in ["postonce-web", "postonce-worker"] {
        let services = compose.services_of(program);
        assert_eq!(services.len(), 2, "{program}");
        for (name, service) in services {
            let variables = variables(service);
            let delay =
                variables.get("POSTONCE_DRAIN_DELAY_S").map_or(0, |delay| delay.parse().expect("seconds"));
            let (drain, grace) = (DRAIN_S.saturating_add(delay), seconds(service));
            assert!(grace > drain, "{name} has {grace} s for {drain} s");
            let advertised = variables["POSTONCE_ADVERTISE"];
            let (_, port) = variables["POSTONCE_WORKER_BIND"].rsplit_once(':').expect("ip:port");
            assert_eq!(advertised, format!("http://{name}:{port}"), "others reach this service and no other");
            let check: Vec<&str> =
                items(&service["healthcheck"]["test"]).iter().filter_map(Value::as_str).collect();
            assert_eq!(check, ["CMD", &format!("/usr/local/bin/{program}"), "health"], "{name}");
        }
    }
}

#[test]
fn what_the_services_refer_to_exists() {
    let compose = Compose::read();
    let folder = workspace::root().join(FOLDER);
    let services = compose.services();
    for (name, service) in &services {
        for secret in items(&service["secrets"]) {
            assert!(compose.has("secrets", secret), "{name}: {secret}");
        }
        for network in items(&service["networks"]) {
            assert!(compose.has("networks", network), "{name}: {network}");
        }
        for (other, _) in members(&service["depends_on"]) {
            assert!(services.contains_key(other), "{name}: {other}");
        }
        for volume in items(&service["volumes"]) {
            let source = volume.as_str().and_then(|volume| volume.split(':').next()).expect("source:target");
            let exists = if source.starts_with('.') {
                folder.join(source).is_file()
            } else {
                compose.has("volumes", &source.into())
            };
            assert!(exists, "{name}: {volume}");
        }
    }
    let rules = services["prometheus"]["volumes"].to_string();
    assert!(rules.contains("../prometheus/rules.yaml:"), "{rules}");
    // The other files with secrets are made by the README, and are not part of the project.
    for (secret, file) in compose.secrets() {
        let is_made = file.starts_with("./secrets/") && README.contains(secret);
        assert!(is_made || folder.join(file).is_file(), "{secret}: {file}");
    }
}

#[test]
fn each_variable_is_a_setting_and_no_secret() {
    let compose = Compose::read();
    for (name, service) in compose.services() {
        let variables = variables(service);
        assert_eq!(deployment::unknown_variables(variables.keys().copied()), Vec::<&str>::new(), "{name}");
        let granted: BTreeSet<&str> = items(&service["secrets"]).iter().filter_map(Value::as_str).collect();
        for (variable, value) in variables {
            if variable.ends_with("_FILE") {
                let secret = value.strip_prefix(SECRETS).unwrap_or_else(|| panic!("{name}: {value}"));
                assert!(granted.contains(secret), "{name}: {secret}");
            } else {
                let is_secret = ["STORAGE", "SECRET", "KEY"].iter().any(|word| variable.ends_with(word));
                assert!(!is_secret, "{name}: {variable} belongs into a file");
            }
        }
    }
}

#[test]
fn azurite_has_the_version_of_the_tests_everywhere() {
    let package: Value = serde_json::from_str(&deployment::read("tests/azurite/package.json")).expect("JSON");
    let tested = format!("/azurite:{}", text(&package, "/dependencies/azurite"));
    let compose = Compose::read();
    let manifests = Manifests::of(AZURITE);
    let container = &containers(manifests.named("StatefulSet", AZURITE))[0];
    let service = compose.services()[AZURITE];
    for image in [text(service, "/image"), text(container, "/image")] {
        assert!(image.ends_with(&tested), "{image} is not {tested}");
    }
    assert_eq!(service["command"], container["args"], "one command for both");
}
