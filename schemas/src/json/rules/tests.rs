#![expect(clippy::arithmetic_side_effects, reason = "test code")]

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use validator::ValidationErrorsKind;

use super::*;
use crate::JSON_SCHEMA;
use crate::json::codes::{
    ACCOUNT_STATUSES, GATE_STATES, PARTNER_STATUSES, SCOPES, SIGNATURE_ALGORITHMS, TRANSACTION_TYPES,
};
use crate::json::{
    BatchItem, ChangeAccountRequest, GateChange, OpenAccountRequest, PartnerKeyRequest, PartnerRate,
    PartnerReach, PartnerSignatureKeyRequest, PartnerTerms, TransactionRequest,
};

/// Members whose bounds depend on the currency, the algorithm or the supported formats. Their rules are not those of structs.
const OTHERS: [&str; 8] = [
    "TransactionRequest/amount",
    "TransactionRequest/currency",
    "OpenAccountRequest/currency",
    "OpenAccountRequest/overdraft_limit",
    "ChangeAccountRequest/overdraft_limit",
    "PartnerTerms/credit_ceilings",
    "PartnerTerms/format",
    "PartnerSignatureKeyRequest/material",
];

/// Keywords that bound a value.
const BOUNDS: [&str; 10] = [
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "propertyNames",
    "enum",
];

/// A request: its name in the document, its validator and rules, and a valid body with every member that has a rule.
struct Request {
    name: &'static str,
    document: jsonschema::Validator,
    rules: fn(&Value) -> bool,
    body: Value,
}

impl Request {
    fn of<T: DeserializeOwned + Validate>(name: &'static str, body: Value) -> Self {
        let rules = |body: &Value| T::deserialize(body).is_ok_and(|read| read.validate().is_ok());
        Self::with(name, body, rules)
    }

    fn with(name: &'static str, body: Value, rules: fn(&Value) -> bool) -> Self {
        let schema = json!({"$ref": format!("#/$defs/{name}"), "$defs": definitions()});
        Self { name, document: jsonschema::validator_for(&schema).unwrap(), rules, body }
    }

    /// Asserts that the document and the rules agree on a body. Returns whether the body is valid.
    fn check(&self, body: &Value) -> bool {
        let is_valid = self.document.is_valid(body);
        assert_eq!((self.rules)(body), is_valid, "{}: {body}", self.name);
        is_valid
    }

    /// Asserts it for all combinations of these values of the members; `None` is an absent member.
    fn check_all(&self, within: &str, members: &[(&str, &[Option<Value>])]) {
        let mut bodies = vec![self.body.clone()];
        for (name, values) in members {
            let with = |body: &Value, value: &Option<Value>| {
                let mut body = body.clone();
                let members = body.pointer_mut(within).and_then(Value::as_object_mut).unwrap();
                match value {
                    Some(value) => drop(members.insert((*name).to_owned(), value.clone())),
                    None => drop(members.remove(*name)),
                }
                body
            };
            bodies =
                bodies.iter().flat_map(|body| values.iter().map(move |value| with(body, value))).collect();
        }
        let valid = bodies.iter().filter(|body| self.check(body)).count();
        assert!(valid > 0 && valid < bodies.len(), "{}: {valid} of {}", self.name, bodies.len());
    }
}

/// Only the parser of members distinguishes a null rate from an absent one, so the struct is created by hand.
fn are_valid_terms(body: &Value) -> bool {
    let status = body["status"].as_str().map(str::to_owned);
    let (format, credit_ceilings, signature_required) = (None, None, None);
    let read = (PartnerReach::deserialize(&body["reach"]), PartnerRate::deserialize(&body["rate"]));
    let (Ok(reach), Ok(rate)) = read else { return false };
    let rate = Some(Some(rate));
    PartnerTerms { reach, status, format, rate, credit_ceilings, signature_required }.validate().is_ok()
}

fn definitions() -> Map<String, Value> {
    let schema: Value = serde_json::from_str(JSON_SCHEMA).unwrap();
    schema["$defs"].as_object().unwrap().clone()
}

fn requests() -> [Request; 8] {
    let holder = json!({"given_name": "Ada", "family_name": "Byron"});
    let rate = json!({"per_second": 50, "burst": 200});
    let transaction =
        json!({"amount": "1.00", "currency": "EUR", "reference": "r", "metadata": {"shop": "12"}});
    let change = json!({"overdraft_limit": "1.00", "status": "open", "holder": holder});
    let gate = json!({"state": "held", "release_at": "2026-11-23T06:00:00Z", "reason": "r"});
    let terms = json!({"reach": {"everything": true}, "status": "active", "rate": rate});
    let signature_key = json!({"key_id": "1", "algorithm": "ed25519", "material": "m"});
    let item = json!({"user_id": "u", "account_id": "a", "message_id": "m", "type": "deposit"});
    [
        Request::of::<TransactionRequest>("TransactionRequest", transaction),
        Request::of::<OpenAccountRequest>("OpenAccountRequest", json!({"currency": "EUR", "holder": holder})),
        Request::of::<ChangeAccountRequest>("ChangeAccountRequest", change),
        Request::of::<GateChange>("GateChange", gate),
        Request::with("PartnerTerms", terms, are_valid_terms),
        Request::of::<PartnerKeyRequest>("PartnerKeyRequest", json!({"scopes": ["read"]})),
        Request::of::<PartnerSignatureKeyRequest>("PartnerSignatureKeyRequest", signature_key),
        Request::of::<BatchItem>("BatchItem", item),
    ]
}

/// Adds the paths of all members whose values are bounded in the document, and the numbers of these bounds.
fn bounds(
    definitions: &Map<String, Value>,
    (schema, path): (&Value, &str),
    paths: &mut BTreeSet<String>,
    numbers: &mut BTreeSet<u64>,
) {
    let referred = schema["$ref"].as_str().and_then(|path| definitions.get(path.strip_prefix("#/$defs/")?));
    let alternatives = schema["oneOf"].as_array().into_iter().flatten().filter(|it| it.get("$ref").is_some());
    referred.into_iter().chain(alternatives).for_each(|it| bounds(definitions, (it, path), paths, numbers));
    for bound in BOUNDS.iter().filter_map(|keyword| schema.get(*keyword)) {
        paths.insert(path.to_owned());
        let text = bound.to_string();
        numbers.extend(
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok()),
        );
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        bounds(definitions, (member, &format!("{path}/{name}")), paths, numbers);
    }
}

/// Adds the paths of all members of a body, including nested ones.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    for (name, member) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        paths(member, &path, found);
        found.push(path);
    }
}

/// Returns values at, below and above every bound of the rules and of the document.
fn values(numbers: &BTreeSet<u64>) -> Vec<Value> {
    let limits = [METADATA_MEMBERS_MAX, METADATA_NAME_CHARS_MAX, SCOPES_MAX, SIGNATURE_KEY_ID_CHARS_MAX];
    let limits = limits.into_iter().map(|limit| u64::try_from(limit).unwrap());
    let limits = limits.chain([LINE_CHARS_MAX, GATE_REASON_CHARS_MAX.into(), RATE_MAX.into()]);
    let near = limits.chain(numbers.iter().copied()).flat_map(|it| [it.saturating_sub(1), it, it + 1]);
    let near: BTreeSet<u64> = near.collect();
    let sizes = || near.iter().filter(|size| **size < 1000).map(|size| usize::try_from(*size).unwrap());
    let codes =
        [ACCOUNT_STATUSES, GATE_STATES, PARTNER_STATUSES, SCOPES, SIGNATURE_ALGORITHMS, TRANSACTION_TYPES];
    let texts = sizes().flat_map(|size| ["a", "é", "🦀"].map(|character| character.repeat(size)));
    let of_characters = ('\u{0}'..'\u{180}').flat_map(|it| [it.to_string(), format!("a{it}a")]);
    let of_codes =
        codes.concat().into_iter().flat_map(|it| [it.to_owned(), format!("{it}s"), it.to_uppercase()]);
    let texts: Vec<String> = texts.chain(of_characters).chain(of_codes).collect();
    let lists = sizes().map(|size| json!(vec!["read"; size]));
    let objects =
        sizes().map(|size| (0..size).map(|n| (n.to_string(), json!("v"))).collect::<Map<_, _>>().into());
    let of_texts = texts
        .iter()
        .flat_map(|text| [json!(text), json!(["read", text]), json!({ text: "v" }), json!({"a": text})]);
    near.iter().map(|number| json!(number)).chain(lists).chain(objects).chain(of_texts).collect()
}

#[test]
fn document_and_rules_accept_the_same_values_of_every_member() {
    let definitions = definitions();
    let (mut bounded, mut numbers, mut checked) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let requests = requests();
    for Request { name, .. } in &requests {
        bounds(&definitions, (&definitions[*name], name), &mut bounded, &mut numbers);
    }
    let values = values(&numbers);
    for request in &requests {
        assert!(request.check(&request.body));
        let mut members = Vec::new();
        paths(&request.body, "", &mut members);
        for member in members {
            let place = format!("{}{member}", request.name);
            if OTHERS.contains(&&*place) {
                continue;
            }
            // Other types are refused by the parser of members.
            let kind = std::mem::discriminant(request.body.pointer(&member).unwrap());
            for value in values.iter().filter(|value| std::mem::discriminant(*value) == kind) {
                let mut body = request.body.clone();
                *body.pointer_mut(&member).unwrap() = value.clone();
                request.check(&body);
            }
            checked.insert(place);
        }
    }
    let unchecked: Vec<&String> =
        bounded.iter().filter(|it| !checked.contains(*it) && !OTHERS.contains(&it.as_str())).collect();
    assert!(unchecked.is_empty(), "{unchecked:?}");
    assert!(OTHERS.iter().all(|other| bounded.contains(*other)), "{bounded:?}");
}

#[test]
fn document_and_rules_agree_about_members_that_depend_on_each_other() {
    let [_, _, change, gate, terms, ..] = requests();
    let values = |texts: &[&str]| texts.iter().map(|text| Some(json!(text))).collect::<Vec<_>>();
    let optional = |value: Value| [None, Some(Value::Null), Some(value)];
    change.check_all(
        "",
        &[
            ("overdraft_limit", &optional(json!("1.00"))),
            ("status", &optional(json!("closed"))),
            ("holder", &optional(json!({"given_name": "Ada", "family_name": "Byron"}))),
        ],
    );
    gate.check_all(
        "",
        &[
            ("state", &values(GATE_STATES)),
            ("release_at", &optional(json!("2026-11-23T06:00:00Z"))),
            ("reason", &values(&["r", ""])),
        ],
    );
    terms.check_all(
        "/reach",
        &[
            ("everything", &[None, Some(json!(true)), Some(json!(false))]),
            ("users", &[None, Some(json!([])), Some(json!(["u"]))]),
            ("accounts", &[None, Some(json!([]))]),
        ],
    );
}

#[test]
fn sizes_that_the_document_cannot_express_count_bytes() {
    let check = |bytes: usize, expected: bool| {
        let metadata = |name: &str| {
            let value = "v".repeat(bytes - name.len());
            Metadata(BTreeMap::from([(name.to_owned(), value)]))
        };
        assert_eq!(metadata("é").validate().is_ok(), expected, "{bytes}");
        let stored = format!("é{}", "x".repeat(bytes - 2));
        assert_eq!(UnknownMembers { stored: &stored }.validate().is_ok(), expected, "{bytes}");
    };
    assert_eq!(METADATA_BYTES_MAX, UNKNOWN_MEMBERS_BYTES_MAX);
    check(METADATA_BYTES_MAX - 1, true);
    check(METADATA_BYTES_MAX, true);
    check(METADATA_BYTES_MAX + 1, false);
}

#[test]
fn a_value_of_many_invalid_parts_has_few_errors() {
    let many = || (0..10_000).map(|number| format!("\u{7}{number}"));
    let metadata = Metadata(many().map(|name| (name, String::new())).collect());
    let key = json!({"scopes": many().collect::<Vec<_>>()});
    for errors in [metadata.validate(), PartnerKeyRequest::deserialize(key).unwrap().validate()] {
        let count = count_of(errors.unwrap_err());
        assert!((100..=102).contains(&count), "{count}");
    }
}

fn count_of(errors: ValidationErrors) -> usize {
    let of_kind = |errors| match errors {
        ValidationErrorsKind::Struct(errors) => count_of(*errors),
        ValidationErrorsKind::List(items) => items.into_values().map(|errors| count_of(*errors)).sum(),
        ValidationErrorsKind::Field(errors) => errors.len(),
    };
    errors.into_errors().into_values().map(of_kind).sum()
}
