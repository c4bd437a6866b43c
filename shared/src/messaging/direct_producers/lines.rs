//! The text form: `userid|accountid|transactionid|amount`, one order in each line. Empty lines are ignored.

use super::Part;
use super::members::{Member, Members};

const ORDER: [Member; 4] = [Member::UserId, Member::AccountId, Member::TransactionId, Member::Amount];

/// Reads the orders of a text.
pub(super) fn read(text: &str) -> Vec<Part> {
    let lines = text.lines().map(str::trim_ascii).filter(|line| !line.is_empty());
    lines.map(|line| Part { text: Some(line.to_owned()), members: split(line) }).collect()
}

fn split(line: &str) -> Members {
    let mut members = Members::default();
    // One field more than reported is enough to detect the error.
    let fields: Vec<&str> = line.splitn(6, '|').collect();
    if fields.len() == ORDER.len() {
        ORDER.into_iter().zip(fields).for_each(|(member, field)| members.set(member, field.to_owned()));
        return members;
    }
    let count = match fields.len() {
        count @ 0..=5 => count.to_string(),
        _ => "more than 5".to_owned(),
    };
    members.refuse_whole(format!("must be userid|accountid|transactionid|amount, but has {count} fields"));
    members
}
