//! API keys, stored by id.

use async_trait::async_trait;

use super::MemoryStore;
use crate::domain::time::Timestamp;
use crate::ports::api_keys::{ApiKeyRecord, ApiKeys};
use crate::ports::fault::StoreFault;

#[async_trait]
impl ApiKeys for MemoryStore {
    async fn add(&self, record: &ApiKeyRecord) -> Result<(), StoreFault> {
        self.count_row("insert");
        self.step(|tables| {
            tables.api_keys.entry(record.id.clone()).or_insert_with(|| record.clone());
        });
        Ok(())
    }

    async fn find(&self, id: &str) -> Result<Option<ApiKeyRecord>, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| tables.api_keys.get(id).cloned()))
    }

    async fn list(&self) -> Result<Vec<ApiKeyRecord>, StoreFault> {
        self.count_query();
        Ok(self.step(|tables| tables.api_keys.values().cloned().collect()))
    }

    async fn revoke(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault> {
        self.count_row("merge");
        Ok(self.step(|tables| {
            let Some(record) = tables.api_keys.get_mut(id) else { return false };
            record.revoked_at.get_or_insert(at);
            true
        }))
    }

    async fn mark_used(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault> {
        self.count_row("merge");
        Ok(self.step(|tables| {
            let Some(record) = tables.api_keys.get_mut(id) else { return false };
            record.last_used_at = record.last_used_at.max(Some(at));
            true
        }))
    }
}
