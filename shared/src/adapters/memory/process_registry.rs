//! The processes that can be called, by id.

use async_trait::async_trait;

use super::MemoryStore;
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::{ProcessId, Roster, RosterEntry};

#[async_trait]
impl Roster for MemoryStore {
    async fn announce(&self, entry: &RosterEntry) -> Result<(), StoreFault> {
        self.count_row("update");
        self.step(|tables| tables.roster.insert(entry.id, entry.clone()));
        Ok(())
    }

    async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault> {
        self.count_row("delete");
        self.step(|tables| tables.roster.remove(&id));
        Ok(())
    }

    async fn list(&self) -> Result<Vec<RosterEntry>, StoreFault> {
        self.count_query();
        Ok(self.step(|tables| tables.roster.values().cloned().collect()))
    }
}
