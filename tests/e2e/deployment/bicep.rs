//! The templates for Azure Container Apps. There is no compiler for them here: a grammar of Bicep reads them, and what they
//! declare is compared with the programs and the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use postonce_tests::deployment::{self, is_pinned, items, members, text};
use postonce_tests::entra::Principal;
use postonce_tests::process::output_for;
use postonce_tests::{python, workspace};
use serde_json::{Value, json};

const FOLDER: &str = "deploy/azure";
pub const README: &str = include_str!("../../../deploy/azure/README.md");
const WORKER_README: &str = include_str!("../../../worker/README.md");
pub const MAIN: &str = "main.bicep";
pub const APPS: &str = "apps.bicep";
const STORAGE: &str = "storage.bicep";
/// The functions of Bicep that the templates use.
const FUNCTIONS: &str = "allowed concat description empty environment guid json maxLength maxValue minLength minValue \
                         range resourceGroup string subscriptionResourceId toLower uniqueString";
/// The ids that Microsoft gives to the roles.
const ROLES: [(&str, &str); 5] = [
    ("Storage Blob Data Contributor", "ba92f5b4-2d11-453d-a403-e96b0029c9fe"),
    ("Storage Queue Data Contributor", "974c5e8b-45b9-4653-ba55-5f855dd0fb88"),
    ("Storage Queue Data Message Sender", "c6a89b2d-59bc-44d0-9896-0f6e12d7b80a"),
    ("Storage Queue Data Reader", "19e7f393-937e-4f77-808e-94535e297925"),
    ("Storage Table Data Contributor", "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3"),
];
/// Key Vault Secrets User and AcrPull, by the variables that name them.
const SHARED_ROLES: [(&str, &str); 2] = [
    ("readsSecrets", "4633458b-17de-408a-b874-0445c86b69e6"),
    ("pullsImages", "7f951dda-4ed3-4680-a7ca-43fe172d538d"),
];

/// What the templates declare, by the names of the files.
pub struct Templates(pub BTreeMap<String, Value>);

impl Templates {
    /// Reads all templates, whose syntax must be right.
    pub fn read() -> Self {
        let output = declarations(&workspace::root().join(FOLDER));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).expect("JSON is UTF-8");
        let file = |line| {
            let declared: Value = serde_json::from_str(line).expect("it prints JSON");
            (text(&declared, "/file").to_owned(), declared)
        };
        Self(printed.lines().map(file).collect())
    }

    pub fn declared(&self, file: &str, kind: &str, name: &str) -> &Value {
        let found = &self.0[file][kind][name];
        assert!(found.is_object(), "{file} declares no {name} among the {kind}");
        found
    }

    /// The value of a variable, or the body of a resource without the condition or the loop around it.
    pub fn value(&self, file: &str, kind: &str, name: &str) -> &Value {
        inner(&self.declared(file, kind, name)["value"])
    }

    pub fn resource(&self, file: &str, name: &str) -> &Value {
        self.value(file, "resources", name)
    }

    /// All resources of a type, with their files.
    fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let of_file = |(file, declared): (&'a String, &'a Value)| {
            members(&declared["resources"]).map(move |(_, resource)| (file.as_str(), resource))
        };
        let is_one = move |resource: &Value| text(resource, "/type").split('@').next() == Some(kind);
        self.0.iter().flat_map(of_file).filter(move |(_, resource)| is_one(resource))
    }
}

/// What the script prints about the templates of a folder.
fn declarations(folder: &Path) -> Output {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let templates: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "bicep")).collect();
    let script = python::directory().join("bicep_declarations.py");
    output_for(Command::new(python::program()).arg(script).args(templates), "")
}

/// A value without the condition or the loop around it.
fn inner(value: &Value) -> &Value {
    let is_wrapped = value["body"].is_object() && (value["if"].is_string() || value["for"].is_string());
    if is_wrapped { inner(&value["body"]) } else { value }
}

fn names(value: &Value) -> BTreeSet<&str> {
    members(value).map(|(name, _)| name).collect()
}

fn texts(value: &Value) -> BTreeSet<&str> {
    items(value).iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_mistake_in_the_syntax_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    for wrong in ["param a string\nvar b = {\n  a: a\n", "param a string\nvar b = concat(a,\nvar c = a\n"] {
        fs::write(folder.path().join("wrong.bicep"), wrong).expect("a file");
        let output = declarations(folder.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("wrong.bicep, line "), "{wrong}: {errors}");
    }
}

#[test]
fn modules_get_their_parameters_and_their_outputs_are_used() {
    let templates = Templates::read();
    let mut used = BTreeSet::from([MAIN]);
    for (file, declared) in &templates.0 {
        let source = deployment::read(&format!("{FOLDER}/{file}"));
        for (name, module) in members(&declared["modules"]) {
            let path = text(module, "/type");
            let target = templates.0.get(path).unwrap_or_else(|| panic!("{file}: there is no {path}"));
            used.insert(path);
            // Parameters of modules have no defaults, so that none is forgotten.
            let given = names(&inner(&module["value"])["params"]);
            assert_eq!(given, names(&target["params"]), "{file}: {name}");
            let read = source.split(&format!("{name}.outputs.")).skip(1).collect::<Vec<_>>();
            let read = read.iter().filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
            assert_eq!(read.collect::<BTreeSet<_>>(), names(&target["outputs"]), "{file}: {name}");
        }
    }
    assert_eq!(used, templates.0.keys().map(String::as_str).collect(), "files of modules");
}

#[test]
fn each_name_is_declared_described_and_used() {
    for (file, declared) in &Templates::read().0 {
        let referenced = texts(&declared["references"]);
        for kind in ["params", "variables"] {
            let unused: Vec<&str> = names(&declared[kind]).difference(&referenced).copied().collect();
            assert_eq!(unused, Vec::<&str>::new(), "{file}: unused {kind}");
        }
        for (name, declaration) in ["params", "outputs"].iter().flat_map(|kind| members(&declared[*kind])) {
            let description = declaration["decorators"]["description"][0].as_str().unwrap_or_default();
            assert!(description.ends_with('.') && !description.contains("${"), "{file}: {name}");
        }
        let kinds = ["params", "variables", "resources", "modules"].map(|kind| names(&declared[kind]));
        let named = kinds.into_iter().flatten().chain(texts(&declared["loops"]));
        let known: BTreeSet<&str> = named.chain(FUNCTIONS.split_whitespace()).collect();
        let unknown: Vec<&str> = referenced.difference(&known).copied().collect();
        assert_eq!(unknown, Vec::<&str>::new(), "{file}: unknown names");
    }
}

#[test]
fn the_example_has_the_parameters_without_a_default() {
    let templates = Templates::read();
    let example: Value =
        serde_json::from_str(&deployment::read(&format!("{FOLDER}/example.parameters.json")))
            .expect("a file with parameters");
    let (given, known) = (&example["parameters"], &templates.0[MAIN]["params"]);
    let required = members(known).filter(|(_, parameter)| parameter["value"].is_null()).map(|(name, _)| name);
    assert!(
        required.collect::<BTreeSet<_>>().is_subset(&names(given)) && names(given).is_subset(&names(known))
    );
    for image in ["webImage", "workerImage"] {
        assert!(is_pinned(text(&given[image], "/value")), "{image}");
    }
    assert!(README.contains("example.parameters.json") && README.contains("deploy/azure/main.bicep"));
}

#[test]
fn the_roles_are_those_of_the_documentation() {
    let templates = Templates::read();
    let (_, table) = WORKER_README.split_once("| role | web | worker | for |").expect("a table of roles");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
    let file = "identities.bicep";
    for (column, process, principal) in [(2, "web", Principal::Web), (3, "worker", Principal::Worker)] {
        let documented: BTreeSet<&str> =
            rows.iter().filter(|row| row[column] == "yes").map(|row| row[1]).collect();
        let list = format!("{process}Roles");
        assert_eq!(texts(templates.value(file, "variables", &list)), documented, "{process}");
        let tested: BTreeSet<&str> = principal.roles().iter().map(|role| role.name()).collect();
        assert_eq!(tested, documented, "{process}: the strict proxies give it these");

        let assignments = format!("{process}Assignments");
        assert_eq!(templates.declared(file, "resources", &assignments)["value"]["for"], list.as_str());
        let assignment = templates.resource(file, &assignments);
        assert_eq!(assignment["scope"]["expression"], "account");
        let (principal, role) =
            (&assignment["properties"]["principalId"], &assignment["properties"]["roleDefinitionId"]);
        assert_eq!(principal["expression"], format!("{process}.properties.principalId"));
        assert_eq!(role["arguments"][1]["expression"], "roles[role]");
    }
    let ids: BTreeMap<&str, &str> = ROLES.into_iter().collect();
    assert_eq!(templates.value(file, "variables", "roles"), &json!(ids));
}

#[test]
fn there_are_no_other_roles_than_those_at_the_vault_and_the_registry() {
    let templates = Templates::read();
    for (variable, id) in SHARED_ROLES {
        let role = templates.value("shared.bicep", "variables", variable);
        assert_eq!(role["arguments"][1], id, "{variable}");
    }
    let assignments: Vec<_> = templates.all("Microsoft.Authorization/roleAssignments").collect();
    assert!(assignments.len() > 4, "assignments are found");
    for (file, assignment) in assignments.into_iter().filter(|(file, _)| *file != "identities.bicep") {
        assert_eq!(file, "shared.bicep");
        let (scope, properties) = (
            text(inner(&assignment["value"]), "/scope/expression"),
            &inner(&assignment["value"])["properties"],
        );
        let role = if scope == "registry" { "pullsImages" } else { "readsSecrets" };
        assert_eq!(properties["roleDefinitionId"]["expression"], role, "{scope}");
        let kind = text(templates.declared(file, "resources", scope), "/type");
        assert!(
            scope == "registry" || kind.contains("/vaults/secrets@"),
            "a right at the whole vault: {scope}"
        );
    }
}

#[test]
fn the_storage_account_accepts_identities_only() {
    let templates = Templates::read();
    let (account, blobs) = (templates.resource(STORAGE, "account"), templates.resource(STORAGE, "blobs"));
    assert_eq!(account["kind"], "StorageV2");
    let properties = &account["properties"];
    for (property, value) in [
        ("allowSharedKeyAccess", json!(false)),
        ("allowBlobPublicAccess", json!(false)),
        ("isLocalUserEnabled", json!(false)),
        ("supportsHttpsTrafficOnly", json!(true)),
        ("minimumTlsVersion", json!("TLS1_2")),
    ] {
        assert_eq!(properties[property], value, "{property}");
    }
    assert_eq!(properties["networkAcls"]["defaultAction"], "Deny");
    let public = &properties["publicNetworkAccess"];
    assert_eq!((&public["if"], &public["body"]), (&json!("empty(operatorAddresses)"), &json!("Disabled")));
    assert_eq!(templates.declared(MAIN, "params", "operatorAddresses")["value"], json!([]));
    assert_eq!(templates.declared(MAIN, "params", "storageSku")["value"], "Standard_ZRS");
    assert_eq!(texts(templates.value(STORAGE, "variables", "services")), ["blob", "queue", "table"].into());
    assert_eq!(templates.declared(STORAGE, "resources", "endpoints")["value"]["for"], "services");
    for policy in ["deleteRetentionPolicy", "containerDeleteRetentionPolicy"] {
        assert_eq!(blobs["properties"][policy]["enabled"], true, "{policy}");
    }
    let lock = templates.resource(STORAGE, "lock");
    assert_eq!(
        (&lock["scope"]["expression"], &lock["properties"]["level"]),
        (&json!("account"), &json!("CanNotDelete"))
    );
    for file in templates.0.keys() {
        let source = deployment::read(&format!("{FOLDER}/{file}"));
        for word in ["listKeys", "AccountKey", "SharedAccessSignature", "sharedKey:", "listAccountSas"] {
            assert!(!source.contains(word), "{file}: {word}");
        }
    }
}

#[test]
fn no_rule_removes_blobs_and_nobody_changes_copies_of_anchors() {
    let templates = Templates::read();
    for (file, declared) in &templates.0 {
        for (name, resource) in members(&declared["resources"]) {
            assert!(
                !text(resource, "/type").contains("/managementPolicies"),
                "{file}: {name} removes payloads"
            );
        }
    }
    let policies: Vec<_> = templates
        .all("Microsoft.Storage/storageAccounts/blobServices/containers/immutabilityPolicies")
        .collect();
    let [(STORAGE, declared)] = policies[..] else { panic!("not exactly one policy: {policies:?}") };
    assert_eq!(declared["value"]["if"], "(!anchorsLocked)");
    let policy = inner(&declared["value"]);
    assert_eq!(policy["parent"]["expression"], "anchors");
    assert_eq!(
        policy["properties"]["immutabilityPeriodSinceCreationInDays"]["expression"],
        "anchorRetentionDays"
    );
    assert_eq!(policy["properties"]["allowProtectedAppendWrites"], false);
    let container = text(templates.resource(STORAGE, "anchors"), "/name");
    assert!(README.contains(&format!("--container-name {container} ")));
}
