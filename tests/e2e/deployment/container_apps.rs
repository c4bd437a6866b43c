//! The apps that the templates for Azure create: their settings, ports, numbers of replicas, and alerts.

use std::collections::{BTreeMap, BTreeSet};

use postonce_schemas::OPENAPI_JSON;
use postonce_shared::batches::messages;
use postonce_shared::messaging::envelope;
use postonce_tests::deployment::{self, items, number, text};
use postonce_tests::prelude::*;
use serde_json::{Value, json};

use super::bicep::{APPS, MAIN, README, Templates};

/// Values of expressions that only Azure knows.
const SAMPLES: [(&str, &str); 5] = [
    ("accountName", "examplebank"),
    ("environment().suffixes.storage", "core.windows.net"),
    ("domain", "apps.example"),
    ("webClientId", "00000000-0000-0000-0000-000000000001"),
    ("workerClientId", "00000000-0000-0000-0000-000000000002"),
];
/// A value that the settings of all secrets allow: base64 of 32 bytes.
const SECRET: &str = "c2VlZC1vZi10aGUtdGVzdHMtMDEyMzQ1Njc4OS1hYmM=";
/// Time in which requests and work in progress end, and the longest grace period of Azure, in seconds.
const DRAIN_S: u64 = 10;
const GRACE_MAX_S: u64 = 600;

impl Templates {
    /// The items of a list, also of lists that are joined, chosen or named in the file of the apps.
    fn flat<'a>(&'a self, list: &'a Value) -> Vec<&'a Value> {
        if let Some(found) = list.as_array() {
            found.iter().collect()
        } else if list["call"] == "concat" {
            items(&list["arguments"]).iter().flat_map(|part| self.flat(part)).collect()
        } else if list["if"].is_string() {
            self.flat(&list["body"])
        } else if list["for"].is_string() {
            vec![&list["body"]]
        } else {
            self.flat(&self.declared(APPS, "variables", text(list, "/expression"))["value"])
        }
    }

    /// The container of an app.
    fn container(&self, app: &str) -> &Value {
        let containers = &self.resource(APPS, app)["properties"]["template"]["containers"];
        let [container] = items(containers) else { panic!("{app} has not exactly one container") };
        container
    }

    /// The variables of an app with their values: of a secret the member `secretRef`.
    fn variables(&self, app: &str) -> Vec<(&str, &Value)> {
        let found = self.flat(&self.container(app)["env"]).into_iter();
        found.map(|variable| (text(variable, "/name"), variable)).collect()
    }

    /// The value of a setting of an app as the template says it.
    fn setting(&self, app: &str, name: &str) -> &Value {
        let found = self.variables(app).into_iter().find(|(variable, _)| *variable == name);
        &found.unwrap_or_else(|| panic!("{app} has no {name}")).1["value"]
    }

    /// A value with the defaults of the parameters, and samples of what only Azure knows.
    fn resolved(&self, value: &Value) -> String {
        if let Some(found) = value.as_str() {
            let mut parts = found.split("${");
            let mut text = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let (name, rest) = part.split_once('}').expect("an expression ends");
                text.extend([&self.named(name), rest]);
            }
            text
        } else if value["call"] == "string" {
            self.resolved(&value["arguments"][0])
        } else if value["if"].is_string() {
            self.resolved(&value["body"])
        } else if let Some(name) = value["expression"].as_str() {
            self.named(name)
        } else {
            value.to_string()
        }
    }

    fn named(&self, name: &str) -> String {
        if let Some((_, sample)) = SAMPLES.iter().find(|(known, _)| *known == name) {
            return (*sample).to_owned();
        }
        let default = &self.0[MAIN]["params"][name]["value"];
        let value = if default.is_null() { &self.0[APPS]["variables"][name]["value"] } else { default };
        assert!(!value.is_null(), "{name} has no value here");
        self.resolved(value)
    }
}

#[test]
fn the_program_accepts_the_settings_of_each_app() {
    let templates = Templates::read();
    let folder = tempfile::tempdir().expect("a folder");
    for app in ["web", "worker"] {
        let variables = templates.variables(app);
        let unknown = deployment::unknown_variables(variables.iter().map(|(name, _)| *name));
        assert_eq!(unknown, Vec::<&str>::new(), "{app}");
        let declared =
            templates.flat(&templates.resource(APPS, app)["properties"]["configuration"]["secrets"]);
        let urls: BTreeMap<&str, &str> = declared
            .into_iter()
            .map(|secret| (text(secret, "/name"), text(secret, "/keyVaultUrl")))
            .collect();
        let mut settings = Settings::default();
        for (name, variable) in variables {
            let is_secret = ["SECRET", "KEY"].iter().any(|end| name.ends_with(end));
            assert_eq!(variable["secretRef"].is_string(), is_secret, "{app}: {name}");
            let value = if let Some(secret) = variable["secretRef"].as_str() {
                assert_eq!(
                    urls.get(secret),
                    Some(&format!("${{vaultUri}}secrets/{secret}").as_str()),
                    "{name}"
                );
                assert!(
                    README.contains(&format!("`{secret}`")) || README.contains(&format!("--name {secret} "))
                );
                SECRET.to_owned()
            } else {
                templates.resolved(&variable["value"])
            };
            settings = settings.with(name, value);
        }
        assert_eq!(settings.get("POSTONCE_AZURE_IDENTITY"), Some("managed"));
        assert!(
            settings.get("POSTONCE_STORAGE").is_some_and(|store| store.starts_with("azure:AccountName="))
        );
        let launch = service::launch(Binary::Web, &settings, &["config"], folder.path());
        let (status, lines) = launch.run(wait::TIMEOUT);
        assert!(status.success(), "{app}: {}", lines.join("\n"));
        assert!(lines.iter().all(|line| !line.contains(SECRET)), "a secret is printed");
    }
}

#[test]
fn only_the_api_is_exposed_and_probes_find_their_ports() {
    let templates = Templates::read();
    let openapi: Value = serde_json::from_str(OPENAPI_JSON).expect("a document");
    let port = |app, setting: &str| -> u64 {
        let bind = templates.resolved(templates.setting(app, setting));
        bind.strip_prefix("0.0.0.0:").and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{bind}"))
    };
    let ingress = |app| &templates.resource(APPS, app)["properties"]["configuration"]["ingress"];
    assert_eq!(ingress("worker"), &Value::Null);
    let web = ingress("web");
    assert_eq!((&web["external"], &web["allowInsecure"]), (&json!(true), &json!(false)));
    assert_eq!(number(web, "/targetPort"), port("web", "POSTONCE_BIND"));
    assert_eq!(web["additionalPortMappings"], Value::Null);
    let ports =
        ["POSTONCE_BIND", "POSTONCE_ADMIN_BIND", "POSTONCE_WORKER_BIND"].map(|name| port("web", name));
    assert_eq!(BTreeSet::from(ports).len(), 3, "{ports:?}");

    for (app, setting) in [("web", "POSTONCE_ADMIN_BIND"), ("worker", "POSTONCE_WORKER_BIND")] {
        let probes = items(&templates.container(app)["probes"]);
        let types: BTreeSet<&str> = probes.iter().map(|probe| text(probe, "/type")).collect();
        assert_eq!(types, ["Startup", "Liveness", "Readiness"].into(), "{app}");
        for probe in probes {
            let path = if probe["type"] == "Readiness" { "/readyz" } else { "/livez" };
            assert_eq!(
                (text(probe, "/httpGet/path"), number(probe, "/httpGet/port")),
                (path, port(app, setting))
            );
            assert!(openapi["paths"][path]["get"].is_object(), "{path}");
        }
    }
}

#[test]
fn a_replica_that_is_stopped_has_time_to_drain() {
    let templates = Templates::read();
    let grace =
        |app| &templates.resource(APPS, app)["properties"]["template"]["terminationGracePeriodSeconds"];
    assert!(grace("worker").as_u64().is_some_and(|seconds| seconds > DRAIN_S));
    let margin =
        text(grace("web"), "/expression").strip_prefix("drainDelayS + ").expect("the delay and a margin");
    let margin: u64 = margin.parse().expect("seconds");
    let delay = templates.declared(MAIN, "params", "drainDelayS");
    assert!(margin > DRAIN_S && number(delay, "/value") > 0);
    assert!(margin.saturating_add(number(delay, "/decorators/maxValue/0")) <= GRACE_MAX_S);
}

#[test]
fn the_numbers_of_replicas_follow_requests_and_queues() {
    let templates = Templates::read();
    let scale = |app| &templates.resource(APPS, app)["properties"]["template"]["scale"];
    for (bound, setting) in [("minReplicas", "POSTONCE_WORKERS_MIN"), ("maxReplicas", "POSTONCE_WORKERS_MAX")]
    {
        let (replicas, workers) = (&scale("worker")[bound], templates.setting("worker", setting));
        assert_eq!(replicas, &workers["arguments"][0], "{bound} is not {setting}");
        assert!(replicas["expression"].is_string(), "{bound} is a parameter");
    }
    let smallest = templates.declared(MAIN, "params", text(&scale("web")["minReplicas"], "/expression"));
    assert!(number(smallest, "/value") > 1 && number(smallest, "/decorators/minValue/0") > 1);
    assert!(items(&scale("web")["rules"]).iter().any(|rule| rule["http"]["metadata"].is_object()));

    // The names of the queues begin with the default of name-prefix, which the apps do not set.
    assert!(templates.variables("worker").iter().all(|(name, _)| *name != "POSTONCE_NAME_PREFIX"));
    let queues = [envelope::queues(1), messages::post_queues(1)].concat();
    let first =
        |name: &str| format!("postonce-{}${{partition}}", name.strip_suffix('0').expect("the first one"));
    let expected: BTreeSet<String> = queues.iter().map(|queue| first(queue.as_str())).collect();
    let rules = templates.flat(&scale("worker")["rules"]);
    let found = rules.iter().map(|rule| {
        assert_eq!(rule["azureQueue"]["identity"]["expression"], "workerIdentityId", "not a key");
        text(rule, "/azureQueue/queueName").to_owned()
    });
    assert_eq!(found.collect::<BTreeSet<_>>(), expected);
}

#[test]
fn the_readme_compares_all_alerts() {
    let templates = Templates::read();
    let alerts = ["metrics", "logs"].map(|list| templates.value("monitoring.bicep", "variables", list));
    for alert in alerts.iter().flat_map(|list| items(list)) {
        let name = text(alert, "/name");
        assert!(README.contains(&format!("`{name}`")), "{name}");
        assert!([1, 3].contains(&number(alert, "/severity")) && !text(alert, "/text").is_empty(), "{name}");
    }
    let rules = deployment::documents(&deployment::read("deploy/prometheus/rules.yaml"));
    let rules: Vec<&Value> = rules.iter().flat_map(|file| items(&file["groups"])).collect();
    let rules: Vec<&Value> = rules.into_iter().flat_map(|group| items(&group["rules"])).collect();
    assert!(rules.len() > 10, "the rules are found");
    for rule in rules {
        let name = text(rule, "/alert");
        assert!(README.contains(&format!("{name},")) || README.contains(&format!("{name} |")), "{name}");
    }
    // A query of an alert depends on the target of these lines.
    let target = "\"postonce::decided\"";
    assert!(deployment::read("deploy/azure/monitoring.bicep").contains(target));
    assert!(deployment::read("shared/src/posting/writer.rs").contains(target));
}
