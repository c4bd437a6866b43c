//! The partners, by id.

use std::ops::Bound;

use async_trait::async_trait;

use super::{MemoryStore, Tables};
use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::PartnerId;
use crate::domain::partner::Partner;
use crate::ports::fault::StoreFault;
use crate::ports::partners::Partners;
use crate::ports::sync_store::Swapped;

#[async_trait]
impl Partners for MemoryStore {
    async fn find(&self, id: &PartnerId) -> Result<Option<Versioned<Partner>>, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| tables.partners.get(id).cloned()))
    }

    async fn list(&self, after: Option<&PartnerId>, limit: usize) -> Result<Vec<Partner>, StoreFault> {
        self.count_query();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.step(|tables| {
            let found = tables.partners.range::<PartnerId, _>((from, Bound::Unbounded)).take(limit);
            found.map(|(_, stored)| stored.value.clone()).collect()
        }))
    }

    async fn save(&self, partner: &Partner, expected: Option<&Revision>) -> Result<Swapped, StoreFault> {
        self.count_row(if expected.is_some() { "merge" } else { "insert" });
        Ok(self.step(|Tables { partners, numbers, .. }| {
            if partners.get(&partner.id).map(|stored| &stored.revision) != expected {
                return Swapped::Conflict;
            }
            let stored = Versioned { value: partner.clone(), revision: numbers.revision() };
            partners.insert(partner.id.clone(), stored.clone());
            Swapped::Done(stored.revision)
        }))
    }
}
