//! Converts domain values to columns and back where SQLite has no matching type.

use rusqlite::Row;
use uuid::Uuid;

use super::fault::SqlFault;
use crate::domain::account::Revision;
use crate::domain::ids::{AccountId, AccountKey, UserId};
use crate::domain::instruction::Fingerprint;
use crate::domain::journal::PageHash;
use crate::domain::money::Currency;
use crate::domain::time::Timestamp;
use crate::ports::payload_store::is_name;

/// Converts a counter to SQLite's signed 64-bit integer. No counter of the bank exceeds its range.
pub(super) fn signed(count: u64) -> Result<i64, SqlFault> {
    i64::try_from(count).map_err(|_| SqlFault::Refused(format!("{count} is more than a column holds")))
}

/// Converts a stored counter back.
pub(super) fn unsigned(stored: i64, column: &'static str) -> Result<u64, SqlFault> {
    u64::try_from(stored).map_err(|_| SqlFault::Column(column))
}

/// Converts a maximum number of rows.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Returns the revision for a version number.
pub(super) fn revision(version: i64) -> Revision {
    Revision::new(version.to_string())
}

/// Returns the version number of a revision, or `None` if this store cannot have issued the revision.
pub(super) fn version(revision: &Revision) -> Option<i64> {
    let version = revision.as_str().parse().ok()?;
    // Each number has one canonical text; `+7` and `07` are not accepted.
    (super::columns::revision(version) == *revision).then_some(version)
}

/// Reads a UUID from sixteen bytes.
pub(super) fn uuid(row: &Row<'_>, index: usize) -> Result<Uuid, SqlFault> {
    Ok(Uuid::from_bytes(row.get(index)?))
}

/// Reads the user and the account from two columns, starting at `index`.
pub(super) fn account_key(row: &Row<'_>, index: usize) -> Result<AccountKey, SqlFault> {
    Ok(AccountKey {
        user: UserId::from_uuid(uuid(row, index)?),
        account: AccountId::from_uuid(uuid(row, index.saturating_add(1))?),
    })
}

pub(super) fn timestamp(row: &Row<'_>, index: usize) -> Result<Timestamp, SqlFault> {
    Ok(Timestamp::from_unix_ms(row.get(index)?))
}

pub(super) fn optional_timestamp(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>, SqlFault> {
    Ok(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_unix_ms))
}

pub(super) fn currency(row: &Row<'_>, index: usize) -> Result<Currency, SqlFault> {
    Currency::parse(row.get_ref(index)?.as_str().map_err(|_| SqlFault::Column("currency"))?)
        .map_err(|_| SqlFault::Column("currency"))
}

/// Reads a domain value that is stored as a stable code.
pub(super) fn code<T>(
    row: &Row<'_>,
    index: usize,
    column: &'static str,
    from_code: impl FnOnce(&str) -> Option<T>,
) -> Result<T, SqlFault> {
    let stored = row.get_ref(index)?.as_str().map_err(|_| SqlFault::Column(column))?;
    from_code(stored).ok_or(SqlFault::Column(column))
}

pub(super) fn page_hash(row: &Row<'_>, index: usize) -> Result<PageHash, SqlFault> {
    Ok(PageHash::from_bytes(row.get(index)?))
}

/// Splits a fingerprint into the version of its rule and its digest.
pub(super) fn fingerprint_columns(fingerprint: &Fingerprint) -> (u8, [u8; 32]) {
    let text = fingerprint.to_string();
    let mut digest = [0; 32];
    let (version, hexadecimal) = text.split_once(':').expect("a fingerprint is written as version:digest");
    hex::decode_to_slice(hexadecimal, &mut digest).expect("the digest is 32 bytes in hexadecimal");
    (version.parse().expect("the version is a small number"), digest)
}

/// Reads a fingerprint from two columns, starting at `index`.
pub(super) fn fingerprint(row: &Row<'_>, index: usize) -> Result<Fingerprint, SqlFault> {
    let version: u8 = row.get(index)?;
    let digest: [u8; 32] = row.get(index.saturating_add(1))?;
    Fingerprint::parse(&format!("{version}:{}", hex::encode(digest))).ok_or(SqlFault::Column("fingerprint"))
}

/// Refuses a name that another store does not support, so that no code depends on names that only SQLite can store.
pub(super) fn check_name(name: &str) -> Result<(), SqlFault> {
    if is_name(name) {
        return Ok(());
    }
    Err(SqlFault::Refused(format!(
        "{name:?} is not a valid name: lower-case letters, digits and -, at most 200"
    )))
}
