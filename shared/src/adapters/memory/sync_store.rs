//! Named values with compare-and-swap.

use async_trait::async_trait;

use super::{MemoryStore, Tables, assert_name};
use crate::domain::account::{Revision, Versioned};
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore, VALUE_BYTES_MAX};

#[async_trait]
impl SyncStore for MemoryStore {
    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| tables.values.get(name).cloned()))
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        assert_name(name);
        assert!(value.len() <= VALUE_BYTES_MAX, "the value {name} has {} bytes", value.len());
        self.count_row(if expected.is_some() { "merge" } else { "insert" });
        Ok(self.step(|Tables { values, numbers, .. }| {
            if values.get(name).map(|stored| &stored.revision) != expected {
                return Swapped::Conflict;
            }
            let revision = numbers.revision();
            values.insert(name.to_owned(), Versioned { value: value.to_owned(), revision: revision.clone() });
            Swapped::Done(revision)
        }))
    }
}
