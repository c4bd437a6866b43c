//! The JSON form: one object, or an array of objects.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::Part;
use super::members::{Member, Members, Role};
use crate::domain::instruction::UnknownMembers;
use crate::domain::json_number::JsonNumber;
use crate::messaging::json::{self, Object};
use crate::messaging::xml;

/// Reads the orders of a document.
///
/// # Errors
/// The violated rule, if the document as a whole cannot be read.
pub(super) fn read(text: &str) -> Result<Vec<Part>, String> {
    if text.starts_with('{') {
        return Ok(vec![Part { text: None, members: members_of(text) }]);
    }
    let rows: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|error| format!("is not a valid JSON array: {error}"))?;
    let part = |row: &RawValue| Part { text: Some(row.get().to_owned()), members: members_of(row.get()) };
    Ok(rows.into_iter().map(part).collect())
}

fn members_of(row: &str) -> Members {
    let mut members = Members::default();
    let Object { values, inexact } = match json::read(row.as_bytes()) {
        Ok(object) => object,
        Err(error) => {
            members.refuse_whole(error.to_string());
            return members;
        }
    };
    for name in &inexact {
        members.refuse(&xml::shown(name), "contains a number that cannot be stored exactly");
    }
    let mut unknown = BTreeMap::new();
    for (name, value) in values {
        match members.role(&name) {
            Role::Known(member) => set(&mut members, member, value),
            Role::Unknown => drop(unknown.insert(name, value)),
            Role::Ignored => {}
        }
        if !members.continues() {
            return members;
        }
    }
    members.unknown = UnknownMembers::Members(unknown);
    members
}

fn set(members: &mut Members, member: Member, value: Value) {
    match (member, value) {
        (_, Value::String(text)) => members.set(member, text.trim_ascii().to_owned()),
        (Member::Amount, Value::Number(number)) => {
            members.set(member, JsonNumber::read(&number.to_string()).canonical());
        }
        (Member::Amount, _) => members.refuse_member(member, "must be a number or a string"),
        // Without a currency, the order is in that of the account.
        (Member::Currency, Value::Null) => {}
        _ => members.refuse_member(member, "must be a string"),
    }
}
