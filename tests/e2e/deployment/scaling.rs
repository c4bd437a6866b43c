//! The autoscaler and Prometheus: what they ask for exists.

use std::fs;

use postonce_schemas::OPENAPI_JSON;
use postonce_tests::deployment::{self, items, members, number, text};
use postonce_tests::promtool;
use serde_json::{Value, json};

use super::manifests::{AZURE, Manifests, port_of};

const README: &str = include_str!("../../../deploy/kubernetes/README.md");
/// Where KEDA asks for the number of workers.
const SCALE: &str = "/v1/admin/scale";

#[test]
fn the_autoscaler_asks_for_the_number_of_workers() {
    let manifests = Manifests::of(AZURE);
    let mut scaled = manifests.all("ScaledObject");
    let (Some(scaled), None) = (scaled.next(), scaled.next()) else { panic!("not exactly one ScaledObject") };
    assert_eq!(scaled["apiVersion"], "keda.sh/v1alpha1");
    let target = manifests.named("Deployment", text(scaled, "/spec/scaleTargetRef/name"));
    assert_eq!(target["spec"]["replicas"], Value::Null, "each `apply` would reset the number");
    let settings = manifests.shared_settings();
    for (bound, setting) in
        [("minReplicaCount", "POSTONCE_WORKERS_MIN"), ("maxReplicaCount", "POSTONCE_WORKERS_MAX")]
    {
        assert_eq!(settings[setting], scaled["spec"][bound].to_string(), "{bound}");
    }
    let [trigger] = items(&scaled["spec"]["triggers"]) else { panic!("not exactly one trigger: {scaled}") };
    assert_eq!(trigger["type"], "metrics-api");
    let metadata = &trigger["metadata"];
    assert!(members(metadata).all(|(_, value)| value.is_string()), "KEDA reads texts only: {metadata}");
    assert_eq!((text(metadata, "/authMode"), text(metadata, "/targetValue")), ("bearer", "1"));

    // The address is that of a service, and its answer has the member.
    let url = text(metadata, "/url").strip_prefix("http://").expect("a URL");
    let (host, port) = url.strip_suffix(SCALE).and_then(|host| host.split_once(':')).expect("host:port");
    let service = host.strip_suffix(&format!(".{}.svc", manifests.namespace())).expect("a service");
    let service = manifests.named("Service", service);
    let selected = manifests.selected(&service["spec"]["selector"]);
    let port: Value = port.parse::<u64>().expect("a port").into();
    let port = items(&service["spec"]["ports"]).iter().find(|declared| declared["port"] == port);
    let port = port_of(selected.first().expect("web"), &port.expect("that port")["targetPort"]);
    assert_eq!(port, Some(8081), "the address for operators");
    let openapi: Value = serde_json::from_str(OPENAPI_JSON).expect("a document");
    assert!(openapi["paths"][SCALE]["get"].is_object());
    assert!(OPENAPI_JSON.contains(&format!("\"{}\"", text(metadata, "/valueLocation"))));

    // The key is in a secret that the README makes.
    let authentication = manifests.named("TriggerAuthentication", text(trigger, "/authenticationRef/name"));
    let [secret] = items(&authentication["spec"]["secretTargetRef"]) else { panic!("{authentication}") };
    assert_eq!(secret["parameter"], "token");
    assert!(README.contains(&format!("create secret generic {} ", text(secret, "/name"))));
    assert!(README.contains(&format!("--from-literal={}=", text(secret, "/key"))));
    assert!(README.contains("partners add keda --all-accounts --scope scale"));
}

#[test]
fn prometheus_accepts_its_configurations_and_finds_the_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("api-key", "po_key");
    write("rules.yaml", &deployment::read("deploy/prometheus/rules.yaml"));
    for file in ["deploy/compose/prometheus.yml", "deploy/kubernetes/prometheus.yml"] {
        let mut documents = deployment::documents(&deployment::read(file));
        let [config] = documents.as_mut_slice() else { panic!("{file} is not one document") };
        let job = config.pointer_mut("/scrape_configs/0").and_then(Value::as_object_mut).expect("a job");
        assert_eq!(job["job_name"], "postonce", "the rules refer to it");
        let key = folder.path().join("api-key").display().to_string();
        job.insert("authorization".to_owned(), json!({"credentials_file": key}));
        // Debian's promtool is compiled without it.
        drop(job.remove("kubernetes_sd_configs"));
        // JSON is YAML.
        write("prometheus.yml", &config.to_string());
        let (is_fine, output) = promtool::run(&["check", "config", "prometheus.yml"], folder.path(), "");
        assert!(is_fine, "{file}: {output}");
    }
}

#[test]
fn prometheus_scrapes_the_ports_that_serve_metrics() {
    let manifests = Manifests::of(AZURE);
    let file = "deploy/kubernetes/prometheus.yml";
    let documents = deployment::documents(&deployment::read(file));
    let [config] = documents.as_slice() else { panic!("{file} is not one document") };
    let job = &config["scrape_configs"][0];
    let relabeling = &job["relabel_configs"][0];
    assert_eq!(relabeling["action"], "keep");
    assert_eq!(job["kubernetes_sd_configs"][0]["namespaces"]["names"][0], manifests.namespace());
    let kept = text(relabeling, "/regex").strip_prefix("postonce;(").and_then(|kept| kept.strip_suffix(')'));
    let kept = kept.expect("a list of components and ports").split('|');
    let ports: Vec<(String, u64)> = kept
        .map(|kept| {
            let (component, port) = kept.split_once(';').expect("component;port");
            let workload = manifests.named("Deployment", &format!("postonce-{component}"));
            assert_eq!(
                workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"],
                component
            );
            (component.to_owned(), port_of(workload, &port.into()).expect("a port of that name"))
        })
        .collect();
    assert_eq!(ports, [("web".to_owned(), 8081), ("worker".to_owned(), 8082)]);
    let web = manifests.named("Deployment", "postonce-web");
    assert!(number(web, "/spec/replicas") > 1);
}
