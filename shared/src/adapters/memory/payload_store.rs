//! Large bodies, stored by name. A cursor is the last name of the previous page.

use std::ops::Bound;

use async_trait::async_trait;

use super::{MemoryStore, assert_name};
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::operations::{PriceKind, Service};
use crate::ports::payload_store::{PayloadEntry, PayloadStore};

pub(super) struct Payload {
    body: Vec<u8>,
    stored_at: Timestamp,
}

#[async_trait]
impl PayloadStore for MemoryStore {
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault> {
        assert_name(name);
        self.count(Service::Blob, "put", PriceKind::BlobWrite);
        let payload = Payload { body: body.to_vec(), stored_at: self.world.now() };
        self.step(|tables| {
            if let Some(stored) = tables.payloads.get(name) {
                assert!(stored.body == body, "the payload {name} exists with other content");
                return;
            }
            tables.payloads.insert(name.to_owned(), payload);
        });
        Ok(())
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault> {
        self.count(Service::Blob, "get", PriceKind::BlobRead);
        Ok(self.step(|tables| tables.payloads.get(name).map(|payload| payload.body.clone())))
    }

    async fn delete(&self, name: &str) -> Result<(), StoreFault> {
        self.count(Service::Blob, "delete", PriceKind::BlobRead);
        self.step(|tables| tables.payloads.remove(name));
        Ok(())
    }
    async fn list(
        &self,
        prefix: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<PayloadEntry>, StoreFault> {
        self.count(Service::Blob, "list", PriceKind::BlobWrite);
        let start = cursor.map_or(Bound::Included(prefix), Bound::Excluded);
        Ok(self.step(|tables| {
            let payloads = tables.payloads.range::<str, _>((start, Bound::Unbounded));
            let found = payloads.take_while(|(name, _)| name.starts_with(prefix));
            let entry = |(name, payload): (&String, &Payload)| PayloadEntry {
                name: name.clone(),
                stored_at: payload.stored_at,
            };
            Listing::first_of(found.map(entry), limit, |payload| payload.name.clone())
        }))
    }
}
