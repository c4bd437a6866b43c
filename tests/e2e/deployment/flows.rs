//! Network policies: they allow the flows that the service needs, and no others. Evaluated as Kubernetes defines them: a
//! pod that a policy selects receives and sends only what some rule of such a policy allows.

use std::net::IpAddr;

use ipnet::IpNet;
use postonce_tests::deployment::{items, members, text};
use serde_json::{Value, json};

use super::manifests::{AZURE, AZURITE, Manifests, OVERLAYS, is_selected};

/// The label with the name of a namespace, which Kubernetes sets.
const NAMESPACE: &str = "kubernetes.io/metadata.name";
/// Addresses outside of the cluster: of a service, and of the metadata service of a node.
const OUTSIDE: &str = "203.0.113.7";
const METADATA_SERVICE: &str = "169.254.169.254";

/// One end of a flow.
enum End {
    /// A pod, by its namespace and its labels.
    Pod(String, Value),
    /// An address outside of the cluster.
    Address(&'static str),
}

impl End {
    fn pod(namespace: &str, labels: Value) -> Self {
        Self::Pod(namespace.to_owned(), labels)
    }

    /// The pods of a workload.
    fn of(manifests: &Manifests, kind: &str, name: &str) -> Self {
        let workload = manifests.named(kind, name);
        Self::pod(manifests.namespace(), workload["spec"]["template"]["metadata"]["labels"].clone())
    }
}

/// The ends outside of the service, as the README names them.
fn client() -> End {
    End::pod("ingress", json!({"app": "ingress"}))
}

fn prometheus() -> End {
    End::pod("monitoring", json!({"app.kubernetes.io/name": "prometheus"}))
}

fn keda() -> End {
    End::pod("keda", json!({"app": "keda-operator"}))
}

fn dns() -> End {
    End::pod("kube-system", json!({"k8s-app": "kube-dns"}))
}

/// A direction of a policy: its type, its rules, and the other ends in a rule.
type Direction = (&'static str, &'static str, &'static str);
const INGRESS: Direction = ("Ingress", "ingress", "from");
const EGRESS: Direction = ("Egress", "egress", "to");

/// Whether a flow passes the policies of both ends.
fn passes(manifests: &Manifests, from: &End, to: &End, (protocol, port): (&str, u64)) -> bool {
    let policies: Vec<&Value> = manifests.all("NetworkPolicy").collect();
    let is_allowed = |direction, end: &End, other: &End| {
        let applying: Vec<&&Value> =
            policies.iter().filter(|policy| applies(policy, direction, end)).collect();
        let (_, rules, others) = direction;
        let allows = |rule: &Value| {
            has_end(&rule[others], manifests.namespace(), other) && has_port(&rule["ports"], protocol, port)
        };
        applying.is_empty() || applying.iter().any(|policy| items(&policy["spec"][rules]).iter().any(allows))
    };
    is_allowed(EGRESS, from, to) && is_allowed(INGRESS, to, from)
}

/// Whether a policy restricts an end in a direction.
fn applies(policy: &Value, (kind, ..): Direction, end: &End) -> bool {
    let End::Pod(namespace, labels) = end else { return false };
    text(policy, "/metadata/namespace") == namespace
        && items(&policy["spec"]["policyTypes"]).iter().any(|named| named == kind)
        && has_labels(&policy["spec"]["podSelector"], labels)
}

/// Whether labels have what a selector demands; an empty one selects everything.
fn has_labels(selector: &Value, labels: &Value) -> bool {
    assert!(members(selector).all(|(name, _)| name == "matchLabels"), "not evaluated here: {selector}");
    members(selector).count() == 0 || is_selected(&selector["matchLabels"], labels)
}

/// Whether one of the ends of a rule is this one; a rule without ends is for all.
fn has_end(ends: &Value, own_namespace: &str, other: &End) -> bool {
    let is_other = |end: &Value| match other {
        End::Address(address) => {
            let address: IpAddr = address.parse().expect("an address");
            let contains = |network: &Value| {
                let network: IpNet = network.as_str().expect("a text").parse().expect("a network");
                network.contains(&address)
            };
            let block = &end["ipBlock"];
            !block.is_null() && contains(&block["cidr"]) && !items(&block["except"]).iter().any(contains)
        }
        End::Pod(namespace, labels) => {
            let (of_namespace, of_pod) = (&end["namespaceSelector"], &end["podSelector"]);
            let is_in_namespace = if of_namespace.is_null() {
                namespace == own_namespace
            } else {
                has_labels(of_namespace, &json!({NAMESPACE: namespace}))
            };
            end["ipBlock"].is_null() && is_in_namespace && (of_pod.is_null() || has_labels(of_pod, labels))
        }
    };
    ends.is_null() || items(ends).iter().any(is_other)
}

fn has_port(ports: &Value, protocol: &str, port: u64) -> bool {
    ports.is_null() || items(ports).iter().any(|rule| rule["protocol"] == protocol && rule["port"] == port)
}

/// Checks flows to TCP ports.
fn check(manifests: &Manifests, is_expected: bool, flows: &[(&str, &End, &End, u64)]) {
    for (flow, from, to, port) in flows {
        let found = passes(manifests, from, to, ("TCP", *port));
        assert_eq!(found, is_expected, "{}: {flow} at port {port}", manifests.overlay);
    }
}

fn processes(manifests: &Manifests) -> (End, End) {
    let process = |name| End::of(manifests, "Deployment", name);
    (process("postonce-web"), process("postonce-worker"))
}

#[test]
fn processes_reach_each_other_and_are_reached() {
    for manifests in OVERLAYS.map(Manifests::of) {
        let (web, worker) = processes(&manifests);
        let (client, prometheus, dns) = (client(), prometheus(), dns());
        check(
            &manifests,
            true,
            &[
                ("a client to web", &client, &web, 8080),
                ("a load balancer to web", &End::Address(OUTSIDE), &web, 8080),
                ("web to web", &web, &web, 8082),
                ("web to a worker", &web, &worker, 8082),
                ("a worker to web", &worker, &web, 8082),
                ("a worker to a worker", &worker, &worker, 8082),
                ("Prometheus to web", &prometheus, &web, 8081),
                ("Prometheus to a worker", &prometheus, &worker, 8082),
                ("web to DNS", &web, &dns, 53),
                ("a worker to DNS", &worker, &dns, 53),
            ],
        );
        for process in [&web, &worker] {
            assert!(passes(&manifests, process, &dns, ("UDP", 53)), "{}", manifests.overlay);
        }
    }
}

#[test]
fn nothing_else_reaches_them() {
    for manifests in OVERLAYS.map(Manifests::of) {
        let (web, worker) = processes(&manifests);
        let (client, prometheus, keda, dns) = (client(), prometheus(), keda(), dns());
        let stranger = End::pod(manifests.namespace(), json!({"app.kubernetes.io/name": "another"}));
        check(
            &manifests,
            false,
            &[
                ("a client to the port for operators", &client, &web, 8081),
                ("a client to the internal port of web", &client, &web, 8082),
                ("a client to a worker", &client, &worker, 8082),
                ("a load balancer to the port for operators", &End::Address(OUTSIDE), &web, 8081),
                ("another pod of the namespace to web", &stranger, &web, 8082),
                ("another pod of the namespace to a worker", &stranger, &worker, 8082),
                ("Prometheus to the internal port of web", &prometheus, &web, 8082),
                ("KEDA to a worker", &keda, &worker, 8082),
                ("a worker to the port for operators", &worker, &web, 8081),
                ("web to another pod", &web, &stranger, 8082),
                ("web to the outside, not encrypted", &web, &End::Address(OUTSIDE), 80),
                ("a worker to another port of DNS", &worker, &dns, 8080),
            ],
        );
    }
}

#[test]
fn on_azurite_only_the_processes_use_the_store() {
    let manifests = Manifests::of(AZURITE);
    let ((web, worker), client) = (processes(&manifests), client());
    let azurite = End::of(&manifests, "StatefulSet", AZURITE);
    for port in [10_000, 10_001, 10_002] {
        check(&manifests, true, &[("web", &web, &azurite, port), ("a worker", &worker, &azurite, port)]);
        check(&manifests, false, &[("a client", &client, &azurite, port)]);
    }
    let outside = End::Address(OUTSIDE);
    let flows = [("Azurite to the outside", &azurite, &outside, 443), ("web", &web, &outside, 443)];
    check(&manifests, false, &flows);
}

#[test]
fn on_azure_the_processes_reach_the_storage_and_the_autoscaler_reaches_web() {
    let manifests = Manifests::of(AZURE);
    let ((web, worker), keda) = (processes(&manifests), keda());
    let (storage, metadata_service) = (End::Address(OUTSIDE), End::Address(METADATA_SERVICE));
    for process in [&web, &worker] {
        check(&manifests, true, &[("the storage", process, &storage, 443)]);
        check(&manifests, false, &[("the metadata service", process, &metadata_service, 443)]);
        check(&manifests, false, &[("the metadata service", process, &metadata_service, 80)]);
    }
    check(&manifests, true, &[("KEDA to web", &keda, &web, 8081)]);
}
