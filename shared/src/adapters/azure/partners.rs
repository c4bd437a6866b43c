//! The partners: one row each, all in one partition, so that a scan returns them in order. The ETag is the revision.
//! A save is one attempt and never repeated here: the caller decides what an unclear outcome means.

use std::sync::Arc;

use async_trait::async_trait;

use super::attempt::Retries;
use super::keys::Key;
use super::parts;
use super::rows::corrupt;
use super::table::{Found, ROWS_MAX, Scanned, Table};
use crate::adapters::partner_body;
use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::PartnerId;
use crate::domain::partner::Partner;
use crate::ports::fault::StoreFault;
use crate::ports::partners::Partners;
use crate::ports::sync_store::Swapped;
use crate::ports::world::World;

const PARTITION: &str = "partner";

/// The partners of one store.
pub(super) struct AzurePartners {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

fn key(id: &PartnerId) -> Key {
    Key::new(PARTITION, id.as_str())
}

fn read(found: &Found, doing: &'static str) -> Result<Partner, StoreFault> {
    let id = PartnerId::parse(found.key.row()).map_err(|invalid| corrupt(found, doing, invalid))?;
    let body = parts::read(&found.properties).map_err(|invalid| corrupt(found, doing, invalid))?;
    let text = std::str::from_utf8(&body).map_err(|error| corrupt(found, doing, error))?;
    partner_body::decode(id, text).map_err(|error| corrupt(found, doing, error))
}

#[async_trait]
impl Partners for AzurePartners {
    async fn find(&self, id: &PartnerId) -> Result<Option<Versioned<Partner>>, StoreFault> {
        let doing = "reading a partner";
        let key = key(id);
        let found = Retries::new(&self.world).retry_read(|| self.table.get(&key)).await;
        let Some(found) = found.map_err(|failure| failure.into_fault(doing))? else { return Ok(None) };
        Ok(Some(Versioned { value: read(&found, doing)?, revision: found.revision }))
    }

    async fn list(&self, after: Option<&PartnerId>, limit: usize) -> Result<Vec<Partner>, StoreFault> {
        let doing = "listing the partners";
        let filter = match after {
            Some(after) => format!("PartitionKey eq '{PARTITION}' and RowKey gt '{after}'"),
            None => format!("PartitionKey eq '{PARTITION}'"),
        };
        let (mut partners, mut continuation) = (Vec::new(), None);
        loop {
            let left = limit.saturating_sub(partners.len());
            let top = u32::try_from(left).unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
            let mut retries = Retries::new(&self.world);
            let scanned = retries.retry_read(|| self.table.scan(&filter, top, continuation.as_ref())).await;
            let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
            for found in rows.iter().take(left) {
                partners.push(read(found, doing)?);
            }
            // A scan may return no rows before its end.
            match next {
                Some(next) if partners.len() < limit => continuation = Some(next),
                Some(_) | None => return Ok(partners),
            }
        }
    }

    async fn save(&self, partner: &Partner, expected: Option<&Revision>) -> Result<Swapped, StoreFault> {
        let (key, row) = (key(&partner.id), parts::write(partner_body::encode(partner).as_bytes()));
        let saved = match expected {
            // Parts that remain from a longer text are not counted any more.
            Some(expected) => self.table.merge(&key, &row, expected).await,
            None => self.table.insert(&key, &row).await,
        };
        match saved {
            Ok(revision) => Ok(Swapped::Done(revision)),
            // The row was changed, exists already, or does not exist any more.
            Err(failure) if [404, 409, 412].into_iter().any(|status| failure.has_status(status)) => {
                Ok(Swapped::Conflict)
            }
            Err(failure) => Err(failure.into_fault("saving a partner")),
        }
    }
}
