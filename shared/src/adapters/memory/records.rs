//! The records, stored by collection and id.

use async_trait::async_trait;

use super::{MemoryStore, Tables};
use crate::domain::account::{Revision, Versioned};
use crate::ports::fault::StoreFault;
use crate::ports::records::{Collection, Record, Records, assert_id, assert_record, id_range};
use crate::ports::sync_store::Swapped;

#[async_trait]
impl Records for MemoryStore {
    async fn find(&self, collection: Collection, id: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        assert_id(id);
        self.count_row("get");
        Ok(self.step(|tables| tables.records.get(&(collection, id.to_owned())).cloned()))
    }

    async fn list(
        &self,
        collection: Collection,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreFault> {
        let ids = id_range(prefix, after);
        self.count_query();
        Ok(self.step(|tables| {
            let found = tables.records.range((collection, ids.start)..(collection, ids.end)).take(limit);
            found.map(|((_, id), stored)| Record { id: id.clone(), body: stored.value.clone() }).collect()
        }))
    }

    async fn save(
        &self,
        collection: Collection,
        id: &str,
        body: &str,
        expected: Option<&Revision>,
    ) -> Result<Swapped, StoreFault> {
        assert_record(id, body);
        self.count_row(if expected.is_some() { "update" } else { "insert" });
        let key = (collection, id.to_owned());
        Ok(self.step(|Tables { records, numbers, .. }| {
            if records.get(&key).map(|stored| &stored.revision) != expected {
                return Swapped::Conflict;
            }
            let revision = numbers.revision();
            records.insert(key, Versioned { value: body.to_owned(), revision: revision.clone() });
            Swapped::Done(revision)
        }))
    }

    async fn remove(&self, collection: Collection, id: &str) -> Result<(), StoreFault> {
        assert_id(id);
        self.count_row("delete");
        self.step(|tables| tables.records.remove(&(collection, id.to_owned())));
        Ok(())
    }
}
