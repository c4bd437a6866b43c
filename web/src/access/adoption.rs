//! One-time migration of API keys that are older than the partner records: keys that were valid before the
//! upgrade stay valid. After the migration, a key whose partner has no record is refused.

use std::collections::BTreeMap;

use postonce_shared::access::partner_records::PartnerRecords;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{ActiveKey, Partner, Reach};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::sync_store::Swapped;
use postonce_shared::ports::world::World;

/// Shared value that marks the migration as done.
const ADOPTED: &str = "partners-adopted";

/// Creates a record for every partner that has keys but no record. The record reaches everything and lists all
/// active keys, even if they are more than the current maximum. A partner with only revoked keys gets a record
/// without keys. Does nothing when the migration is already done. Several processes may run it concurrently.
///
/// # Errors
/// [`StoreFault`] when the migration may be incomplete. It is safe to retry.
pub async fn adopt(store: &Store, world: &dyn World) -> Result<(), StoreFault> {
    if store.sync.get(ADOPTED).await?.is_some() {
        return Ok(());
    }
    let mut keys: BTreeMap<PartnerId, Vec<ActiveKey>> = BTreeMap::new();
    for record in store.api_keys.list().await? {
        let of_partner = keys.entry(record.partner).or_default();
        if record.revoked_at.is_none() {
            of_partner.push(ActiveKey { id: record.id, created_at: record.created_at });
        }
    }
    let partners = PartnerRecords::new(store);
    for (id, mut keys) in keys {
        keys.sort_by_key(|key| key.created_at);
        let partner = Partner { keys, ..Partner::active(id, Reach::Everything, world.now()) };
        match partners.save(&partner, None).await? {
            Swapped::Done(_) => {
                tracing::info!(
                    "Created a record for partner {}, which reaches everything as before",
                    partner.id
                );
            }
            // Another process created it first, and an operator may have changed it since.
            Swapped::Conflict => {}
        }
    }
    match store.sync.swap(ADOPTED, None, "1").await? {
        Swapped::Done(_) | Swapped::Conflict => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;

    use super::*;
    use crate::access::api_keys::NewKey;
    use crate::access::keyring::Keyring;
    use crate::access::scopes::Scope;

    #[tokio::test]
    async fn only_keys_that_were_valid_before_the_upgrade_are_valid_after_it() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let old_key = async |partner: &str, revoked: bool| {
            let key = NewKey::random();
            let record = key.record(PartnerId::parse(partner).unwrap(), &[Scope::Read], &*world);
            store.api_keys.add(&record).await.unwrap();
            if revoked {
                assert!(store.api_keys.revoke(&record.id, world.now()).await.unwrap());
            }
            key
        };
        let works = async |key: &NewKey| {
            Keyring::new(&store, world.clone()).look_up(key.expose()).await.unwrap().is_some()
        };
        let shop = [old_key("shop", false).await, old_key("shop", false).await, old_key("shop", false).await];
        let (revoked, gone) = (old_key("shop", true).await, old_key("gone", true).await);
        assert!(!works(&shop[0]).await, "a key of a partner without a record is refused");
        let (one, other) = futures::future::join(adopt(&store, &*world), adopt(&store, &*world)).await;
        assert!(one.is_ok() && other.is_ok());
        for key in &shop {
            assert!(works(key).await);
        }
        assert!(!works(&revoked).await && !works(&gone).await);
        let partners = PartnerRecords::new(&store).list(None, 10).await.unwrap();
        let sizes: Vec<_> = partners.iter().map(|it| (it.id.as_str(), it.keys.len())).collect();
        assert_eq!(sizes, [("gone", 0), ("shop", 3)]);

        let late = old_key("late", false).await;
        adopt(&store, &*world).await.unwrap();
        assert!(!works(&late).await, "the migration runs once: later, a missing record means refusal");
    }
}
