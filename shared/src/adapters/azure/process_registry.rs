//! The process registry. It has one row per process in a single partition, so that one scan reads them all.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::attempt::Retries;
use super::invalid_property::InvalidProperty;
use super::keys::Key;
use super::rows::{corrupt, parse, time};
use super::table::{Found, Table};
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::{Address, ProcessId, ProcessKind, ProcessRegistry, RegisteredProcess};
use crate::ports::world::World;

const PARTITION: &str = "process";

pub(super) struct AzureProcessRegistry {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EntryRow {
    kind: String,
    address: String,
    started_at: String,
    next_by: String,
    survivals: String,
    level: u32,
}

impl EntryRow {
    fn of(entry: &RegisteredProcess) -> Self {
        let RegisteredProcess {
            id: _,
            kind,
            address,
            started_at,
            next_by,
            attempts_survived: survivals,
            level,
        } = entry;
        Self {
            kind: kind.code().to_owned(),
            address: address.to_string(),
            started_at: started_at.unix_ms().to_string(),
            next_by: next_by.unix_ms().to_string(),
            survivals: survivals.to_string(),
            level: *level,
        }
    }

    /// Returns the entry, or `None` if its kind is unknown to this program, because a newer program wrote it.
    fn to_entry(&self, id: &str) -> Result<Option<RegisteredProcess>, InvalidProperty> {
        let Some(kind) = ProcessKind::from_code(&self.kind) else { return Ok(None) };
        Ok(Some(RegisteredProcess {
            id: ProcessId::parse(id).ok_or(InvalidProperty("RowKey"))?,
            kind,
            address: Address::parse(&self.address).map_err(|_| InvalidProperty("Address"))?,
            started_at: time(&self.started_at, "StartedAt")?,
            next_by: time(&self.next_by, "NextBy")?,
            attempts_survived: self.survivals.parse().map_err(|_| InvalidProperty("Survivals"))?,
            level: self.level,
        }))
    }
}

fn read(found: &Found, doing: &'static str) -> Result<Option<RegisteredProcess>, StoreFault> {
    let row: EntryRow = parse(found, doing)?;
    row.to_entry(found.key.row()).map_err(|invalid| corrupt(found, doing, invalid))
}

fn key(id: ProcessId) -> Key {
    Key::new(PARTITION, id.simple())
}

#[async_trait]
impl ProcessRegistry for AzureProcessRegistry {
    async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault> {
        let (key, row) = (key(entry.id), EntryRow::of(entry));
        let mut retries = Retries::new(&self.world);
        let written = retries.retry_write(|| self.table.replace(&key, &row)).await;
        written.map_err(|failure| retries.fault(failure, "announcing a process"))
    }

    async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault> {
        let key = key(id);
        let mut retries = Retries::new(&self.world);
        let removed = retries.retry_write(|| self.table.remove(&key)).await;
        removed.map_err(|failure| retries.fault(failure, "withdrawing a process"))
    }

    async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
        let doing = "reading the process registry";
        let rows = self.table.partition(PARTITION, &self.world, doing).await?;
        rows.iter().filter_map(|found| read(found, doing).transpose()).collect()
    }
}
