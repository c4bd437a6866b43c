//! The API keys of partners: one row each, with the hash of the key and never the key itself.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::attempt::{Failure, Retries};
use super::invalid_property::InvalidProperty;
use super::keys::Key;
use super::rows::{corrupt, parse, time};
use super::table::{Found, Table};
use crate::domain::ids::PartnerId;
use crate::domain::time::Timestamp;
use crate::ports::api_keys::{ApiKeyRecord, ApiKeys};
use crate::ports::fault::StoreFault;
use crate::ports::world::World;

const PARTITION: &str = "key";

/// The API keys of one store.
pub(super) struct AzureApiKeys {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KeyRow {
    hash: String,
    partner: String,
    /// JSON.
    scopes: String,
    created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RevokedRow {
    revoked_at: String,
}

impl KeyRow {
    fn of(record: &ApiKeyRecord) -> Self {
        let ApiKeyRecord { id: _, hash, partner, scopes, created_at, revoked_at } = record;
        Self {
            hash: hex::encode(hash),
            partner: partner.as_str().to_owned(),
            scopes: serde_json::to_string(scopes).expect("texts can always be written as JSON"),
            created_at: created_at.unix_ms().to_string(),
            revoked_at: revoked_at.map(|at| at.unix_ms().to_string()),
        }
    }

    fn to_record(&self, id: &str) -> Result<ApiKeyRecord, InvalidProperty> {
        let mut hash = [0; 32];
        hex::decode_to_slice(&self.hash, &mut hash).map_err(|_| InvalidProperty("Hash"))?;
        Ok(ApiKeyRecord {
            id: id.to_owned(),
            hash,
            partner: PartnerId::parse(&self.partner).map_err(|_| InvalidProperty("Partner"))?,
            scopes: serde_json::from_str(&self.scopes).map_err(|_| InvalidProperty("Scopes"))?,
            created_at: time(&self.created_at, "CreatedAt")?,
            revoked_at: self.revoked_at.as_deref().map(|text| time(text, "RevokedAt")).transpose()?,
        })
    }
}

fn read(found: &Found, doing: &'static str) -> Result<ApiKeyRecord, StoreFault> {
    let row: KeyRow = parse(found, doing)?;
    row.to_record(found.key.row()).map_err(|invalid| corrupt(found, doing, invalid))
}

#[async_trait]
impl ApiKeys for AzureApiKeys {
    async fn add(&self, record: &ApiKeyRecord) -> Result<(), StoreFault> {
        let (key, row) = (Key::new(PARTITION, &record.id), KeyRow::of(record));
        let mut retries = Retries::new(&self.world);
        match retries.retry_write(|| self.table.insert(&key, &row)).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.has_status(409) => Ok(()),
            Err(failure) => Err(retries.fault(failure, "storing an API key")),
        }
    }

    async fn find(&self, id: &str) -> Result<Option<ApiKeyRecord>, StoreFault> {
        let doing = "reading an API key";
        let Some(key) = Key::named(PARTITION, id) else { return Ok(None) };
        let found = Retries::new(&self.world).retry_read(|| self.table.get(&key)).await;
        let found = found.map_err(|failure| failure.into_fault(doing))?;
        found.map(|found| read(&found, doing)).transpose()
    }

    async fn list(&self) -> Result<Vec<ApiKeyRecord>, StoreFault> {
        let doing = "listing API keys";
        let rows = self.table.partition(PARTITION, &self.world, doing).await?;
        rows.iter().map(|found| read(found, doing)).collect()
    }

    async fn revoke(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault> {
        let doing = "revoking an API key";
        let Some(key) = Key::named(PARTITION, id) else { return Ok(false) };
        let row = RevokedRow { revoked_at: at.unix_ms().to_string() };
        let mut retries = Retries::new(&self.world);
        loop {
            let found = retries.retry_read(|| self.table.get(&key)).await;
            let found = found.map_err(|failure| retries.fault(failure, doing))?;
            let Some(found) = found else { return Ok(false) };
            // The time of the first revocation is kept.
            if read(&found, doing)?.revoked_at.is_some() {
                return Ok(true);
            }
            let Err(failure) = self.table.merge(&key, &row, &found.revision).await else { return Ok(true) };
            retries.record_failure(&failure);
            let changed = failure.has_status(412);
            if (matches!(failure, Failure::Answered(_)) && !changed) || !retries.wait_for_retry().await {
                return Err(retries.fault(failure, doing));
            }
        }
    }
}
