//! Small integers for names that occur in millions of rows.

use rusqlite::{Connection, OptionalExtension as _};

use super::columns;
use super::fault::SqlFault;
use crate::domain::ids::{AccountKey, PartnerId};

/// Returns the number of an account; `None` if it has none.
pub(super) fn account(connection: &Connection, key: AccountKey) -> Result<Option<i64>, SqlFault> {
    let sql = "SELECT id FROM account_names WHERE user_id = ?1 AND account_id = ?2";
    let number = connection
        .prepare_cached(sql)?
        .query_row((key.user.as_uuid().into_bytes(), key.account.as_uuid().into_bytes()), |row| row.get(0))
        .optional()?;
    Ok(number)
}

/// Returns the number of an account, and assigns one if it has none. For the writer only.
///
/// The number is the position of the account: all rows of accounts are stored in this order, so that a chunk of a batch,
/// which contains accounts in this order, changes adjacent rows. A position that is taken, or the number that an earlier
/// version assigned, costs time only.
pub(super) fn account_or_new(connection: &Connection, key: AccountKey) -> Result<i64, SqlFault> {
    if let Some(number) = account(connection, key)? {
        return Ok(number);
    }
    let ids = (key.user.as_uuid().into_bytes(), key.account.as_uuid().into_bytes());
    let sql =
        "INSERT INTO account_names (id, user_id, account_id) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO NOTHING";
    let inserted =
        connection.prepare_cached(sql)?.execute((columns::signed(key.position())?, ids.0, ids.1))?;
    if inserted == 0 {
        let sql = "INSERT INTO account_names (user_id, account_id) VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute(ids)?;
    }
    Ok(connection.last_insert_rowid())
}

/// Returns the number of a partner; `None` if it has none.
fn partner(connection: &Connection, partner: &PartnerId) -> Result<Option<i64>, SqlFault> {
    let number = connection
        .prepare_cached("SELECT id FROM partners WHERE name = ?1")?
        .query_row([partner.as_str()], |row| row.get(0))
        .optional()?;
    Ok(number)
}

/// Returns the number of a partner, and assigns one if it has none. For the writer only.
pub(super) fn partner_or_new(connection: &Connection, name: &PartnerId) -> Result<i64, SqlFault> {
    if let Some(number) = partner(connection, name)? {
        return Ok(number);
    }
    connection.prepare_cached("INSERT INTO partners (name) VALUES (?1)")?.execute([name.as_str()])?;
    Ok(connection.last_insert_rowid())
}
