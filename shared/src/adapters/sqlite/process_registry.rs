//! The process registry: the running processes and their addresses.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::{Address, ProcessId, ProcessKind, ProcessRegistry, RegisteredProcess};

pub(super) struct SqliteProcessRegistry {
    database: Arc<Database>,
}

impl SqliteProcessRegistry {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ProcessRegistry for SqliteProcessRegistry {
    async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault> {
        let RegisteredProcess { id, kind, address, started_at, next_by, attempts_survived: survivals, level } =
            entry.clone();
        let survivals = i64::try_from(survivals).unwrap_or(i64::MAX);
        let job = move |connection: &Connection| {
            let sql = "INSERT OR REPLACE INTO roster
                           (id, kind, address, started_at, next_by, survivals, level)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let times = (started_at.unix_ms(), next_by.unix_ms());
            let columns = (id.simple(), kind.code(), address.as_str(), times.0, times.1, survivals, level);
            connection.prepare_cached(sql)?.execute(columns)?;
            Ok(Verdict::Keep(()))
        };
        self.database.write(meter::TABLE_UPDATE, "announcing a process", job).await
    }

    async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault> {
        let job = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM roster WHERE id = ?1")?.execute([id.simple()])?;
            Ok(Verdict::Keep(()))
        };
        self.database.write(meter::TABLE_DELETE, "withdrawing a process", job).await
    }

    async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
        let job = |connection: &Connection| {
            let sql = "SELECT id, kind, address, started_at, next_by, survivals, level FROM roster
                       ORDER BY id";
            let mut statement = connection.prepare_cached(sql)?;
            let entries = statement.query_and_then([], read)?;
            entries.filter_map(Result::transpose).collect()
        };
        self.database.read(meter::TABLE_QUERY, "reading the process registry", job).await
    }
}

/// Reads an entry. Returns `None` if its kind is unknown to this program, because a newer program wrote it.
fn read(row: &Row<'_>) -> Result<Option<RegisteredProcess>, SqlFault> {
    let kind: String = row.get(1)?;
    let Some(kind) = ProcessKind::from_code(&kind) else { return Ok(None) };
    Ok(Some(RegisteredProcess {
        id: columns::code(row, 0, "id", ProcessId::parse)?,
        kind,
        address: columns::code(row, 2, "address", |text| Address::parse(text).ok())?,
        started_at: columns::timestamp(row, 3)?,
        next_by: columns::timestamp(row, 4)?,
        attempts_survived: u64::try_from(row.get::<_, i64>(5)?).unwrap_or(0),
        level: row.get(6)?,
    }))
}
