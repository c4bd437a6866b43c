//! The process registry, as a process reaches it over the network.

use async_trait::async_trait;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::process_registry::{ProcessId, ProcessRegistry, RegisteredProcess};

use super::mutations::Mutation;
use super::network::{StoreRequest, now};
use super::ports::StoreConnection;

#[async_trait]
impl ProcessRegistry for StoreConnection {
    async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault> {
        let (kept, renews) = (entry.clone(), !self.makes(Mutation::SurvivalNotRecorded));
        self.request(StoreRequest::write("announce", entry.id), move |network| {
            let is_registered = now(network.raw.process_registry.list())?.iter().any(|it| it.id == kept.id);
            if renews || !is_registered { now(network.raw.process_registry.announce(&kept)) } else { Ok(()) }
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
        self.request(StoreRequest::read("processes", ""), |network| now(network.raw.process_registry.list()))
            .await
    }
}
