//! What the attributes of `utoipa` cannot say, so that a schema takes what the program takes, and refuses
//! what it refuses.
//!
//! Two rules are beyond a schema and stand in the descriptions: how many bytes `metadata` and unknown
//! members may have together, and how exact a number among the latter is kept.

use serde_json::{Map, Value, json};

/// The currencies that money can be kept in, by their number of decimals (ISO 4217).
pub const DECIMALS_OF_CURRENCIES: &[(usize, &str)] = &[
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    (
        2,
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD \
         CDF CHE CHF CHW CNY COP COU CRC CUC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS \
         GIP GMD GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD \
         LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN \
         PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL \
         THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG ZWL",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

/// Most digits of an amount or a limit, decimals included.
const DIGITS_MAX: usize = 18;
/// Text without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001F\u007F-\u009F]*$";
const CURRENCY: &str = "^[A-Z]{3}$";
/// Money as it is told.
const SUM: &str = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$";
/// Money as it is told, where it can be less than nothing.
const SIGNED_SUM: &str = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$";

/// What a key may allow.
const SCOPES: &[&str] = &["deposit", "withdraw", "read", "accounts", "metrics", "admin"];

/// The structs that answers are made of. In them, a member that may be left out is never null.
const ANSWERS: &[&str] = &[
    "Account",
    "AccountPage",
    "DeadLetter",
    "DeadLetterPage",
    "Gate",
    "GateChanged",
    "GateListener",
    "Health",
    "NewPartnerKey",
    "OrderNumberRange",
    "OrderNumbers",
    "Partner",
    "PartnerAccount",
    "PartnerKey",
    "PartnerPage",
    "PartnerReach",
    "PartnerSignatureKey",
    "Problem",
    "ProcessCost",
    "Queue",
    "QueueList",
    "Resolution",
    "Scale",
    "StorageOperation",
    "StorageOperations",
    "Transaction",
    "TransactionPage",
    "Violation",
];

/// Makes the schemas of the OpenAPI document exact. They are given by name.
///
/// # Panics
/// When one is missing: the list here is then not up to date.
pub fn sharpen(schemas: &mut Map<String, Value>) {
    schemas.insert("UnknownMember".to_owned(), unknown_member());
    for (schema, rules) in whole_schemas().into_iter().chain(partners()) {
        add(schemas.get_mut(schema).unwrap_or_else(|| panic!("no schema {schema}")), rules);
    }
    for (schema, members, rules) in members() {
        for member in members {
            let found =
                schemas.get_mut(schema).and_then(|it| it.pointer_mut(&format!("/properties/{member}")));
            add(found.unwrap_or_else(|| panic!("no member {member} in {schema}")), rules.clone());
        }
    }
    for schema in ANSWERS {
        refuse_null(schemas.get_mut(*schema).unwrap_or_else(|| panic!("no schema {schema}")));
    }
}

/// Rules for whole bodies, by schema.
fn whole_schemas() -> [(&'static str, Value); 6] {
    let closed = || json!({"additionalProperties": false});
    let open = || json!({"additionalProperties": {"$ref": "#/components/schemas/UnknownMember"}});
    let one_is_there =
        |member: &str| json!({"required": [member], "properties": {member: {"type": "string"}}});
    [
        ("TransactionRequest", merged(by_currency("amount", amount), open())),
        ("OpenAccountRequest", merged(by_currency("overdraft_limit", limit), closed())),
        (
            "ChangeAccountRequest",
            merged(json!({"anyOf": [one_is_there("overdraft_limit"), one_is_there("status")]}), closed()),
        ),
        ("Holder", closed()),
        (
            "GateChange",
            merged(
                json!({"oneOf": [
                    {"properties": {"state": {"const": "held"}}},
                    {"properties": {"state": {"const": "released"}, "release_at": {"type": "null"}}},
                ]}),
                closed(),
            ),
        ),
        (
            "Transaction",
            json!({"oneOf": [
                {"properties": {"status": {"const": "accepted"}}},
                {
                    "properties": {"status": {"const": "posted"}},
                    "required": ["order_number", "sequence", "balance_after", "posted_at"],
                },
                {"properties": {"status": {"const": "rejected"}}, "required": ["reason", "rejected_at"]},
            ]}),
        ),
    ]
}

/// Rules for what operators say about partners, by schema.
fn partners() -> [(&'static str, Value); 6] {
    let closed = || json!({"additionalProperties": false});
    let named = json!({"anyOf": [{"required": ["users"]}, {"required": ["accounts"]}]});
    let reach = json!({"oneOf": [
        {
            "required": ["everything"],
            "properties": {"everything": {"const": true}, "users": false, "accounts": false},
        },
        merged(json!({"properties": {"everything": {"const": false}}}), named),
    ]});
    [
        ("PartnerTerms", closed()),
        ("PartnerReach", merged(reach, closed())),
        ("PartnerAccount", closed()),
        ("PartnerRate", closed()),
        ("PartnerKeyRequest", closed()),
        ("PartnerSignatureKeyRequest", closed()),
    ]
}

/// Rules for members, by schema.
fn members() -> Vec<(&'static str, &'static [&'static str], Value)> {
    let pattern = |pattern: &str| json!({"pattern": pattern});
    let metadata = json!({
        "maxProperties": 20,
        "propertyNames": {"type": "string", "minLength": 1, "maxLength": 40, "pattern": PRINTABLE},
        "additionalProperties": {"type": "string", "pattern": PRINTABLE},
    });
    vec![
        ("TransactionRequest", &["currency"], pattern(CURRENCY)),
        ("TransactionRequest", &["reference"], pattern(PRINTABLE)),
        ("TransactionRequest", &["metadata"], metadata.clone()),
        ("OpenAccountRequest", &["currency"], pattern(CURRENCY)),
        ("ChangeAccountRequest", &["overdraft_limit"], json!({"pattern": limit_of_any_currency()})),
        ("Holder", &["given_name", "family_name"], pattern(PRINTABLE)),
        ("Account", &["currency"], pattern(CURRENCY)),
        ("Account", &["balance"], pattern(SIGNED_SUM)),
        ("Account", &["available", "overdraft_limit"], pattern(SUM)),
        ("Transaction", &["currency"], pattern(CURRENCY)),
        ("Transaction", &["amount"], pattern(SUM)),
        ("Transaction", &["balance_after"], pattern(SIGNED_SUM)),
        ("Transaction", &["order_number"], pattern("^[0-9]+$")),
        ("Transaction", &["sequence"], json!({"minimum": 1})),
        ("Transaction", &["reference"], json!({"minLength": 1, "maxLength": 140})),
        ("Transaction", &["metadata"], metadata),
        ("PartnerTerms", &["status"], json!({"type": "string"})),
        ("PartnerTerms", &["signature_required"], json!({"type": "boolean"})),
        ("PartnerTerms", &["format"], json!({"enum": ["json", "xml", "wwi", null]})),
        ("PartnerReach", &["users"], json!({"items": {"type": "string", "format": "uuid"}})),
        ("PartnerKeyRequest", &["scopes"], json!({"items": {"type": "string", "enum": SCOPES}})),
        ("PartnerSignatureKeyRequest", &["material"], json!({"minLength": 1})),
        ("Problem", &["type"], pattern("^urn:postonce:problem:[a-z_]+$")),
        ("Problem", &["code"], pattern("^[a-z_]+$")),
        ("Problem", &["status"], json!({"minimum": 400, "maximum": 599})),
    ]
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

/// The rules of a sum of money for each number of decimals, with the currencies that have it.
fn by_currency(member: &str, pattern: impl Fn(usize) -> String) -> Value {
    let groups = DECIMALS_OF_CURRENCIES.iter().map(|(decimals, codes)| {
        let codes: Vec<&str> = codes.split_whitespace().collect();
        json!({"properties": {"currency": {"enum": codes}, member: {"pattern": pattern(*decimals)}}})
    });
    json!({"oneOf": groups.collect::<Vec<_>>()})
}

/// A number greater than zero with at most that many decimals.
fn amount(decimals: usize) -> String {
    let major_max = DIGITS_MAX.saturating_sub(decimals).saturating_sub(1);
    let whole = format!("[1-9][0-9]{{0,{major_max}}}");
    if decimals == 0 {
        return format!("^{whole}$");
    }
    // Below one, a digit that is not zero has to come within the decimals.
    let fraction = |zeros: usize| {
        let rest = decimals.saturating_sub(zeros).saturating_sub(1);
        format!("{}[1-9][0-9]{{0,{rest}}}", "0".repeat(zeros))
    };
    let fractions: Vec<String> = (0..decimals).map(fraction).collect();
    format!("^({whole}(\\.[0-9]{{1,{decimals}}})?|0\\.({}))$", fractions.join("|"))
}

/// A number with at most that many decimals; zero is one.
fn limit(decimals: usize) -> String {
    let major_max = DIGITS_MAX.saturating_sub(decimals).saturating_sub(1);
    let fraction = if decimals == 0 { String::new() } else { format!("(\\.[0-9]{{1,{decimals}}})?") };
    format!("^(0|[1-9][0-9]{{0,{major_max}}}){fraction}$")
}

fn limit_of_any_currency() -> String {
    let limits: Vec<String> = DECIMALS_OF_CURRENCIES.iter().map(|(decimals, _)| limit(*decimals)).collect();
    limits.join("|")
}

fn merged(mut one: Value, other: Value) -> Value {
    add(&mut one, other);
    one
}

fn add(schema: &mut Value, rules: Value) {
    if let (Value::Object(schema), Value::Object(rules)) = (schema, rules) {
        schema.extend(rules);
    }
}

/// An answer leaves out what it does not know; only a member that is always there may be null.
fn refuse_null(schema: &mut Value) {
    let required: Vec<String> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let members = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, member) in members.into_iter().flatten() {
        if !required.contains(name) {
            without_null(member);
        }
    }
}

fn without_null(member: &mut Value) {
    if let Some(types) = member.get_mut("type")
        && let Some([single, null]) = types.as_array().map(Vec::as_slice)
        && null == "null"
    {
        *types = single.clone();
    }
    // A struct that may be absent is told as one of null and itself.
    if let Some(alternatives) = member.get_mut("oneOf").and_then(Value::as_array_mut) {
        alternatives.retain(|alternative| alternative.get("type") != Some(&json!("null")));
    }
}
