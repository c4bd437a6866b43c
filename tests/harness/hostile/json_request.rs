//! The JSON bodies of the API, and the fingerprint that distinguishes a repeated request from a different one.

use std::collections::BTreeMap;

use actix_web::web::Bytes;
use postonce_shared::messaging::xml::XmlLimits;
use postonce_shared::testing::prelude::*;
use postonce_web::api::translate::{self, InboundDocument};
use postonce_web::formats::json::Json;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::refusal;

/// Returns a request document with a JSON body.
pub(super) fn document(body: &[u8]) -> InboundDocument {
    InboundDocument::of(&Json, Bytes::copy_from_slice(body), XmlLimits::default())
}

/// Parses any bytes as every kind of body.
pub fn check(input: &[u8]) {
    match translate::instruction(TransactionKind::Deposit, &document(input)) {
        Ok(instruction) => check_instruction(input, &instruction),
        Err(error) => drop(refusal::check(&error)),
    }
    match translate::account_terms(&document(input)) {
        Ok(terms) => assert_eq!(terms.overdraft_limit.currency(), terms.currency),
        Err(error) => drop(refusal::check(&error)),
    }
    match translate::account_change(&document(input)) {
        Ok(change) => assert!(!change.members().is_empty()),
        Err(error) => drop(refusal::check(&error)),
    }
    let now = Timestamp::from_unix_ms(1_795_248_000_000);
    match translate::gate_change(&document(input), now) {
        Ok((state, reason)) => {
            if let GateState::Held { release_at: Some(at) } = state {
                assert!(at > now);
            }
            assert!(reason.is_none_or(|reason| !reason.is_empty()));
        }
        Err(error) => drop(refusal::check(&error)),
    }
}

fn check_instruction(body: &[u8], instruction: &Instruction) {
    assert_eq!(read(&written(instruction)), Some(instruction.clone()), "written and read back");
    let reordered = reordered(body);
    assert_eq!(read(&reordered), Some(instruction.clone()), "in another order: {reordered}");
    assert!(instruction.matches(&instruction.fingerprint()));
    for other in changed(instruction) {
        assert!(
            !other.matches(&instruction.fingerprint()),
            "{other:?} has the fingerprint of {instruction:?}"
        );
    }
}

fn read(body: &str) -> Option<Instruction> {
    translate::instruction(TransactionKind::Deposit, &document(body.as_bytes())).ok()
}

/// Returns the body that a partner would write for an instruction, with unknown members last.
pub(super) fn written(instruction: &Instruction) -> String {
    let Instruction { kind: _, amount, details } = instruction;
    let mut members = Map::new();
    let mut insert = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    insert("amount", amount.to_string().into());
    insert("currency", amount.currency().code().into());
    if let Some(reference) = details.reference() {
        insert("reference", reference.into());
    }
    if !details.metadata().is_empty() {
        let metadata = details.metadata().iter().map(|(name, value)| (name.clone(), value.clone().into()));
        insert("metadata", Value::Object(metadata.collect()));
    }
    let known = Value::Object(members).to_string();
    match details.unknown_members().strip_prefix('{') {
        None => known,
        // Inserted as text, because the notation of a number is part of the content.
        Some(rest) => format!("{},{rest}", known.strip_suffix('}').unwrap_or_default()),
    }
}

/// Returns the same members in reverse order, with white space.
pub(super) fn reordered(body: &[u8]) -> String {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).expect("it was read before");
    let members = members.iter().rev().map(|(name, value)| {
        let name: String = name.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        format!("\n \"{name}\" :\t{value}\r")
    });
    format!(" {{{}}} ", members.collect::<Vec<_>>().join(","))
}

/// Returns instructions that differ from this one in one respect each.
pub(super) fn changed(instruction: &Instruction) -> Vec<Instruction> {
    let Instruction { kind, amount, details } = instruction;
    let (reference, metadata, unknown) =
        (details.reference().map(str::to_owned), details.metadata().clone(), details.unknown_members());
    let with = |reference: Option<String>, metadata: BTreeMap<String, String>, unknown: &str| Instruction {
        details: Details::from_stored(reference, metadata, unknown.to_owned()),
        ..instruction.clone()
    };
    let mut all = vec![Instruction {
        kind: match kind {
            TransactionKind::Deposit => TransactionKind::Withdrawal,
            TransactionKind::Withdrawal => TransactionKind::Deposit,
        },
        ..instruction.clone()
    }];
    for difference in [-1, 1] {
        let minor_units = amount.minor_units().saturating_add(difference);
        let other = Amount::try_new(minor_units, amount.currency());
        all.extend(other.map(|amount| Instruction { amount, ..instruction.clone() }));
    }
    all.push(with(Some(format!("{}x", reference.clone().unwrap_or_default())), metadata.clone(), unknown));
    if reference.is_some() {
        all.push(with(None, metadata.clone(), unknown));
    }
    let mut more = metadata.clone();
    more.insert(
        metadata.keys().next_back().map_or_else(String::new, |last| format!("{last}x")),
        String::new(),
    );
    all.push(with(reference.clone(), more, unknown));
    if let Some((name, value)) = metadata.first_key_value() {
        // The same characters, divided differently between name and value.
        let mut cut = metadata.clone();
        cut.remove(name);
        cut.insert(format!("{name}{value}x"), String::new());
        all.push(with(reference.clone(), cut, unknown));
    }
    all.push(with(reference, metadata, &format!("{unknown} ")));
    all
}
