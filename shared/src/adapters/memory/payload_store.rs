//! Large bodies by reference.

use async_trait::async_trait;

use super::{MemoryStore, assert_name};
use crate::ports::fault::StoreFault;
use crate::ports::operations::{PriceKind, Service};
use crate::ports::payload_store::PayloadStore;

#[async_trait]
impl PayloadStore for MemoryStore {
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault> {
        assert_name(name);
        self.count(Service::Blob, "put", PriceKind::BlobWrite);
        self.step(|tables| {
            if let Some(stored) = tables.payloads.get(name) {
                assert!(stored.as_slice() == body, "the payload {name} was written with another content");
                return;
            }
            tables.payloads.insert(name.to_owned(), body.to_vec());
        });
        Ok(())
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault> {
        self.count(Service::Blob, "get", PriceKind::BlobRead);
        Ok(self.step(|tables| tables.payloads.get(name).cloned()))
    }

    async fn delete(&self, name: &str) -> Result<(), StoreFault> {
        self.count(Service::Blob, "delete", PriceKind::BlobRead);
        self.step(|tables| tables.payloads.remove(name));
        Ok(())
    }
}
