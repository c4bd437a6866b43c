//! Large bodies, stored as rows by name. A cursor is the last name of the previous page.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::payload_store::{PayloadEntry, PayloadStore};

pub(super) struct SqlitePayloadStore {
    database: Arc<Database>,
}

impl SqlitePayloadStore {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl PayloadStore for SqlitePayloadStore {
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault> {
        let doing = "storing a payload";
        columns::check_name(name).map_err(|fault| fault.doing(doing))?;
        let (name, body, world) = (name.to_owned(), body.to_vec(), self.database.world());
        let job = move |connection: &_| put(connection, &name, &body, world.now());
        self.database.write(meter::BLOB_PUT, doing, job).await
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault> {
        let name = name.to_owned();
        let job = move |connection: &Connection| {
            let body = connection
                .prepare_cached("SELECT body FROM payloads WHERE name = ?1")?
                .query_row([name], |row| row.get(0))
                .optional()?;
            Ok(body)
        };
        self.database.read(meter::BLOB_GET, "reading a payload", job).await
    }

    async fn delete(&self, name: &str) -> Result<(), StoreFault> {
        let name = name.to_owned();
        let job = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM payloads WHERE name = ?1")?.execute([name])?;
            Ok(Verdict::Keep(()))
        };
        self.database.write(meter::BLOB_DELETE, "removing a payload", job).await
    }

    async fn list(
        &self,
        prefix: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<PayloadEntry>, StoreFault> {
        // Range of all names with the prefix. `~` sorts after every character that is allowed in a name.
        let (prefix, end) = (prefix.to_owned(), format!("{prefix}~"));
        let after = cursor.unwrap_or_default().to_owned();
        let job = move |connection: &Connection| {
            let sql = "SELECT name, stored_at FROM payloads
                       WHERE name >= ?1 AND name < ?2 AND name > ?3 ORDER BY name LIMIT ?4";
            let mut statement = connection.prepare_cached(sql)?;
            let limits = (prefix, end, after, columns::limit(limit.saturating_add(1)));
            let rows = statement.query_and_then(limits, |row| {
                Ok::<_, SqlFault>(PayloadEntry { name: row.get(0)?, stored_at: columns::timestamp(row, 1)? })
            })?;
            let entries = rows.collect::<Result<Vec<_>, _>>()?;
            Ok(Listing::first_of(entries, limit, |last: &PayloadEntry| last.name.clone()))
        };
        self.database.read(meter::BLOB_LIST, "listing payloads", job).await
    }
}

fn put(connection: &Connection, name: &str, body: &[u8], now: Timestamp) -> Result<Verdict<()>, SqlFault> {
    let sql =
        "INSERT INTO payloads (name, body, stored_at) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO NOTHING";
    if connection.prepare_cached(sql)?.execute((name, body, now.unix_ms()))? == 1 {
        return Ok(Verdict::Keep(()));
    }
    let same: bool = connection
        .prepare_cached("SELECT body = ?2 FROM payloads WHERE name = ?1")?
        .query_row((name, body), |row| row.get(0))?;
    // A stored body must not change, because a message may refer to it.
    if !same {
        return Err(SqlFault::Refused(format!("the payload {name} exists with other content")));
    }
    Ok(Verdict::Undo(()))
}
