//! The row of a journal page. A commit or a change of the account inserts it, and it never changes.

use serde::{Deserialize, Serialize};

use super::invalid_property::InvalidProperty;
use super::parts;
use super::rows::{corrupt, number, parse, properties};
use super::table::{Found, Properties};
use crate::adapters::page_body;
use crate::domain::ids::Nonce;
use crate::domain::journal::{JournalPage, PageHash};
use crate::ports::fault::{Cause, StoreFault};

/// Properties of a page other than its content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PageRow {
    /// The sequence of the next entry, only for a page without entries. Other pages have their first sequence in the row key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_sequence: Option<String>,
    /// Number of entries, so that a page can be skipped without decoding it.
    entries: String,
    previous_hash: String,
    hash: String,
    commit_nonce: String,
}

/// Encodes a page as the properties of its row.
pub(super) fn write(page: &JournalPage) -> Properties {
    let JournalPage { first_sequence, entries, previous_hash, hash, nonce, .. } = page;
    let mut row = properties(&PageRow {
        next_sequence: entries.is_empty().then(|| first_sequence.to_string()),
        entries: entries.len().to_string(),
        previous_hash: previous_hash.to_string(),
        hash: hash.to_string(),
        commit_nonce: nonce.simple(),
    });
    row.extend(parts::write(page_body::encode(page).as_bytes()));
    row
}

/// Returns the last sequence of a page without decoding its entries.
pub(super) fn last_sequence(found: &Found, doing: &'static str) -> Result<u64, StoreFault> {
    let row: PageRow = parse(found, doing)?;
    let last = || {
        let count: u64 = number(&row.entries, "Entries")?;
        let after = found.key.to_first_sequence()?.checked_add(count).ok_or(InvalidProperty("Entries"))?;
        after.checked_sub(1).ok_or(InvalidProperty("Entries"))
    };
    last().map_err(|invalid| corrupt(found, doing, invalid))
}

/// Decodes a page and checks its hash.
pub(super) fn read(found: &Found, doing: &'static str) -> Result<JournalPage, StoreFault> {
    let page = read_unchecked(found, doing)?;
    page.check().map_err(|invalid| corrupt(found, doing, invalid))?;
    Ok(page)
}

/// Decodes a page without checking its hash.
pub(super) fn read_unchecked(found: &Found, doing: &'static str) -> Result<JournalPage, StoreFault> {
    let row: PageRow = parse(found, doing)?;
    assemble(found, &row).map_err(|cause| corrupt(found, doing, cause))
}

fn assemble(found: &Found, row: &PageRow) -> Result<JournalPage, Cause> {
    let body = parts::read(&found.properties)?;
    let body = std::str::from_utf8(&body)?;
    let (version, entries, decided) = page_body::decode(body)?;
    let first_sequence = match &row.next_sequence {
        Some(next) => number(next, "NextSequence")?,
        None => found.key.to_first_sequence()?,
    };
    Ok(JournalPage {
        account: found.key.to_account()?,
        version,
        first_sequence,
        entries,
        decided,
        previous_hash: PageHash::parse(&row.previous_hash).ok_or(InvalidProperty("PreviousHash"))?,
        hash: PageHash::parse(&row.hash).ok_or(InvalidProperty("Hash"))?,
        nonce: row.commit_nonce.parse::<Nonce>().map_err(|_| InvalidProperty("CommitNonce"))?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;
    use uuid::Uuid;

    use super::*;
    use crate::adapters::azure::keys::{Key, page_row, partition};
    use crate::domain::account::{Account, Revision};
    use crate::domain::ids::{AccountId, AccountKey, MessageId, OrderNumber, PartnerId, UserId};
    use crate::domain::instruction::{Details, TransactionKind, UnknownMembers};
    use crate::domain::journal::{Entry, PAGE_ENTRIES_MAX};
    use crate::domain::money::{Amount, Balance, Currency, OverdraftLimit};
    use crate::domain::time::Timestamp;

    /// Returns a page of maximum size. Each text has its maximum length, in the characters with the longest encoding.
    fn largest() -> JournalPage {
        let metadata: BTreeMap<String, String> =
            (10..30).map(|number| (number.to_string(), "\"".repeat(100))).collect();
        let unknown = BTreeMap::from([("x".to_owned(), Value::from("\\".repeat(1020)))]);
        let unknown = UnknownMembers::Members(unknown);
        let details = Details::new(Some("\u{1d11e}".repeat(140)), metadata, &unknown);
        let currency = Currency::parse("EUR").unwrap();
        let entry = |(sequence, withdrawn): (u64, i64)| Entry {
            sequence,
            partner: PartnerId::parse(&"p".repeat(32)).unwrap(),
            message: MessageId::from_uuid(Uuid::from_u128(sequence.into())),
            kind: TransactionKind::Withdrawal,
            amount: Amount::try_new(1, currency).unwrap(),
            details: details.clone(),
            order_number: OrderNumber::from_counter(OrderNumber::COUNTER_MAX),
            balance_after: Balance::try_new(withdrawn.saturating_neg(), currency).unwrap(),
            accepted_at: Timestamp::from_unix_ms(i64::MAX),
            posted_at: Timestamp::from_unix_ms(i64::MAX),
        };
        let entries = (18_000_000_000_000_000_000..).zip(1..).take(PAGE_ENTRIES_MAX).map(entry).collect();
        let account = AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(1)),
            account: AccountId::from_uuid(Uuid::from_u128(2)),
        };
        let limit = OverdraftLimit::none(currency);
        let opened = Account::open(account, currency, limit, None, Timestamp::from_unix_ms(0));
        let after = Account { version: u64::MAX, ..opened };
        let place = (PageHash::GENESIS, Nonce::from_uuid(Uuid::from_u128(3)));
        JournalPage::seal(&after, entries, Vec::new(), place)
    }

    fn found(page: &JournalPage) -> Found {
        let key = Key::new(partition(page.account), page_row(page.first_sequence));
        Found { key, revision: Revision::new("1"), properties: write(page) }
    }

    #[test]
    fn the_largest_page_fits_one_row() {
        let page = largest();
        let found = found(&page);
        // Azure counts names and texts as UTF-16, and binary content as bytes.
        let bytes: usize = found
            .properties
            .iter()
            .filter(|(name, _)| !name.contains('@'))
            .map(|(name, value)| {
                let text = value.as_str().unwrap();
                let binary = found.properties.contains_key(&format!("{name}@odata.type"));
                let name_and_head = name.len().saturating_mul(2).saturating_add(12);
                // Base64 is longer than its content, so this overestimates the size.
                let content = if binary {
                    text.len().div_ceil(4).saturating_mul(3)
                } else {
                    text.len().saturating_mul(2)
                };
                name_and_head.saturating_add(content)
            })
            .sum();
        assert!(bytes < 1_048_576, "{bytes} bytes");
        assert_eq!(read(&found, "testing").unwrap(), page);
        assert_eq!(last_sequence(&found, "testing").unwrap(), page.last_sequence());
    }

    #[test]
    fn a_changed_page_is_corrupt() {
        let mut found = found(&largest());
        found.properties.insert("PreviousHash".to_owned(), Value::from("11".repeat(32)));
        assert!(matches!(read(&found, "testing"), Err(StoreFault::Corrupt { .. })));
    }
}
