//! The process registry of a process, reached over the network.

use async_trait::async_trait;
use postonce_shared::ports::process_registry::{ProcessId, ProcessRegistry, RegisteredProcess};
use postonce_shared::testing::prelude::*;

use super::mutations::Mutation;
use super::network::{StoreRequest, now};
use super::ports::StoreConnection;

#[async_trait]
impl ProcessRegistry for StoreConnection {
    async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault> {
        let mut kept = entry.clone();
        if self.makes(Mutation::SurvivorCountsAsEnded) {
            kept.attempts_survived = 0;
        }
        self.request(StoreRequest::write("announce", entry.id), move |network| {
            now(network.raw.process_registry.announce(&kept))
        })
        .await
    }

    async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault> {
        self.request(StoreRequest::write("withdraw", id), move |network| {
            now(network.raw.process_registry.withdraw(id))
        })
        .await
    }

    async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
        let read = self
            .request(StoreRequest::read("processes", ""), |network| now(network.raw.process_registry.list()));
        let mut entries = read.await?;
        if self.makes(Mutation::SurvivorCountsAsEnded) {
            entries.iter_mut().for_each(|entry| entry.next_by = Timestamp::from_unix_ms(0));
        }
        Ok(entries)
    }
}
