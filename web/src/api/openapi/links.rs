//! Links from responses to subsequent operations, for tools that explore the API.

use serde_json::{Map, Value, json};

/// Operation, response statuses, linked operation, and its parameters.
type Link = (&'static str, &'static [&'static str], &'static str, &'static [(&'static str, &'static str)]);

/// Statuses after which the account exists.
const OPENED: &[&str] = &["200", "201", "409"];
const SUBMITTED: &[&str] = &["200", "202"];
const USER: &[(&str, &str)] = &[("user_id", "$request.path.user_id")];
const ACCOUNT: &[(&str, &str)] =
    &[("user_id", "$request.path.user_id"), ("account_id", "$request.path.account_id")];
const TRANSACTION: &[(&str, &str)] = &[
    ("user_id", "$request.path.user_id"),
    ("account_id", "$request.path.account_id"),
    ("message_id", "$response.body#/message_id"),
];

#[rustfmt::skip]
const LINKS: &[Link] = &[
    // Tools start here, with ids that they choose.
    ("get_readiness", &["200"], "open_account", &[]),
    ("open_account", OPENED, "get_account", ACCOUNT),
    ("open_account", OPENED, "change_account", ACCOUNT),
    ("open_account", OPENED, "submit_deposit", ACCOUNT),
    ("open_account", OPENED, "submit_withdrawal", ACCOUNT),
    ("open_account", OPENED, "list_accounts", USER),
    // The client can open an account that does not exist.
    ("submit_deposit", &["404"], "open_account", ACCOUNT),
    ("submit_deposit", SUBMITTED, "get_transaction", TRANSACTION),
    ("submit_deposit", SUBMITTED, "submit_withdrawal", ACCOUNT),
    ("submit_deposit", SUBMITTED, "get_statement", ACCOUNT),
    ("submit_withdrawal", &["404"], "open_account", ACCOUNT),
    ("submit_withdrawal", SUBMITTED, "get_transaction", TRANSACTION),
    ("submit_withdrawal", SUBMITTED, "get_account", ACCOUNT),
];

/// Adds the links to the responses of an operation.
pub(super) fn add(operation: &mut Value) {
    let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (_, statuses, target, parameters) in LINKS.iter().filter(|(from, ..)| *from == id) {
        for status in *statuses {
            let response = operation.pointer_mut(&format!("/responses/{status}"));
            let response = response.and_then(Value::as_object_mut);
            let response = response.unwrap_or_else(|| panic!("{id} does not answer {status}"));
            let links = response.entry("links").or_insert_with(|| Value::Object(Map::new()));
            if let Some(links) = links.as_object_mut() {
                links.insert((*target).to_owned(), link(target, parameters));
            }
        }
    }
}

fn link(target: &str, parameters: &[(&str, &str)]) -> Value {
    let parameters: Map<String, Value> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    json!({"operationId": target, "parameters": parameters})
}
