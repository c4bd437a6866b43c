//! Checks that the partner of direct producers exists. Without it, each of their orders becomes a dead letter.

use postonce_shared::access::partner_records::PartnerRecords;
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::world::World;

/// The setting `legacy-partner` names a partner that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "legacy-partner (POSTONCE_LEGACY_PARTNER) is {0}, but there is no such partner, so orders of direct producers become dead \
     letters: create it with `postonce-web partners add {0} --all-accounts`, or with --user or --account instead, or \
     correct the setting (`postonce-web partners list` shows all partners)"
)]
pub struct LegacyPartnerUnknown(PartnerId);

/// Searches the store for the partner.
///
/// # Errors
/// [`StoreFault`] when the store cannot be read.
pub async fn find(
    partner: &PartnerId,
    store: &Store,
) -> Result<Result<(), LegacyPartnerUnknown>, StoreFault> {
    let found = PartnerRecords::new(store).find(partner).await?;
    Ok(found.map(drop).ok_or_else(|| LegacyPartnerUnknown(partner.clone())))
}

/// Logs an error if the partner does not exist, once the store can be read. The partner may still be created later.
pub async fn report(partner: PartnerId, store: Store, world: &dyn World) {
    let mut backoff = STORE_NEEDED.start();
    loop {
        match find(&partner, &store).await {
            Ok(Ok(())) => return,
            Ok(Err(unknown)) => return tracing::error!("{unknown}"),
            Err(fault) if fault.is_transient() => world.sleep(backoff.next(world)).await,
            Err(fault) => return tracing::error!("legacy-partner cannot be checked: {}", chain(&fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::domain::partner::{Partner, Reach};
    use postonce_shared::ports::sync_store::Swapped;

    use super::*;

    #[tokio::test]
    async fn a_partner_that_does_not_exist_is_named_with_the_command_that_creates_it() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let shop = PartnerId::parse("shop").unwrap();
        let unknown = find(&shop, &store).await.unwrap().unwrap_err().to_string();
        for part in ["POSTONCE_LEGACY_PARTNER", "is shop,", "`postonce-web partners add shop --all-accounts`"]
        {
            assert!(unknown.contains(part), "{unknown}");
        }
        let partner = Partner::active(shop.clone(), Reach::Everything, world.now());
        let saved = PartnerRecords::new(&store).save(&partner, None).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)));
        assert_eq!(find(&shop, &store).await.unwrap(), Ok(()));
    }
}
