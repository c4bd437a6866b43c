//! Records, each with one document. A save increases the revision, which is a number. The first revision of a record is
//! random, so that the revisions of a removed record are not reused.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::domain::account::{Revision, Versioned};
use crate::ports::fault::StoreFault;
use crate::ports::records::{Collection, Record, Records, assert_id, assert_record, id_range};
use crate::ports::sync_store::Swapped;

pub(super) struct SqliteRecords {
    database: Arc<Database>,
}

impl SqliteRecords {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl Records for SqliteRecords {
    async fn find(&self, collection: Collection, id: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        assert_id(id);
        let key = (collection.code(), id.to_owned());
        let job = move |connection: &Connection| {
            let sql = "SELECT body, revision FROM records WHERE collection = ?1 AND id = ?2";
            let read = |row: &rusqlite::Row<'_>| {
                Ok(Versioned { value: row.get(0)?, revision: columns::revision(row.get(1)?) })
            };
            Ok(connection.prepare_cached(sql)?.query_row(key, read).optional()?)
        };
        self.database.read(meter::TABLE_GET, "reading a record", job).await
    }

    async fn list(
        &self,
        collection: Collection,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreFault> {
        let ids = id_range(prefix, after);
        let range = (collection.code(), ids.start, ids.end, columns::limit(limit));
        let job = move |connection: &Connection| {
            let sql = "SELECT id, body FROM records WHERE collection = ?1 AND id >= ?2 AND id < ?3
                       ORDER BY id LIMIT ?4";
            let mut statement = connection.prepare_cached(sql)?;
            let records =
                statement.query_map(range, |row| Ok(Record { id: row.get(0)?, body: row.get(1)? }))?;
            Ok(records.collect::<Result<_, _>>()?)
        };
        self.database.read(meter::TABLE_QUERY, "listing records", job).await
    }

    async fn save(
        &self,
        collection: Collection,
        id: &str,
        body: &str,
        expected: Option<&Revision>,
    ) -> Result<Swapped, StoreFault> {
        assert_record(id, body);
        let (operation, expected) = match expected.map(columns::version) {
            None => (meter::TABLE_INSERT, None),
            Some(Some(version)) => (meter::TABLE_UPDATE, Some(version)),
            // The revision was issued by another store.
            Some(None) => return Ok(Swapped::Conflict),
        };
        let (code, id, body) = (collection.code(), id.to_owned(), body.to_owned());
        let job = move |connection: &_| save(connection, (code, &id), &body, expected);
        self.database.write(operation, "saving a record", job).await
    }

    async fn remove(&self, collection: Collection, id: &str) -> Result<(), StoreFault> {
        assert_id(id);
        let key = (collection.code(), id.to_owned());
        let job = move |connection: &Connection| {
            let sql = "DELETE FROM records WHERE collection = ?1 AND id = ?2";
            connection.prepare_cached(sql)?.execute(key)?;
            Ok(Verdict::Keep(()))
        };
        self.database.write(meter::TABLE_DELETE, "removing a record", job).await
    }
}

fn save(
    connection: &Connection,
    (code, id): (&str, &str),
    body: &str,
    expected: Option<i64>,
) -> Result<Verdict<Swapped>, SqlFault> {
    let saved = match expected {
        None => {
            // The first revision is at most 2^62, so that later revisions do not overflow.
            let sql = "INSERT INTO records (collection, id, revision, body)
                       VALUES (?1, ?2, abs(random() / 2), ?3)
                       ON CONFLICT (collection, id) DO NOTHING RETURNING revision";
            connection.prepare_cached(sql)?.query_row((code, id, body), |row| row.get(0)).optional()?
        }
        Some(version) => {
            let sql = "UPDATE records SET body = ?3, revision = revision + 1
                       WHERE collection = ?1 AND id = ?2 AND revision = ?4 RETURNING revision";
            connection
                .prepare_cached(sql)?
                .query_row((code, id, body, version), |row| row.get(0))
                .optional()?
        }
    };
    Ok(match saved {
        Some(revision) => Verdict::Keep(Swapped::Done(columns::revision(revision))),
        None => Verdict::Undo(Swapped::Conflict),
    })
}
