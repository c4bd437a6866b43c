//! The partners: one document each. A revision is an increasing number.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::adapters::partner_body;
use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::PartnerId;
use crate::domain::partner::{Partner, PartnerStatus};
use crate::ports::fault::StoreFault;
use crate::ports::partners::Partners;
use crate::ports::sync_store::Swapped;

/// The partners in the file.
pub(super) struct SqlitePartners {
    database: Arc<Database>,
}

impl SqlitePartners {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl Partners for SqlitePartners {
    async fn find(&self, id: &PartnerId) -> Result<Option<Versioned<Partner>>, StoreFault> {
        let id = id.clone();
        let job = move |connection: &Connection| {
            let sql = "SELECT id, body, revision FROM partner_records WHERE id = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([id.as_str()])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            Ok(Some(Versioned { value: read(row)?, revision: columns::revision(row.get(2)?) }))
        };
        self.database.read(meter::TABLE_GET, "reading a partner", job).await
    }

    async fn list(&self, after: Option<&PartnerId>, limit: usize) -> Result<Vec<Partner>, StoreFault> {
        // The empty name sorts before every other one.
        let after = after.map_or("", PartnerId::as_str).to_owned();
        let job = move |connection: &Connection| {
            let sql = "SELECT id, body FROM partner_records WHERE id > ?1 ORDER BY id LIMIT ?2";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then((after, columns::limit(limit)), read)?.collect()
        };
        self.database.read(meter::TABLE_QUERY, "listing the partners", job).await
    }

    async fn save(&self, partner: &Partner, expected: Option<&Revision>) -> Result<Swapped, StoreFault> {
        let expected = match expected.map(columns::version) {
            None => None,
            Some(Some(version)) => Some(version),
            // The revision comes from another store.
            Some(None) => return Ok(Swapped::Conflict),
        };
        let (id, body) = (partner.id.clone(), partner_body::encode(partner));
        let job = move |connection: &_| save(connection, &id, expected, &body);
        self.database.write(meter::TABLE_MERGE, "saving a partner", job).await
    }
}

fn save(
    connection: &Connection,
    id: &PartnerId,
    expected: Option<i64>,
    body: &str,
) -> Result<Verdict<Swapped>, SqlFault> {
    let next = expected.unwrap_or(0).saturating_add(1);
    let changed = match expected {
        None => {
            let sql = "INSERT INTO partner_records (id, revision, body) VALUES (?1, ?2, ?3)
                       ON CONFLICT (id) DO NOTHING";
            connection.prepare_cached(sql)?.execute((id.as_str(), next, body))?
        }
        Some(version) => {
            let sql = "UPDATE partner_records SET body = ?3, revision = ?2 WHERE id = ?1 AND revision = ?4";
            connection.prepare_cached(sql)?.execute((id.as_str(), next, body, version))?
        }
    };
    if changed != 1 {
        return Ok(Verdict::Undo(Swapped::Conflict));
    }
    Ok(Verdict::Keep(Swapped::Done(columns::revision(next))))
}

/// Returns the suspended partners of a file; none if its schema has no partner records.
pub(super) fn suspended(connection: &Connection) -> Result<BTreeSet<PartnerId>, SqlFault> {
    if !has_records(connection)? {
        return Ok(BTreeSet::new());
    }
    let mut statement = connection.prepare("SELECT id, body FROM partner_records")?;
    let partners: Vec<Partner> = statement.query_and_then([], read)?.collect::<Result<_, _>>()?;
    let suspended = partners.into_iter().filter(|partner| partner.status == PartnerStatus::Suspended);
    Ok(suspended.map(|partner| partner.id).collect())
}

/// Suspends a partner in a file that no other process uses, if the file has a record of it.
pub(super) fn suspend(connection: &Connection, id: &PartnerId) -> Result<(), SqlFault> {
    if !has_records(connection)? {
        return Ok(());
    }
    let sql = "SELECT id, body FROM partner_records WHERE id = ?1";
    let mut statement = connection.prepare(sql)?;
    let mut found = statement.query_and_then([id.as_str()], read)?;
    let Some(partner) = found.next().transpose()? else { return Ok(()) };
    let body = partner_body::encode(&Partner { status: PartnerStatus::Suspended, ..partner });
    let sql = "UPDATE partner_records SET body = ?2, revision = revision + 1 WHERE id = ?1";
    connection.execute(sql, (id.as_str(), body))?;
    Ok(())
}

/// Returns whether the file has partner records; older schemas have none.
fn has_records(connection: &Connection) -> Result<bool, SqlFault> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'partner_records'";
    Ok(connection.query_row(sql, [], |row| row.get::<_, i64>(0))? == 1)
}

/// Reads the partner from the columns `id` and `body`.
fn read(row: &Row<'_>) -> Result<Partner, SqlFault> {
    let id = columns::code(row, 0, "id", |name| PartnerId::parse(name).ok())?;
    let body: String = row.get(1)?;
    partner_body::decode(id, &body).map_err(|error| SqlFault::Unsound(error.into()))
}
