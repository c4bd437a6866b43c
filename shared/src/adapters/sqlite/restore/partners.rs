//! The partners in a store file, and the rights that a restore does not give back.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row};

use super::super::columns;
use super::super::fault::SqlFault;
use crate::access::partner_records::body;
use crate::domain::ids::PartnerId;
use crate::domain::partner::Partner;

/// A partner of the backup that lost rights after the backup. The restored partner does not have these rights either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestrictedPartner {
    /// The partner in the backup.
    pub in_backup: Partner,
    /// The partner in the restored store.
    pub restored: Partner,
}

/// Returns the partners of the backup that have fewer rights in the replaced store, ordered by id.
pub(super) fn restricted(
    backup: &BTreeMap<PartnerId, Partner>,
    replaced: &BTreeMap<PartnerId, Partner>,
) -> Vec<RestrictedPartner> {
    let known = backup.iter().filter_map(|(id, partner)| Some((partner, replaced.get(id)?)));
    let compared = known.map(|(partner, later)| RestrictedPartner {
        in_backup: partner.clone(),
        restored: partner.restricted_to(later),
    });
    compared.filter(|partner| partner.in_backup != partner.restored).collect()
}

/// Reads all partners of a file, by id.
pub(super) fn read_all(connection: &Connection) -> Result<BTreeMap<PartnerId, Partner>, SqlFault> {
    let sql = "SELECT id, body FROM records WHERE collection = 'partner'";
    let mut statement = connection.prepare(sql)?;
    let partners = statement.query_and_then([], read)?;
    partners.map(|partner| partner.map(|partner| (partner.id.clone(), partner))).collect()
}

/// Replaces the existing record of a partner. No other process may use the file.
pub(super) fn overwrite(connection: &Connection, partner: &Partner) -> Result<(), SqlFault> {
    let sql =
        "UPDATE records SET body = ?2, revision = revision + 1 WHERE collection = 'partner' AND id = ?1";
    connection.execute(sql, (partner.id.as_str(), body::encode(partner)))?;
    Ok(())
}

/// Decodes a partner from the columns `id` and `body`.
fn read(row: &Row<'_>) -> Result<Partner, SqlFault> {
    let id = columns::code(row, 0, "id", |name| PartnerId::parse(name).ok())?;
    let text: String = row.get(1)?;
    body::decode(id, &text).map_err(|error| SqlFault::Unsound(error.into()))
}
