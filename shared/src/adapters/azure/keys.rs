//! The keys of rows. The table crate writes keys into URLs without percent-encoding. So keys consist only of characters
//! that need no encoding: letters, digits, `-` and `_`. This is asserted.

use std::fmt;

use super::invalid_property::InvalidProperty;
use crate::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, TransactionKey, UserId};
use crate::domain::journal::JournalPage;

/// The row key of an account within its partition.
pub(super) const ACCOUNT: &str = "account";

/// Prefix of the row keys of transactions, and the first text that sorts after all of these keys (`.` follows `-`).
pub(super) const TRANSACTIONS: (&str, &str) = ("tx-", "tx.");

/// The corresponding range of journal pages with entries.
pub(super) const PAGES: (&str, &str) = ("jrnl-", "jrnl.");

/// The corresponding range of journal pages without entries.
pub(super) const DECISION_PAGES: (&str, &str) = ("dcsn-", "dcsn.");

/// The key of a row, which consists of a partition key and a row key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    partition: String,
    row: String,
}

impl Key {
    pub(super) fn new(partition: impl Into<String>, row: impl Into<String>) -> Self {
        let (partition, row) = (partition.into(), row.into());
        assert_plain(&partition);
        assert_plain(&row);
        Self { partition, row }
    }

    /// Returns a key whose row key comes from a request, or `None` if no row can have it.
    pub(super) fn named(partition: &str, row: &str) -> Option<Self> {
        is_plain(row).then(|| Self::new(partition, row))
    }

    /// Returns the key of a row that was read. It is not checked, because another program may have written the row.
    pub(super) const fn stored(partition: String, row: String) -> Self {
        Self { partition, row }
    }

    pub(super) fn account(key: AccountKey) -> Self {
        Self::new(partition(key), ACCOUNT)
    }

    /// Returns the key of a page, from its first sequence, or from its version if it has no entries. Every `u64` fits
    /// into twenty digits, so pages sort by number.
    pub(super) fn page(page: &JournalPage) -> Self {
        let row = if page.entries.is_empty() {
            decision_page_row(page.version)
        } else {
            page_row(page.first_sequence)
        };
        Self::new(partition(page.account), row)
    }

    pub(super) fn transaction(key: &TransactionKey) -> Self {
        Self::new(partition(key.account), transaction_row(key))
    }

    pub(super) fn partition(&self) -> &str {
        &self.partition
    }

    pub(super) fn row(&self) -> &str {
        &self.row
    }

    /// Parses the key of a transaction row.
    pub(super) fn to_transaction(&self) -> Result<TransactionKey, InvalidProperty> {
        let invalid = InvalidProperty("RowKey");
        let name = self.row.strip_prefix(TRANSACTIONS.0).ok_or(invalid)?;
        let (partner, message) = name.split_once('-').ok_or(invalid)?;
        Ok(TransactionKey {
            account: self.to_account()?,
            partner: PartnerId::parse(partner).map_err(|_| invalid)?,
            message: message.parse::<MessageId>().map_err(|_| invalid)?,
        })
    }

    /// Parses the partition key as an account.
    pub(super) fn to_account(&self) -> Result<AccountKey, InvalidProperty> {
        let invalid = InvalidProperty("PartitionKey");
        let (user, account) = self.partition.split_once('-').ok_or(invalid)?;
        Ok(AccountKey {
            user: user.parse::<UserId>().map_err(|_| invalid)?,
            account: account.parse::<AccountId>().map_err(|_| invalid)?,
        })
    }

    /// Parses the row key of a journal page with entries, and returns its first sequence.
    pub(super) fn to_first_sequence(&self) -> Result<u64, InvalidProperty> {
        self.number_after(PAGES.0)
    }

    /// Parses the row key of a journal page without entries, and returns its version.
    pub(super) fn to_version(&self) -> Result<u64, InvalidProperty> {
        self.number_after(DECISION_PAGES.0)
    }

    fn number_after(&self, prefix: &str) -> Result<u64, InvalidProperty> {
        self.row.strip_prefix(prefix).and_then(|digits| digits.parse().ok()).ok_or(InvalidProperty("RowKey"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.row)
    }
}

/// Returns the partition key of all rows of an account. They share a partition, so that one commit can change them.
pub(super) fn partition(key: AccountKey) -> String {
    format!("{}-{}", key.user.simple(), key.account.simple())
}

/// Returns the range of the row keys of transactions, of one partner or of all (`.` follows `-`).
pub(super) fn transactions_of(partner: Option<&PartnerId>) -> (String, String) {
    let (first, end) = TRANSACTIONS;
    match partner {
        None => (first.to_owned(), end.to_owned()),
        Some(partner) => (format!("{first}{partner}-"), format!("{first}{partner}.")),
    }
}

/// Returns the row key of a transaction within the partition of its account.
pub(super) fn transaction_row(key: &TransactionKey) -> String {
    format!("{}{}-{}", TRANSACTIONS.0, key.partner, key.message.simple())
}

/// Returns the row key of a journal page with entries within the partition of its account.
pub(super) fn page_row(first_sequence: u64) -> String {
    format!("{}{first_sequence:020}", PAGES.0)
}

/// Returns the row key of a journal page without entries within the partition of its account.
pub(super) fn decision_page_row(version: u64) -> String {
    format!("{}{version:020}", DECISION_PAGES.0)
}

fn is_plain(key: &str) -> bool {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    plain && !key.is_empty() && key.len() <= 512
}

/// Panics if a key would need percent-encoding. Keys consist of hexadecimal ids and fixed words.
fn assert_plain(key: &str) {
    assert!(is_plain(key), "{key:?} cannot be a key of a row");
}
