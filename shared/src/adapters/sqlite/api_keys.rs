//! The API keys of partners.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::domain::ids::PartnerId;
use crate::domain::time::Timestamp;
use crate::ports::api_keys::{ApiKeyRecord, ApiKeys};
use crate::ports::fault::StoreFault;

pub(super) struct SqliteApiKeys {
    database: Arc<Database>,
}

impl SqliteApiKeys {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ApiKeys for SqliteApiKeys {
    async fn add(&self, record: &ApiKeyRecord) -> Result<(), StoreFault> {
        let record = record.clone();
        let job = move |connection: &_| add(connection, &record);
        self.database.write(meter::TABLE_INSERT, "storing an API key", job).await
    }

    async fn find(&self, id: &str) -> Result<Option<ApiKeyRecord>, StoreFault> {
        let id = id.to_owned();
        let job = move |connection: &Connection| {
            let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE id = ?1");
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query([id])?;
            rows.next()?.map(read).transpose()
        };
        self.database.read(meter::TABLE_GET, "reading an API key", job).await
    }

    async fn list(&self) -> Result<Vec<ApiKeyRecord>, StoreFault> {
        self.database.read(meter::TABLE_QUERY, "listing the API keys", list).await
    }

    async fn revoke(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault> {
        let id = id.to_owned();
        let job = move |connection: &Connection| {
            let sql = "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?1) WHERE id = ?2";
            let changed = connection.prepare_cached(sql)?.execute((at.unix_ms(), id))?;
            Ok(Verdict::Keep(changed == 1))
        };
        self.database.write(meter::TABLE_MERGE, "revoking an API key", job).await
    }

    async fn mark_used(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault> {
        let id = id.to_owned();
        let job = move |connection: &Connection| {
            let sql = "UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, ?1), ?1) WHERE id = ?2";
            let changed = connection.prepare_cached(sql)?.execute((at.unix_ms(), id))?;
            Ok(Verdict::Keep(changed == 1))
        };
        self.database.write(meter::TABLE_MERGE, "recording the use of an API key", job).await
    }
}

const COLUMNS: &str = "id, hash, partner, scopes, created_at, revoked_at, expires_at, last_used_at";

/// Reads all API keys, ordered by id.
pub(super) fn list(connection: &Connection) -> Result<Vec<ApiKeyRecord>, SqlFault> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys ORDER BY id");
    connection.prepare_cached(&sql)?.query_and_then([], read)?.collect()
}

fn add(connection: &Connection, record: &ApiKeyRecord) -> Result<Verdict<()>, SqlFault> {
    let ApiKeyRecord { id, hash, partner, scopes, created_at, revoked_at, expires_at, last_used_at } = record;
    let scopes = serde_json::to_string(scopes).expect("texts can be written as JSON");
    let sql = format!(
        "INSERT INTO api_keys ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING"
    );
    connection.prepare_cached(&sql)?.execute((
        id,
        hash,
        partner.as_str(),
        scopes,
        created_at.unix_ms(),
        revoked_at.map(Timestamp::unix_ms),
        expires_at.map(Timestamp::unix_ms),
        last_used_at.map(Timestamp::unix_ms),
    ))?;
    Ok(Verdict::Keep(()))
}

fn read(row: &Row<'_>) -> Result<ApiKeyRecord, SqlFault> {
    let scopes: String = row.get(3)?;
    Ok(ApiKeyRecord {
        id: row.get(0)?,
        hash: row.get(1)?,
        partner: columns::code(row, 2, "partner", |name| PartnerId::parse(name).ok())?,
        scopes: serde_json::from_str(&scopes).map_err(|_| SqlFault::Column("scopes"))?,
        created_at: columns::timestamp(row, 4)?,
        revoked_at: columns::optional_timestamp(row, 5)?,
        expires_at: columns::optional_timestamp(row, 6)?,
        last_used_at: columns::optional_timestamp(row, 7)?,
    })
}
