//! Dead letters: messages that could not be posted, kept for an operator.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::ports::dead_letters::{DeadLetter, DeadLetters, Resolution, ResolutionKind};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::queue::QueueName;

pub(super) struct SqliteDeadLetters {
    database: Arc<Database>,
}

impl SqliteDeadLetters {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl DeadLetters for SqliteDeadLetters {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault> {
        let letter = letter.clone();
        let job = move |connection: &_| add(connection, &letter);
        self.database.write(meter::TABLE_INSERT, "keeping a dead letter", job).await
    }

    async fn find(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault> {
        let id = id.to_owned();
        let job = move |connection: &Connection| {
            let sql = format!("SELECT {COLUMNS} FROM dead_letters WHERE id = ?1");
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query([id])?;
            rows.next()?.map(read).transpose()
        };
        self.database.read(meter::TABLE_GET, "reading a dead letter", job).await
    }

    async fn list(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault> {
        // The empty text sorts before every id.
        let after = cursor.unwrap_or_default().to_owned();
        let job = move |connection: &Connection| {
            let open = if open_only { "AND resolution IS NULL" } else { "" };
            let sql = format!("SELECT {COLUMNS} FROM dead_letters WHERE id > ?1 {open} ORDER BY id LIMIT ?2");
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_and_then((after, columns::limit(limit.saturating_add(1))), read)?;
            Ok(Listing::first_of(rows.collect::<Result<Vec<_>, _>>()?, limit, |last: &DeadLetter| {
                last.id.clone()
            }))
        };
        self.database.read(meter::TABLE_QUERY, "listing dead letters", job).await
    }

    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault> {
        let (id, Resolution { kind, by, at }) = (id.to_owned(), resolution.clone());
        let job = move |connection: &Connection| {
            let sql = "UPDATE dead_letters SET resolution = ?1, resolved_by = ?2, resolved_at = ?3
                       WHERE id = ?4 AND resolution IS NULL";
            let changed = connection.prepare_cached(sql)?.execute((kind.code(), by, at.unix_ms(), id))?;
            Ok(Verdict::Keep(changed == 1))
        };
        self.database.write(meter::TABLE_MERGE, "resolving a dead letter", job).await
    }

    async fn count_open(&self) -> Result<Vec<(QueueName, u64)>, StoreFault> {
        let job = |connection: &Connection| {
            let sql = "SELECT queue, count(*) FROM dead_letters WHERE resolution IS NULL
                       GROUP BY queue ORDER BY queue";
            connection
                .prepare_cached(sql)?
                .query_and_then([], |row| {
                    Ok((
                        columns::code(row, 0, "queue", QueueName::of_stored)?,
                        columns::unsigned(row.get(1)?, "count")?,
                    ))
                })?
                .collect()
        };
        self.database.read(meter::TABLE_QUERY, "counting open dead letters", job).await
    }
}

const COLUMNS: &str =
    "id, queue, reason, body, dequeue_count, inserted_at, dead_at, resolution, resolved_by, resolved_at";

fn add(connection: &Connection, letter: &DeadLetter) -> Result<Verdict<()>, SqlFault> {
    let DeadLetter { id, queue, reason, body, dequeue_count, inserted_at, dead_at, resolution } = letter;
    let sql = format!(
        "INSERT INTO dead_letters ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (id) DO NOTHING"
    );
    connection.prepare_cached(&sql)?.execute((
        id,
        queue.as_str(),
        reason,
        body,
        dequeue_count,
        inserted_at.unix_ms(),
        dead_at.unix_ms(),
        resolution.as_ref().map(|resolution| resolution.kind.code()),
        resolution.as_ref().map(|resolution| &resolution.by),
        resolution.as_ref().map(|resolution| resolution.at.unix_ms()),
    ))?;
    Ok(Verdict::Keep(()))
}

fn read(row: &Row<'_>) -> Result<DeadLetter, SqlFault> {
    Ok(DeadLetter {
        id: row.get(0)?,
        queue: columns::code(row, 1, "queue", QueueName::of_stored)?,
        reason: row.get(2)?,
        body: row.get(3)?,
        dequeue_count: row.get(4)?,
        inserted_at: columns::timestamp(row, 5)?,
        dead_at: columns::timestamp(row, 6)?,
        resolution: resolution(row)?,
    })
}

fn resolution(row: &Row<'_>) -> Result<Option<Resolution>, SqlFault> {
    let Some(code) = row.get::<_, Option<String>>(7)? else { return Ok(None) };
    let kind = ResolutionKind::from_code(&code).ok_or(SqlFault::Column("resolution"))?;
    Ok(Some(Resolution { kind, by: row.get(8)?, at: columns::timestamp(row, 9)? }))
}
