//! API keys of partners. Each row contains the hash of a key and never the key itself.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::attempt::{RequestFault, Retries};
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

pub(super) struct AzureApiKeys {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KeyRow {
    hash: String,
    partner: String,
    /// A JSON array.
    scopes: String,
    created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_used_at: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RevokedRow {
    revoked_at: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct UsedRow {
    last_used_at: String,
}

impl KeyRow {
    fn of(record: &ApiKeyRecord) -> Self {
        let ApiKeyRecord { id: _, hash, partner, scopes, created_at, revoked_at, expires_at, last_used_at } =
            record;
        let text = |at: &Option<Timestamp>| at.map(|at| at.unix_ms().to_string());
        Self {
            hash: hex::encode(hash),
            partner: partner.as_str().to_owned(),
            scopes: serde_json::to_string(scopes).expect("texts can always be written as JSON"),
            created_at: created_at.unix_ms().to_string(),
            revoked_at: text(revoked_at),
            expires_at: text(expires_at),
            last_used_at: text(last_used_at),
        }
    }

    fn to_record(&self, id: &str) -> Result<ApiKeyRecord, InvalidProperty> {
        let optional = |text: &Option<String>, name| text.as_deref().map(|text| time(text, name)).transpose();
        let mut hash = [0; 32];
        hex::decode_to_slice(&self.hash, &mut hash).map_err(|_| InvalidProperty("Hash"))?;
        Ok(ApiKeyRecord {
            id: id.to_owned(),
            hash,
            partner: PartnerId::parse(&self.partner).map_err(|_| InvalidProperty("Partner"))?,
            scopes: serde_json::from_str(&self.scopes).map_err(|_| InvalidProperty("Scopes"))?,
            created_at: time(&self.created_at, "CreatedAt")?,
            revoked_at: optional(&self.revoked_at, "RevokedAt")?,
            expires_at: optional(&self.expires_at, "ExpiresAt")?,
            last_used_at: optional(&self.last_used_at, "LastUsedAt")?,
        })
    }
}

fn read(found: &Found, doing: &'static str) -> Result<ApiKeyRecord, StoreFault> {
    let row: KeyRow = parse(found, doing)?;
    row.to_record(found.key.row()).map_err(|invalid| corrupt(found, doing, invalid))
}

impl AzureApiKeys {
    /// Merges properties into the row of a key, unless `is_done` holds for it. Returns false if there is no such row.
    async fn merge(
        &self,
        id: &str,
        row: &(impl Serialize + Sync),
        doing: &'static str,
        is_done: impl Fn(&ApiKeyRecord) -> bool + Send,
    ) -> Result<bool, StoreFault> {
        let Some(key) = Key::named(PARTITION, id) else { return Ok(false) };
        let mut retries = Retries::new(&self.world);
        loop {
            let found = retries.retry_read(|| self.table.get(&key)).await;
            let found = found.map_err(|failure| retries.fault(failure, doing))?;
            let Some(found) = found else { return Ok(false) };
            if is_done(&read(&found, doing)?) {
                return Ok(true);
            }
            let Err(failure) = self.table.merge(&key, row, &found.revision).await else { return Ok(true) };
            retries.record_failure(&failure);
            let changed = failure.has_status(412);
            if (matches!(failure, RequestFault::Answered(_)) && !changed) || !retries.wait_for_retry().await {
                return Err(retries.fault(failure, doing));
            }
        }
    }
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
        let row = RevokedRow { revoked_at: at.unix_ms().to_string() };
        // The time of the first revocation is kept.
        self.merge(id, &row, "revoking an API key", |record| record.revoked_at.is_some()).await
    }

    async fn mark_used(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault> {
        let row = UsedRow { last_used_at: at.unix_ms().to_string() };
        self.merge(id, &row, "recording the use of an API key", |record| record.last_used_at >= Some(at))
            .await
    }
}
