//! Pods, and what refers to them.

use std::collections::BTreeSet;
use std::fs;

use postonce_tests::deployment::{self, is_pinned, items, members, number, text};
use postonce_tests::prelude::*;
use serde_json::{Value, json};

use super::manifests::{AZURE, AZURITE, Manifests, OVERLAYS, containers, name_of, port_of};

const README: &str = include_str!("../../../deploy/kubernetes/README.md");
/// Time in which requests and work in progress end, in seconds.
const DRAIN_S: u64 = 10;
/// The value of each secret, which every setting allows.
const SECRET: &str = "secret-of-the-manifests-0123456789";

#[test]
fn each_pod_has_the_least_rights() {
    for manifests in OVERLAYS.map(Manifests::of) {
        let namespace = manifests.all("Namespace").next().expect("there is a namespace");
        assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
        assert!(!manifests.workloads().is_empty());
        for workload in manifests.workloads() {
            let (pod, name) = (&workload["spec"]["template"]["spec"], name_of(workload));
            assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
            assert_eq!(pod["enableServiceLinks"], false, "{name}");
            let security = &pod["securityContext"];
            assert_eq!(security["runAsNonRoot"], true, "{name}");
            assert!(number(security, "/runAsUser") > 0, "{name}");
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            for container in containers(workload) {
                let security = &container["securityContext"];
                assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{name}");
                assert!(is_pinned(text(container, "/image")), "{name}: {}", container["image"]);
            }
        }
    }
}

#[test]
fn each_container_has_probes_and_resources() {
    for manifests in OVERLAYS.map(Manifests::of) {
        for workload in manifests.workloads() {
            let name = name_of(workload);
            for container in containers(workload) {
                for resource in
                    ["/resources/requests/cpu", "/resources/requests/memory", "/resources/limits/memory"]
                {
                    text(container, resource);
                }
                for (probe, path) in
                    [("livenessProbe", "/livez"), ("readinessProbe", "/readyz"), ("startupProbe", "/livez")]
                {
                    let probe = &container[probe];
                    if name == AZURITE {
                        assert!(probe.is_null() || port_of(workload, &probe["tcpSocket"]["port"]).is_some());
                        continue;
                    }
                    assert_eq!(probe["httpGet"]["path"], path, "{name}");
                    assert!(port_of(workload, &probe["httpGet"]["port"]).is_some(), "{name}: {probe}");
                }
            }
        }
    }
}

#[test]
fn services_and_disruption_budgets_select_pods() {
    for manifests in OVERLAYS.map(Manifests::of) {
        for service in manifests.all("Service") {
            let selected = manifests.selected(&service["spec"]["selector"]);
            let [workload] = selected[..] else { panic!("{} selects {selected:?}", name_of(service)) };
            for port in items(&service["spec"]["ports"]) {
                assert!(port_of(workload, &port["targetPort"]).is_some(), "{}: {port}", name_of(service));
            }
        }
        let budgets: Vec<&Value> = manifests.all("PodDisruptionBudget").collect();
        let protected = budgets.iter().map(|budget| {
            assert_eq!(budget["spec"]["maxUnavailable"], 1);
            let selected = manifests.selected(&budget["spec"]["selector"]["matchLabels"]);
            let [workload] = selected[..] else { panic!("{} selects {selected:?}", name_of(budget)) };
            name_of(workload)
        });
        let deployments = manifests.all("Deployment").map(name_of);
        assert_eq!(protected.collect::<BTreeSet<_>>(), deployments.collect(), "{}", manifests.overlay);
    }
}

#[test]
fn pods_are_spread_over_zones_and_nodes() {
    for manifests in OVERLAYS.map(Manifests::of) {
        for deployment in manifests.all("Deployment") {
            let template = &deployment["spec"]["template"];
            let spread = items(&template["spec"]["topologySpreadConstraints"]);
            for key in ["topology.kubernetes.io/zone", "kubernetes.io/hostname"] {
                let found = spread.iter().find(|constraint| constraint["topologyKey"] == key);
                let selector = &found.unwrap_or_else(|| panic!("no {key}"))["labelSelector"];
                assert_eq!(selector, &deployment["spec"]["selector"], "{}", name_of(deployment));
                assert!(
                    members(&selector["matchLabels"])
                        .all(|(name, value)| template["metadata"]["labels"][name] == *value)
                );
            }
        }
    }
}

#[test]
fn the_grace_period_is_longer_than_the_drain() {
    for manifests in OVERLAYS.map(Manifests::of) {
        for deployment in manifests.all("Deployment") {
            let variables =
                containers(deployment).iter().flat_map(|container| manifests.variables(container));
            let delay = variables.filter(|(name, _)| *name == "POSTONCE_DRAIN_DELAY_S");
            let delay: u64 = delay.filter_map(|(_, value)| value?.parse::<u64>().ok()).sum();
            let grace = number(deployment, "/spec/template/spec/terminationGracePeriodSeconds");
            assert!(grace > delay.saturating_add(DRAIN_S), "{}: {grace} s", name_of(deployment));
            if name_of(deployment) == "postonce-web" {
                assert!(delay > 0, "load balancers learn that the pod ends");
            }
        }
    }
}

#[test]
fn each_secret_is_mounted_and_made_by_a_command_of_the_readme() {
    for manifests in OVERLAYS.map(Manifests::of) {
        for deployment in manifests.all("Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            assert!(
                manifests
                    .all("ServiceAccount")
                    .any(|account| account["metadata"]["name"] == pod["serviceAccountName"])
            );
            for container in containers(deployment) {
                let variables = manifests.variables(container);
                for (name, path) in variables.into_iter().filter(|(name, _)| name.ends_with("_FILE")) {
                    let (secret, key) = secret_at(pod, container, path.expect("a path"))
                        .unwrap_or_else(|| panic!("{name} names no file of a secret: {path:?}"));
                    assert!(README.contains(&format!("create secret generic {secret} ")), "{secret}");
                    assert!(README.contains(&format!("--from-literal={key}=")), "{key}");
                }
            }
        }
    }
}

/// The secret and its key that are mounted at a path.
fn secret_at<'a>(pod: &'a Value, container: &'a Value, path: &'a str) -> Option<(&'a str, &'a str)> {
    let (folder, file) = path.rsplit_once('/')?;
    let mount = items(&container["volumeMounts"]).iter().find(|mount| mount["mountPath"] == folder)?;
    let volume = items(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"])?;
    let chosen = &volume["secret"]["items"];
    let is_there = chosen.is_null() || items(chosen).iter().any(|item| item["path"] == file);
    is_there.then_some((volume["secret"]["secretName"].as_str()?, file))
}

#[test]
fn the_program_accepts_the_settings_of_each_container() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    fs::write(&file, SECRET).expect("a file");
    for manifests in OVERLAYS.map(Manifests::of) {
        for container in manifests.all("Deployment").flat_map(containers) {
            let variables = manifests.variables(container);
            let names = variables.iter().map(|(name, _)| *name);
            assert_eq!(deployment::unknown_variables(names), Vec::<&str>::new(), "{}", manifests.overlay);
            let mut settings = Settings::default();
            for (name, value) in variables {
                let value = value.unwrap_or("192.0.2.1").replace("$(POD_IP)", "192.0.2.1");
                let value = if name.ends_with("_FILE") { file.display().to_string() } else { value };
                settings = settings.with(name, value);
            }
            let launch = service::launch(Binary::Web, &settings, &["config"], folder.path());
            let (status, lines) = launch.run(wait::TIMEOUT);
            assert!(status.success(), "{}: {}", manifests.overlay, lines.join("\n"));
            assert!(lines.iter().all(|line| !line.contains(SECRET)), "a secret is printed");
        }
    }
}

#[test]
fn on_azure_there_is_an_identity_and_no_key() {
    let manifests = Manifests::of(AZURE);
    let settings = manifests.shared_settings();
    assert_eq!(settings.get("POSTONCE_AZURE_IDENTITY"), Some(&"workload"));
    assert!(
        settings.get("POSTONCE_STORAGE").is_some_and(|storage| storage.starts_with("azure:AccountName="))
    );
    let text = manifests.to_text();
    assert!(!text.contains("AccountKey") && !text.contains("devstoreaccount1"), "{text}");
    for deployment in manifests.all("Deployment") {
        let template = &deployment["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["azure.workload.identity/use"], "true");
        let account = template["spec"]["serviceAccountName"].as_str().expect("a name");
        let account = manifests.named("ServiceAccount", account);
        assert!(account["metadata"]["annotations"]["azure.workload.identity/client-id"].is_string());
    }
}
