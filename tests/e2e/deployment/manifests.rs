//! The manifests of an overlay.

use std::collections::BTreeMap;

use postonce_tests::deployment::{self, items, members, text};
use postonce_tests::workspace;
use serde_json::Value;

pub const AZURITE: &str = "azurite";
pub const AZURE: &str = "azure";
pub const OVERLAYS: [&str; 2] = [AZURITE, AZURE];
/// Versions of Kubernetes in which the manifests must be valid: the oldest one that the README allows, and a later one.
const KUBERNETES: [&str; 2] = ["1.27", "1.32"];

/// The objects of an overlay.
pub struct Manifests {
    pub overlay: &'static str,
    objects: Vec<Value>,
}

impl Manifests {
    /// Builds an overlay, whose objects must be valid.
    pub fn of(overlay: &'static str) -> Self {
        let folder = workspace::root().join("deploy/kubernetes/overlays").join(overlay);
        let objects = deployment::valid_documents(&deployment::kustomize(&folder), &KUBERNETES);
        Self { overlay, objects }
    }

    /// The objects of a kind.
    pub fn all(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// An object.
    pub fn named(&self, kind: &str, name: &str) -> &Value {
        let found = self.all(kind).find(|object| name_of(object) == name);
        found.unwrap_or_else(|| panic!("{}: no {kind} {name}", self.overlay))
    }

    /// What runs pods.
    pub fn workloads(&self) -> Vec<&Value> {
        self.all("Deployment").chain(self.all("StatefulSet")).collect()
    }

    /// The workloads whose pods have these labels.
    pub fn selected(&self, labels: &Value) -> Vec<&Value> {
        let selects =
            |workload: &&Value| is_selected(labels, &workload["spec"]["template"]["metadata"]["labels"]);
        self.workloads().into_iter().filter(selects).collect()
    }

    /// The data of the settings that all processes share.
    pub fn shared_settings(&self) -> BTreeMap<&str, &str> {
        let mut maps = self.all("ConfigMap");
        let (Some(map), None) = (maps.next(), maps.next()) else {
            panic!("{}: not exactly one ConfigMap", self.overlay)
        };
        members(&map["data"]).map(|(name, value)| (name, value.as_str().expect("a text"))).collect()
    }

    /// The variables of a container in the order in which they apply, with those of the ConfigMap that it refers to. A
    /// variable whose value is known only in a cluster has none.
    pub fn variables<'a>(&'a self, container: &'a Value) -> Vec<(&'a str, Option<&'a str>)> {
        let mut found = Vec::new();
        for source in items(&container["envFrom"]) {
            let map = self.named("ConfigMap", text(source, "/configMapRef/name"));
            found.extend(members(&map["data"]).map(|(name, value)| (name, value.as_str())));
        }
        let own = items(&container["env"]);
        found.extend(own.iter().map(|variable| (text(variable, "/name"), variable["value"].as_str())));
        found
    }

    pub fn namespace(&self) -> &str {
        text(self.all("Namespace").next().expect("there is a namespace"), "/metadata/name")
    }

    /// The manifests as text, to look for what must not be there.
    pub fn to_text(&self) -> String {
        self.objects.iter().map(|object| format!("{object:#}\n")).collect()
    }
}

pub fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The containers of a workload.
pub fn containers(workload: &Value) -> &[Value] {
    items(&workload["spec"]["template"]["spec"]["containers"])
}

/// The number of a port of a workload that has a name or that number.
pub fn port_of(workload: &Value, port: &Value) -> Option<u64> {
    let ports = containers(workload).iter().flat_map(|container| items(&container["ports"]));
    let mut named = ports.filter(|declared| declared["name"] == *port || declared["containerPort"] == *port);
    named.next().and_then(|declared| declared["containerPort"].as_u64())
}

/// Whether the labels contain all that a selector of equal labels has. An empty selector is taken for a mistake.
pub fn is_selected(selector: &Value, labels: &Value) -> bool {
    members(selector).count() > 0 && members(selector).all(|(name, value)| labels[name] == *value)
}
