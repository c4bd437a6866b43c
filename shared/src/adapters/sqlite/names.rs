//! Integer ids for names that occur in millions of rows.

use rusqlite::{Connection, OptionalExtension as _};

use super::columns;
use super::fault::SqlFault;
use crate::domain::ids::{AccountKey, PartnerId};

/// SQL for the number of the account with user id `?1`, account id `?2` and position `?3`; NULL if it has none.
///
/// The number usually equals the position. Accounts in the order of positions are then in adjacent rows, and the index
/// over the ids, which has another order, is not read.
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

/// Returns the number of an account, and assigns one if it has none. Only the writer may call it.
///
/// The preferred number is the position of the account. A chunk of a batch contains accounts in the order of positions,
/// so it changes adjacent rows. If the position is taken, or an earlier version assigned another number, the result is
/// still correct but access is slower.
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

/// Caches the number of one partner, because most rows of a job belong to the same partner. After a rollback, a newly
/// assigned number is invalid, so the cache must be discarded.
#[derive(Default)]
pub(super) struct Partners<'a>(Option<(&'a PartnerId, i64)>);

impl<'a> Partners<'a> {
    /// Returns the number of a partner, and assigns one if it has none. Only the writer may call it.
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
