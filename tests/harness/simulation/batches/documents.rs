//! The documents that clients send.

use std::collections::BTreeMap;

use postonce_shared::batches::document::{DocumentWriter, Part, Summary};
use postonce_shared::batches::items::InvalidItem;
use postonce_shared::domain::batch::Item;
use postonce_shared::testing::prelude::*;
use serde_json::Value;

/// The items of a batch by line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sent {
    /// The items that are valid in form.
    pub items: BTreeMap<u32, Item>,
    /// The items that are invalid in form.
    pub invalid: BTreeMap<u32, InvalidItem>,
}

impl Sent {
    fn lines(&self) -> u32 {
        u32::try_from(self.items.len().saturating_add(self.invalid.len())).unwrap_or(u32::MAX)
    }

    /// Divides the document as a web process does.
    pub fn divide(&self) -> (Vec<Part>, Summary) {
        let (mut writer, mut parts) = (DocumentWriter::default(), Vec::new());
        for line in 1..=self.lines() {
            parts.extend(self.items.get(&line).and_then(|item| writer.add(item)));
            let invalid = self.invalid.get(&line);
            parts.extend(invalid.and_then(|item| writer.add_invalid(item.clone(), item.reason.as_bytes())));
        }
        let (rest, summary) = writer.finish();
        parts.extend(rest);
        (parts, summary)
    }
}

/// Returns the transaction key of an item.
pub fn key_of(batch: &BatchKey, item: &Item) -> TransactionKey {
    TransactionKey { account: item.account, partner: batch.partner.clone(), message: item.message }
}

/// Number of items, and sums of their amounts by currency and kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    count: u64,
    sums: BTreeMap<(String, String), u128>,
}

impl Sums {
    /// Returns the sums of items.
    pub fn of<'a>(items: impl IntoIterator<Item = &'a Item>) -> Self {
        let mut sums = Self::default();
        items.into_iter().for_each(|item| sums.add(item));
        sums
    }

    /// Adds an item.
    pub fn add(&mut self, item: &Item) {
        self.count = self.count.saturating_add(1);
        let is_deposit = item.instruction.kind == TransactionKind::Deposit;
        let kind = if is_deposit { "deposit" } else { "withdrawal" };
        let currency = item.instruction.amount.currency().code();
        let sum = self.sums.entry((currency.to_owned(), kind.to_owned())).or_default();
        let cents = u128::try_from(item.instruction.amount.minor_units()).unwrap_or(0);
        *sum = sum.saturating_add(cents);
    }

    /// Parses the stored form, without the decoder of the bank.
    pub fn read(row: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = row["sums"].as_array().cloned().unwrap_or_default();
        let sums = rows.iter().map(|it| ((text(&it[0]), text(&it[1])), text(&it[2]).parse().unwrap_or(0)));
        Self { count: row["count"].as_u64().unwrap_or(0), sums: sums.collect() }
    }

    /// Parses the stored form of sums by status.
    pub fn read_by_status(row: &Value) -> BTreeMap<String, Self> {
        let rows = row.as_object().cloned().unwrap_or_default();
        let rows = rows.iter().map(|(status, row)| (status.clone(), Self::read(row)));
        rows.filter(|(_, sums)| sums.count > 0).collect()
    }
}
