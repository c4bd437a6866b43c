//! The processes that can be called: one row each, all in one partition, so that one scan gives them.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::attempt::Patience;
use super::flaw::Flaw;
use super::keys::Key;
use super::rows::{corrupt, parse, time};
use super::table::{Found, ROWS_MAX, Scanned, Table};
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::{Address, ProcessId, ProcessKind, ProcessRegistry, RegisteredProcess};
use crate::ports::world::World;

const PARTITION: &str = "process";

/// The roster of one store.
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
}

impl EntryRow {
    fn of(entry: &RegisteredProcess) -> Self {
        let RegisteredProcess { id: _, kind, address, started_at, next_by } = entry;
        Self {
            kind: kind.code().to_owned(),
            address: address.to_string(),
            started_at: started_at.unix_ms().to_string(),
            next_by: next_by.unix_ms().to_string(),
        }
    }

    /// `None` when a newer program wrote it for a kind of its own.
    fn to_entry(&self, id: &str) -> Result<Option<RegisteredProcess>, Flaw> {
        let Some(kind) = ProcessKind::from_code(&self.kind) else { return Ok(None) };
        Ok(Some(RegisteredProcess {
            id: ProcessId::parse(id).ok_or(Flaw("RowKey"))?,
            kind,
            address: Address::parse(&self.address).map_err(|_| Flaw("Address"))?,
            started_at: time(&self.started_at, "StartedAt")?,
            next_by: time(&self.next_by, "NextBy")?,
        }))
    }
}

fn read(found: &Found, doing: &'static str) -> Result<Option<RegisteredProcess>, StoreFault> {
    let row: EntryRow = parse(found, doing)?;
    row.to_entry(found.key.row()).map_err(|flaw| corrupt(found, doing, flaw))
}

fn key(id: ProcessId) -> Key {
    Key::new(PARTITION, id.simple())
}

#[async_trait]
impl ProcessRegistry for AzureProcessRegistry {
    async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault> {
        let (key, row) = (key(entry.id), EntryRow::of(entry));
        let mut patience = Patience::new(&self.world);
        let written = patience.repeat_write(|| self.table.replace(&key, &row)).await;
        written.map_err(|failure| patience.fault(failure, "announcing a process"))
    }

    async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault> {
        let key = key(id);
        let mut patience = Patience::new(&self.world);
        let removed = patience.repeat_write(|| self.table.remove(&key)).await;
        removed.map_err(|failure| patience.fault(failure, "withdrawing a process"))
    }

    async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
        let doing = "reading the roster";
        let filter = format!("PartitionKey eq '{PARTITION}'");
        let (mut entries, mut continuation) = (Vec::new(), None);
        loop {
            let mut patience = Patience::new(&self.world);
            let scanned = patience.repeat(|| self.table.scan(&filter, ROWS_MAX, continuation.as_ref())).await;
            let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
            for found in &rows {
                entries.extend(read(found, doing)?);
            }
            match next {
                Some(next) => continuation = Some(next),
                None => return Ok(entries),
            }
        }
    }
}
