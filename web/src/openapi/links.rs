//! Which operation goes on from an answer, and with what of it: for tools that walk through the API.

use serde_json::{Map, Value, json};

/// Operation, statuses of its answers, operation that goes on, and its parameters.
type Link = (&'static str, &'static [&'static str], &'static str, &'static [(&'static str, &'static str)]);

const OPENED: &[&str] = &["200", "201"];
const SUBMITTED: &[&str] = &["200", "202"];
const ACCOUNT: &[(&str, &str)] =
    &[("user_id", "$response.body#/user_id"), ("account_id", "$response.body#/account_id")];
const TRANSACTION: &[(&str, &str)] = &[
    ("user_id", "$response.body#/user_id"),
    ("account_id", "$response.body#/account_id"),
    ("message_id", "$response.body#/message_id"),
];
/// Who is told that there is no such account can open it.
const UNKNOWN_ACCOUNT: &[(&str, &str)] =
    &[("user_id", "$request.path.user_id"), ("account_id", "$request.path.account_id")];
const FIRST_LETTER: &[(&str, &str)] = &[("id", "$response.body#/dead_letters/0/id")];

#[rustfmt::skip]
const LINKS: &[Link] = &[
    ("open_account", OPENED, "get_account", ACCOUNT),
    ("open_account", OPENED, "change_account", ACCOUNT),
    ("open_account", OPENED, "submit_deposit", ACCOUNT),
    ("open_account", OPENED, "submit_withdrawal", ACCOUNT),
    ("open_account", OPENED, "get_statement", ACCOUNT),
    ("open_account", OPENED, "list_accounts", &[("user_id", "$response.body#/user_id")]),
    ("submit_deposit", &["404"], "open_account", UNKNOWN_ACCOUNT),
    ("submit_deposit", SUBMITTED, "get_transaction", TRANSACTION),
    ("submit_deposit", SUBMITTED, "submit_withdrawal", ACCOUNT),
    ("submit_deposit", SUBMITTED, "get_statement", ACCOUNT),
    ("submit_withdrawal", &["404"], "open_account", UNKNOWN_ACCOUNT),
    ("submit_withdrawal", SUBMITTED, "get_transaction", TRANSACTION),
    ("submit_withdrawal", SUBMITTED, "get_account", ACCOUNT),
    ("list_dead_letters", &["200"], "get_dead_letter", FIRST_LETTER),
    ("list_dead_letters", &["200"], "replay_dead_letter", FIRST_LETTER),
    ("list_dead_letters", &["200"], "discard_dead_letter", FIRST_LETTER),
];

/// Puts the links into the answers of an operation.
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
