//! Small integers for names that occur in millions of rows.

use rusqlite::{Connection, OptionalExtension as _};

use super::columns;
use super::fault::SqlFault;
use crate::domain::ids::{AccountKey, PartnerId};

/// SQL: the number of the account with the ids `?1` and `?2` and the position `?3`; NULL if it has none.
///
/// Usually the number is the position: then accounts in the order of positions are found in adjacent rows, and the index of
/// the ids, whose order is another one, is not read.
macro_rules! number_of_account {
    () => {
        "coalesce((SELECT id FROM account_names WHERE id = ?3 AND user_id = ?1 AND account_id = ?2),
                  (SELECT id FROM account_names WHERE user_id = ?1 AND account_id = ?2))"
    };
}
pub(super) use number_of_account;

/// Returns the first three parameters of a statement with [`number_of_account`].
pub(super) fn parameters(key: AccountKey) -> Result<([u8; 16], [u8; 16], i64), SqlFault> {
    let position = columns::signed(key.position())?;
    Ok((key.user.as_uuid().into_bytes(), key.account.as_uuid().into_bytes(), position))
}

/// Returns the number of an account; `None` if it has none.
pub(super) fn account(connection: &Connection, key: AccountKey) -> Result<Option<i64>, SqlFault> {
    let sql = concat!("SELECT ", number_of_account!());
    Ok(connection.prepare_cached(sql)?.query_row(parameters(key)?, |row| row.get(0))?)
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

fn partner_or_new(connection: &Connection, name: &PartnerId) -> Result<i64, SqlFault> {
    if let Some(number) = partner(connection, name)? {
        return Ok(number);
    }
    connection.prepare_cached("INSERT INTO partners (name) VALUES (?1)")?.execute([name.as_str()])?;
    Ok(connection.last_insert_rowid())
}

/// The numbers of the partners of the rows that a job writes, which mostly belong to one partner. After a rollback, a number
/// that was assigned before is not valid any more.
#[derive(Default)]
pub(super) struct Partners<'a>(Option<(&'a PartnerId, i64)>);

impl<'a> Partners<'a> {
    /// Returns the number of a partner, and assigns one if it has none. For the writer only.
    pub(super) fn number_or_new(
        &mut self,
        connection: &Connection,
        name: &'a PartnerId,
    ) -> Result<i64, SqlFault> {
        if let Some((latest, number)) = self.0
            && latest == name
        {
            return Ok(number);
        }
        let number = partner_or_new(connection, name)?;
        self.0 = Some((name, number));
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::ids::{AccountId, UserId};

    #[test]
    fn an_account_whose_position_is_taken_has_another_number() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE account_names
                     (id INTEGER PRIMARY KEY, user_id BLOB, account_id BLOB, UNIQUE (user_id, account_id))",
            )
            .unwrap();
        let key = |number| AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(number)),
            account: AccountId::from_uuid(Uuid::from_u128(1)),
        };
        let position = |number| i64::try_from(key(number).position()).unwrap();
        let first = account_or_new(&connection, key(1)).unwrap();
        assert_eq!(first, position(1), "rows lie in the order of positions");
        connection.execute("INSERT INTO account_names VALUES (?1, x'00', x'00')", [position(2)]).unwrap();
        let second = account_or_new(&connection, key(2)).unwrap();
        assert!(second != position(2) && second != first);
        assert_eq!(account_or_new(&connection, key(1)).unwrap(), first);
        assert_eq!(account_or_new(&connection, key(2)).unwrap(), second);
        assert_eq!(account(&connection, key(2)).unwrap(), Some(second));
        assert_eq!(account(&connection, key(3)).unwrap(), None);
    }
}
