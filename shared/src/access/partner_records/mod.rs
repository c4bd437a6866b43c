//! The partners of a store, one record each. Records are never removed.

pub(crate) mod body;

use std::sync::Arc;

use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::PartnerId;
use crate::domain::partner::Partner;
use crate::ports::Store;
use crate::ports::fault::{Cause, StoreFault};
use crate::ports::records::{Collection, Record, Records};
use crate::ports::sync_store::Swapped;

/// The partners of one store. Clones share it.
#[derive(Clone)]
pub struct PartnerRecords {
    records: Arc<dyn Records>,
}

/// Error: a record cannot be decoded as a partner.
#[derive(Debug, thiserror::Error)]
#[error("the record of the partner {id} is damaged")]
struct Damaged {
    id: String,
    #[source]
    source: Cause,
}

impl PartnerRecords {
    /// Returns a handle to the partners of a store.
    pub fn new(store: &Store) -> Self {
        Self { records: Arc::clone(&store.records) }
    }

    /// Reads a partner in one store operation.
    ///
    /// # Errors
    /// [`StoreFault`] when the partner cannot be read.
    pub async fn find(&self, id: &PartnerId) -> Result<Option<Versioned<Partner>>, StoreFault> {
        let found = self.records.find(Collection::Partners, id.as_str()).await?;
        let Some(Versioned { value: body, revision }) = found else { return Ok(None) };
        let record = Record { id: id.as_str().to_owned(), body };
        Ok(Some(Versioned { value: decode(record, "reading a partner")?, revision }))
    }

    /// Returns at most `limit` partners with ids greater than `after`, in ascending order. A shorter list means that none follow.
    ///
    /// # Errors
    /// [`StoreFault`] when the partners cannot be read.
    pub async fn list(&self, after: Option<&PartnerId>, limit: usize) -> Result<Vec<Partner>, StoreFault> {
        let after = after.map(PartnerId::as_str);
        let records = self.records.list(Collection::Partners, "", after, limit).await?;
        records.into_iter().map(|record| decode(record, "listing the partners")).collect()
    }

    /// Writes a partner if its revision is still `expected` (`None`: if it does not exist). Never retries.
    ///
    /// # Errors
    /// [`StoreFault`]; the write may have happened, or may still happen.
    pub async fn save(&self, partner: &Partner, expected: Option<&Revision>) -> Result<Swapped, StoreFault> {
        let body = body::encode(partner);
        self.records.save(Collection::Partners, partner.id.as_str(), &body, expected).await
    }
}

fn decode(record: Record, doing: &'static str) -> Result<Partner, StoreFault> {
    let Record { id, body } = record;
    let partner = PartnerId::parse(&id).map_err(Cause::from);
    let partner = partner.and_then(|partner| body::decode(partner, &body).map_err(Cause::from));
    partner.map_err(|source| StoreFault::Corrupt { doing, source: Damaged { id, source }.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;
    use crate::domain::partner::Reach;
    use crate::domain::time::Timestamp;
    use crate::ports::fault::chain;

    #[tokio::test]
    async fn partners_are_read_as_they_were_saved_and_damage_is_reported() {
        let store = MemoryStore::new(Arc::new(TestWorld::new(1)));
        let (partners, records) = (PartnerRecords::new(&store), &store.records);
        let [mill, shop] = ["mill", "shop"].map(|name| {
            let id = PartnerId::parse(name).unwrap();
            Partner::active(id, Reach::Everything, Timestamp::from_unix_ms(7))
        });
        assert_eq!(partners.find(&shop.id).await.unwrap(), None);
        for partner in [&shop, &mill] {
            let Swapped::Done(revision) = partners.save(partner, None).await.unwrap() else { panic!() };
            let stored = Versioned { value: partner.clone(), revision };
            assert_eq!(partners.find(&partner.id).await.unwrap(), Some(stored));
        }
        assert_eq!(partners.list(None, 9).await.unwrap(), [mill.clone(), shop.clone()]);
        assert_eq!(partners.list(Some(&mill.id), 9).await.unwrap(), std::slice::from_ref(&shop));

        for (id, body) in [("tram", "{}"), ("0", &body::encode(&shop))] {
            assert!(matches!(
                records.save(Collection::Partners, id, body, None).await.unwrap(),
                Swapped::Done(_)
            ));
            let fault = partners.list(None, 9).await.unwrap_err();
            assert!(matches!(fault, StoreFault::Corrupt { .. }), "{fault:?}");
            assert!(
                chain(&fault).contains(&format!("the record of the partner {id} is damaged")),
                "{fault:?}"
            );
        }
        let fault = partners.find(&PartnerId::parse("tram").unwrap()).await.unwrap_err();
        assert!(matches!(fault, StoreFault::Corrupt { .. }), "{fault:?}");
        assert_eq!(partners.list(Some(&mill.id), 1).await.unwrap(), [shop], "the others can be read");
    }
}
