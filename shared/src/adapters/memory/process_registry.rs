//! The process registry, stored by id.

use async_trait::async_trait;

use super::MemoryStore;
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::{ProcessId, ProcessRegistry, RegisteredProcess};

#[async_trait]
impl ProcessRegistry for MemoryStore {
    async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault> {
        self.count_row("update");
        self.step(|tables| tables.processes.insert(entry.id, entry.clone()));
        Ok(())
    }

    async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault> {
        self.count_row("delete");
        self.step(|tables| tables.processes.remove(&id));
        Ok(())
    }

    async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
        self.count_query();
        Ok(self.step(|tables| tables.processes.values().cloned().collect()))
    }
}
