//! The keys of rows. The table crate writes them into the address of a request without quoting, so
//! they hold only what needs none: letters, digits, `-` and `_`. That is asserted, not escaped.

use std::fmt;

use super::flaw::Flaw;
use crate::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, TransactionKey, UserId};

/// The row of an account within its partition.
pub(super) const ACCOUNT: &str = "account";

/// What the names of a kind of row begin with, and the first text that sorts after all of them
/// (`.` follows `-`).
pub(super) const TRANSACTIONS: (&str, &str) = ("tx-", "tx.");

/// As [`TRANSACTIONS`], of journal pages.
pub(super) const PAGES: (&str, &str) = ("jrnl-", "jrnl.");

/// The full name of a row.
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

    /// A key with a row that a stranger named; `None` when no row can have that name.
    pub(super) fn named(partition: &str, row: &str) -> Option<Self> {
        is_plain(row).then(|| Self::new(partition, row))
    }

    /// The key of a row that was read, which may have been written by anybody.
    pub(super) const fn stored(partition: String, row: String) -> Self {
        Self { partition, row }
    }

    pub(super) fn account(key: AccountKey) -> Self {
        Self::new(partition(key), ACCOUNT)
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

    /// The transaction that the row is of.
    pub(super) fn to_transaction(&self) -> Result<TransactionKey, Flaw> {
        let flaw = Flaw("RowKey");
        let name = self.row.strip_prefix(TRANSACTIONS.0).ok_or(flaw)?;
        let (partner, message) = name.split_once('-').ok_or(flaw)?;
        Ok(TransactionKey {
            account: self.to_account()?,
            partner: PartnerId::parse(partner).map_err(|_| flaw)?,
            message: message.parse::<MessageId>().map_err(|_| flaw)?,
        })
    }

    /// The account that the partition is of.
    pub(super) fn to_account(&self) -> Result<AccountKey, Flaw> {
        let flaw = Flaw("PartitionKey");
        let (user, account) = self.partition.split_once('-').ok_or(flaw)?;
        Ok(AccountKey {
            user: user.parse::<UserId>().map_err(|_| flaw)?,
            account: account.parse::<AccountId>().map_err(|_| flaw)?,
        })
    }

    /// The first sequence of the journal page that the row is.
    pub(super) fn to_first_sequence(&self) -> Result<u64, Flaw> {
        self.row.strip_prefix(PAGES.0).and_then(|digits| digits.parse().ok()).ok_or(Flaw("RowKey"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.row)
    }
}

/// The partition of everything that one commit changes.
pub(super) fn partition(key: AccountKey) -> String {
    format!("{}-{}", key.user.simple(), key.account.simple())
}

/// Where the rows of transactions begin and end, of one partner or of all. The sign behind `-` is `.`.
pub(super) fn transactions_of(partner: Option<&PartnerId>) -> (String, String) {
    let (first, end) = TRANSACTIONS;
    match partner {
        None => (first.to_owned(), end.to_owned()),
        Some(partner) => (format!("{first}{partner}-"), format!("{first}{partner}.")),
    }
}

/// The row of a transaction within the partition of its account.
pub(super) fn transaction_row(key: &TransactionKey) -> String {
    format!("{}{}-{}", TRANSACTIONS.0, key.partner, key.message.simple())
}

/// The row of a journal page within the partition of its account. Twenty digits hold every `u64`, so
/// that pages sort by their sequence.
pub(super) fn page_row(first_sequence: u64) -> String {
    format!("{}{first_sequence:020}", PAGES.0)
}

fn is_plain(key: &str) -> bool {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    plain && !key.is_empty() && key.len() <= 512
}

/// Panics when a key would need quoting: it is made of hexadecimal ids and fixed words.
fn assert_plain(key: &str) {
    assert!(is_plain(key), "{key:?} cannot be a key of a row");
}
