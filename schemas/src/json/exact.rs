//! What the attributes of `utoipa` cannot say, so that a schema takes what the program takes, and refuses
//! what it refuses: rules between members, and rules for names of members.
//!
//! Two rules are beyond a schema and stand in the descriptions: how many bytes `metadata` and unknown
//! members may have together, and how exact a number among the latter is kept.

use serde_json::{Value, json};

use super::money::{amount, by_currency, limit, limit_of_any_currency};

/// Text without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001F\u007F-\u009F]*$";

/// Adds these rules to the schemas of the OpenAPI document, which are given by name.
///
/// # Panics
/// When one is missing: the list here is then not up to date.
pub fn sharpen(schemas: &mut Value) {
    let unknown = json!({"additionalProperties": {"$ref": "#/components/schemas/UnknownMember"}});
    let metadata = json!({
        "maxProperties": 20,
        "propertyNames": {"type": "string", "minLength": 1, "maxLength": 40, "pattern": PRINTABLE},
        "additionalProperties": {"type": "string", "pattern": PRINTABLE},
    });
    let rules = [
        ("", json!({"UnknownMember": unknown_member()})),
        ("/TransactionRequest", by_currency("amount", amount)),
        ("/TransactionRequest", unknown),
        ("/TransactionRequest/properties/metadata", metadata.clone()),
        ("/OpenAccountRequest", by_currency("overdraft_limit", limit)),
        ("/ChangeAccountRequest", one_of_the_terms()),
        ("/ChangeAccountRequest/properties/overdraft_limit", json!({"pattern": limit_of_any_currency()})),
        ("/GateChange", release_of_held_gates()),
        ("/Transaction", members_by_status()),
        ("/Transaction/properties/metadata", metadata),
        ("/PartnerReach", everything_or_names()),
    ];
    for (place, rule) in rules {
        add(schemas, place, rule);
    }
}

/// Adds members to the schema at a place.
///
/// # Panics
/// When there is none.
pub fn add(schemas: &mut Value, place: &str, rule: Value) {
    match (schemas.pointer_mut(place), rule) {
        (Some(Value::Object(schema)), Value::Object(rule)) => schema.extend(rule),
        (_, rule) => panic!("{rule} cannot be added at {place:?}"),
    }
}

/// A change of an account has at least one member that is not null.
fn one_of_the_terms() -> Value {
    let is_there = |member: &str| json!({"required": [member], "properties": {member: {"type": "string"}}});
    json!({"anyOf": [is_there("overdraft_limit"), is_there("status")]})
}

/// Only a held gate is released later.
fn release_of_held_gates() -> Value {
    json!({"oneOf": [
        {"properties": {"state": {"const": "held"}}},
        {"properties": {"state": {"const": "released"}, "release_at": {"type": "null"}}},
    ]})
}

/// The members that a transaction has in each status.
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

/// A partner reaches everything, or what is named.
fn everything_or_names() -> Value {
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

/// A member of a request that this version does not know. Numbers are bounded so that they can be kept as
/// they are.
fn unknown_member() -> Value {
    const LIMIT: i64 = 1_000_000_000_000_000_000;
    let itself = json!({"$ref": "#/components/schemas/UnknownMember"});
    json!({
        "description": "What this version does not know: kept as part of the content, 2048 bytes of all such \
            members together, nested at most 15 levels deep.",
        "anyOf": [
            {"type": ["null", "boolean", "string"]},
            {"type": "number", "exclusiveMinimum": LIMIT.wrapping_neg(), "exclusiveMaximum": LIMIT},
            {"type": "array", "items": itself},
            {"type": "object", "additionalProperties": itself},
        ],
    })
}
