//! Rules between members, and rules for member names, which the attributes of `utoipa` cannot express. With them, a schema
//! accepts and refuses the same documents as the program.
//!
//! A schema cannot express two rules, which are only in the descriptions: the limit on the total size of `metadata` and of
//! unknown members, and the precision of numbers in unknown members.

use serde_json::{Value, json};

use super::codes::SCOPES;
use super::money::{amount, by_currency, limit, limit_of_any_currency, limits_by_currency};
use super::rules::{METADATA_MEMBERS_MAX, METADATA_NAME_CHARS_MAX, UNKNOWN_MEMBERS_BYTES_MAX};

/// Text without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001F\u007F-\u009F]*$";

/// Adds these rules to the schemas of the OpenAPI document. `schemas` contains the schemas by name.
///
/// # Panics
/// If a schema is missing, because the list of rules is outdated.
pub fn add_rules(schemas: &mut Value) {
    let unknown = json!({"additionalProperties": {"$ref": "#/components/schemas/UnknownMember"}});
    let metadata = json!({
        "maxProperties": METADATA_MEMBERS_MAX,
        "propertyNames": {
            "type": "string", "minLength": 1, "maxLength": METADATA_NAME_CHARS_MAX, "pattern": PRINTABLE,
        },
        "additionalProperties": {"type": "string", "pattern": PRINTABLE},
    });
    let rules = [
        ("", json!({"UnknownMember": unknown_member()})),
        ("/TransactionRequest", by_currency("amount", amount)),
        ("/TransactionRequest", unknown),
        ("/TransactionRequest/properties/metadata", metadata.clone()),
        ("/OpenAccountRequest", by_currency("overdraft_limit", limit)),
        ("/OpenAccountRequest/properties/overdraft_limit", json!({"pattern": limit_of_any_currency()})),
        ("/ChangeAccountRequest", at_least_one_change()),
        ("/ChangeAccountRequest/properties/overdraft_limit", json!({"pattern": limit_of_any_currency()})),
        ("/GateChange", release_time_only_if_held()),
        ("/Transaction", members_by_status()),
        ("/Transaction/properties/metadata", metadata),
        ("/PartnerKeyRequest/properties/scopes/items", json!({"enum": SCOPES})),
        ("/PartnerReach", everything_or_named()),
        ("/PartnerTerms/properties/credit_ceilings", limits_by_currency()),
    ];
    for (pointer, rule) in rules {
        add(schemas, pointer, rule);
    }
    for answer in ["/Batch", "/BatchSum", "/BatchHindrance", "/BatchResult"] {
        add(schemas, answer, json!({"additionalProperties": false}));
    }
}

/// Adds members to the schema at a JSON pointer.
///
/// # Panics
/// If there is no schema at the pointer.
pub fn add(schemas: &mut Value, pointer: &str, rule: Value) {
    match (schemas.pointer_mut(pointer), rule) {
        (Some(Value::Object(schema)), Value::Object(rule)) => schema.extend(rule),
        (_, rule) => panic!("{rule} cannot be added at {pointer:?}"),
    }
}

/// Returns the rule for a change of an account: at least one member is not null.
fn at_least_one_change() -> Value {
    let is_set =
        |member: &str, r#type: &str| json!({"required": [member], "properties": {member: {"type": r#type}}});
    json!({"anyOf": [is_set("overdraft_limit", "string"), is_set("status", "string"), is_set("holder", "object")]})
}

/// Returns the rule for a change of the gate: only a held gate can have a time of release.
fn release_time_only_if_held() -> Value {
    json!({"oneOf": [
        {"properties": {"state": {"const": "held"}}},
        {"properties": {"state": {"const": "released"}, "release_at": {"type": "null"}}},
    ]})
}

/// Returns the required members of a transaction in each status.
fn members_by_status() -> Value {
    json!({"oneOf": [
        {"properties": {"status": {"const": "accepted"}}},
        {
            "properties": {"status": {"const": "posted"}},
            "required": ["order_number", "sequence", "balance_after", "posted_at"],
        },
        {"properties": {"status": {"const": "rejected"}}, "required": ["reason", "rejected_at"]},
    ]})
}

/// Returns the rule for the reach of a partner: either everything, or a list of users or accounts.
fn everything_or_named() -> Value {
    json!({"oneOf": [
        {
            "required": ["everything"],
            "properties": {"everything": {"const": true}, "users": false, "accounts": false},
        },
        {
            "properties": {"everything": {"const": false}},
            "anyOf": [{"required": ["users"]}, {"required": ["accounts"]}],
        },
    ]})
}

/// Returns the schema of unknown members of a request. It limits numbers to those that are stored exactly.
fn unknown_member() -> Value {
    const LIMIT: i64 = 1_000_000_000_000_000_000;
    let itself = json!({"$ref": "#/components/schemas/UnknownMember"});
    json!({
        "description": format!(
            "A member that this version does not know. It is stored as part of the content. All such members together \
             have at most {UNKNOWN_MEMBERS_BYTES_MAX} bytes, and are nested at most 15 levels deep."
        ),
        "anyOf": [
            {"type": ["null", "boolean", "string"]},
            {"type": "number", "exclusiveMinimum": LIMIT.wrapping_neg(), "exclusiveMaximum": LIMIT},
            {"type": "array", "items": itself},
            {"type": "object", "additionalProperties": itself},
        ],
    })
}
