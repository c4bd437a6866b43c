//! Small values with compare-and-swap. A revision is an increasing number.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::domain::account::{Revision, Versioned};
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore, VALUE_BYTES_MAX};

pub(super) struct SqliteSyncStore {
    database: Arc<Database>,
}

impl SqliteSyncStore {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl SyncStore for SqliteSyncStore {
    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        let name = name.to_owned();
        let job = move |connection: &Connection| {
            let mut statement =
                connection.prepare_cached("SELECT value, revision FROM sync_values WHERE name = ?1")?;
            let mut rows = statement.query([name])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            Ok(Some(Versioned { value: row.get(0)?, revision: columns::revision(row.get(1)?) }))
        };
        self.database.read(meter::TABLE_GET, "reading a shared value", job).await
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        let doing = "swapping a shared value";
        check(name, value).map_err(|fault| fault.doing(doing))?;
        let expected = match expected.map(columns::version) {
            None => None,
            Some(Some(version)) => Some(version),
            // The revision was issued by another store.
            Some(None) => return Ok(Swapped::Conflict),
        };
        let (name, value) = (name.to_owned(), value.to_owned());
        let job = move |connection: &_| swap(connection, &name, expected, &value);
        self.database.write(meter::TABLE_MERGE, doing, job).await
    }
}

fn swap(
    connection: &Connection,
    name: &str,
    expected: Option<i64>,
    value: &str,
) -> Result<Verdict<Swapped>, SqlFault> {
    let next = expected.unwrap_or(0).saturating_add(1);
    let changed = match expected {
        None => {
            let sql = "INSERT INTO sync_values (name, revision, value) VALUES (?1, ?2, ?3)
                       ON CONFLICT (name) DO NOTHING";
            connection.prepare_cached(sql)?.execute((name, next, value))?
        }
        Some(version) => {
            let sql = "UPDATE sync_values SET value = ?3, revision = ?2 WHERE name = ?1 AND revision = ?4";
            connection.prepare_cached(sql)?.execute((name, next, value, version))?
        }
    };
    if changed != 1 {
        return Ok(Verdict::Undo(Swapped::Conflict));
    }
    Ok(Verdict::Keep(Swapped::Done(columns::revision(next))))
}

/// Writes a value unconditionally, and increases its revision.
pub(super) fn overwrite(connection: &Connection, name: &str, value: &str) -> Result<(), SqlFault> {
    let sql = "INSERT INTO sync_values (name, revision, value) VALUES (?1, 1, ?2)
               ON CONFLICT (name) DO UPDATE SET revision = revision + 1, value = excluded.value";
    connection.execute(sql, (name, value))?;
    Ok(())
}

fn check(name: &str, value: &str) -> Result<(), SqlFault> {
    if value.len() > VALUE_BYTES_MAX {
        let size = value.len();
        return Err(SqlFault::Refused(format!("a value of {size} bytes is larger than {VALUE_BYTES_MAX}")));
    }
    columns::check_name(name)
}
