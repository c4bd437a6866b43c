//! The bodies of the API in the canonical XML format.

use actix_web::web::Bytes;
use postonce_shared::domain::instruction::{Instruction, TransactionKind, UnknownMembers};
use postonce_shared::messaging::xml::{self as trees, XmlLimits};
use postonce_web::api::translate::{self, InboundDocument};
use postonce_web::error::ApiError;
use postonce_web::formats::table::Tables;
use postonce_web::formats::{Shape, xml};
use serde_json::{Map, Value};

use super::{json_request, refusal};

/// Parses any bytes as every kind of body.
pub fn check(input: &[u8]) {
    check_as(&xml::CANONICAL, input);
}

/// Parses any bytes as every kind of body of one format.
pub(super) fn check_as(format: &'static Tables, input: &[u8]) {
    for kind in [TransactionKind::Deposit, TransactionKind::Withdrawal] {
        match instruction(format, kind, input) {
            Ok(instruction) => check_instruction(format, &instruction),
            Err(error) => drop(refusal::check(&error)),
        }
    }
    match translate::account_terms(&document(format, input)) {
        Ok(terms) => assert_eq!(terms.overdraft_limit.currency(), terms.currency),
        Err(error) => drop(refusal::check(&error)),
    }
    match translate::account_change(&document(format, input)) {
        Ok(change) => assert!(!change.members().is_empty()),
        Err(error) => drop(refusal::check(&error)),
    }
}

fn document(format: &'static Tables, input: &[u8]) -> InboundDocument {
    InboundDocument::of(format, Bytes::copy_from_slice(input), XmlLimits::default())
}

fn instruction(
    format: &'static Tables,
    kind: TransactionKind,
    input: &[u8],
) -> Result<Instruction, ApiError> {
    translate::instruction(kind, &document(format, input))
}

/// Checks that an instruction can be written and read back, and that it equals the one in JSON.
fn check_instruction(format: &'static Tables, instruction: &Instruction) {
    let written = written(format, instruction);
    let again = self::instruction(format, instruction.kind, written.as_bytes());
    let again = again.unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(&again, instruction, "{written}");
    assert!(again.matches(&instruction.fingerprint()));
    for other in json_request::changed(instruction) {
        assert!(
            !other.matches(&instruction.fingerprint()),
            "{other:?} has the fingerprint of {instruction:?}"
        );
    }
    if instruction.details.unknown_members().is_empty() {
        let json = json_request::written(instruction);
        let in_json = translate::instruction(instruction.kind, &json_request::document(json.as_bytes()));
        assert_eq!(in_json.ok().as_ref(), Some(instruction), "{json}");
    }
}

/// Returns the body that a partner would write for an instruction.
pub(super) fn written(format: &Tables, instruction: &Instruction) -> String {
    let Instruction { kind, amount, details } = instruction;
    let mut members = Map::new();
    let mut insert = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    insert("type", kind.code().into());
    insert("amount", amount.to_string().into());
    insert("currency", amount.currency().code().into());
    insert("reference", details.reference().into());
    let metadata = details.metadata().iter().map(|(name, value)| (name.clone(), value.clone().into()));
    insert("metadata", Value::Object(metadata.collect()));
    if let UnknownMembers::Elements(elements) = UnknownMembers::of_canonical(details.unknown_members()) {
        insert("", elements.into());
    }
    trees::write(&format.of(Shape::Submission(*kind)).write(&members))
}
