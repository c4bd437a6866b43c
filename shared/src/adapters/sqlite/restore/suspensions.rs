//! The suspended partners of a file. A backup may have an older schema, and is not migrated before the next start.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::super::columns;
use super::super::fault::SqlFault;
use crate::access::partner_records::body;
use crate::domain::ids::PartnerId;
use crate::domain::partner::{Partner, PartnerStatus};

/// Returns the suspended partners of a file; none if its schema has no records of partners.
pub(super) fn suspended(connection: &Connection) -> Result<BTreeSet<PartnerId>, SqlFault> {
    let Some((table, condition)) = partners(connection)? else { return Ok(BTreeSet::new()) };
    let mut statement = connection.prepare(&format!("SELECT id, body FROM {table} WHERE {condition}"))?;
    let partners: Vec<Partner> = statement.query_and_then([], read)?.collect::<Result<_, _>>()?;
    let suspended = partners.into_iter().filter(|partner| partner.status == PartnerStatus::Suspended);
    Ok(suspended.map(|partner| partner.id).collect())
}

/// Suspends a partner in a file that no other process uses, if the file has a record of it.
pub(super) fn suspend(connection: &Connection, id: &PartnerId) -> Result<(), SqlFault> {
    let Some((table, condition)) = partners(connection)? else { return Ok(()) };
    let mut statement =
        connection.prepare(&format!("SELECT id, body FROM {table} WHERE {condition} AND id = ?1"))?;
    let mut found = statement.query_and_then([id.as_str()], read)?;
    let Some(partner) = found.next().transpose()? else { return Ok(()) };
    let body = body::encode(&Partner { status: PartnerStatus::Suspended, ..partner });
    let sql = format!("UPDATE {table} SET body = ?2, revision = revision + 1 WHERE {condition} AND id = ?1");
    connection.execute(&sql, (id.as_str(), body))?;
    Ok(())
}

/// Returns the table with the records of the partners, and the condition for them.
fn partners(connection: &Connection) -> Result<Option<(&'static str, &'static str)>, SqlFault> {
    let places = [("records", "collection = 'partner'"), ("partner_records", "true")];
    for (table, condition) in places {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        if connection.query_row(sql, [table], |_| Ok(())).optional()?.is_some() {
            return Ok(Some((table, condition)));
        }
    }
    Ok(None)
}

/// Reads the partner from the columns `id` and `body`.
fn read(row: &Row<'_>) -> Result<Partner, SqlFault> {
    let id = columns::code(row, 0, "id", |name| PartnerId::parse(name).ok())?;
    let text: String = row.get(1)?;
    body::decode(id, &text).map_err(|error| SqlFault::Unsound(error.into()))
}
