//! Small values with compare-and-swap. Each is one row whose ETag is the revision. A swap is a single attempt, because
//! only the caller can decide what an unclear outcome means for the value.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::attempt::Retries;
use super::keys::Key;
use super::rows::parse;
use super::table::Table;
use crate::domain::account::{Revision, Versioned};
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore, VALUE_BYTES_MAX};
use crate::ports::world::World;

pub(super) struct AzureSyncStore {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ValueRow {
    value: String,
}

#[async_trait]
impl SyncStore for AzureSyncStore {
    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        let doing = "reading a shared value";
        let key = key(name);
        let found = Retries::new(&self.world).retry_read(|| self.table.get(&key)).await;
        let Some(found) = found.map_err(|failure| failure.into_fault(doing))? else { return Ok(None) };
        let row: ValueRow = parse(&found, doing)?;
        Ok(Some(Versioned { value: row.value, revision: found.revision }))
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        assert!(value.len() <= VALUE_BYTES_MAX, "a shared value of {} bytes", value.len());
        let (key, row) = (key(name), ValueRow { value: value.to_owned() });
        let swapped = match expected {
            Some(expected) => self.table.merge(&key, &row, expected).await,
            None => self.table.insert(&key, &row).await,
        };
        match swapped {
            Ok(revision) => Ok(Swapped::Done(revision)),
            // The row was changed, already exists, or no longer exists.
            Err(failure) if [404, 409, 412].into_iter().any(|status| failure.has_status(status)) => {
                Ok(Swapped::Conflict)
            }
            Err(failure) => Err(failure.into_fault("swapping a shared value")),
        }
    }
}

fn key(name: &str) -> Key {
    Key::new("value", name)
}
