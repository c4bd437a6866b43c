//! Large bodies by reference. Here they are rows: SQLite keeps them in pages of their own.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::ports::fault::StoreFault;
use crate::ports::payload_store::PayloadStore;

/// The bodies in the file.
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
        let (name, body) = (name.to_owned(), body.to_vec());
        let job = move |connection: &_| put(connection, &name, &body);
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
}

fn put(connection: &Connection, name: &str, body: &[u8]) -> Result<Verdict<()>, SqlFault> {
    let sql = "INSERT INTO payloads (name, body) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
    if connection.prepare_cached(sql)?.execute((name, body))? == 1 {
        return Ok(Verdict::Keep(()));
    }
    let same: bool = connection
        .prepare_cached("SELECT body = ?2 FROM payloads WHERE name = ?1")?
        .query_row((name, body), |row| row.get(0))?;
    // Some message points to the body that is there.
    if !same {
        return Err(SqlFault::Refused(format!("the payload {name} has another content")));
    }
    Ok(Verdict::Undo(()))
}
