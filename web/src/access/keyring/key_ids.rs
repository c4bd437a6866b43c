//! Ids of all API keys that are not revoked. A key whose id is not in the set is refused without a look-up, so a
//! flood of wrong keys does not load the store.
//!
//! The ids are read again when a partner changed or when they are older than [`FRESH`], but only if an unknown key is
//! presented, so an idle process reads nothing. A new key is valid at once in processes that received the broadcast
//! of the change, and within [`FRESH`] in others.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::ApiKeys;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::world::World;

/// Maximum age of the ids before they are read again.
pub const FRESH: Duration = Duration::from_secs(60);
/// Minimum time between two attempts to read the ids while the store is not available.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The ids of the keys that are not revoked.
pub struct KeyIds {
    keys: Arc<dyn ApiKeys>,
    world: Arc<dyn World>,
    known: Mutex<Known>,
    /// Held while the ids are read, so that concurrent requests share one read.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    ids: HashSet<String>,
    /// Time at which the read of the ids started; `None` if they must be read before an unknown key is refused.
    read_at: Option<Duration>,
    /// Time at which the last read failed.
    failed_at: Option<Duration>,
    /// Incremented by [`KeyIds::forget`]. A read that started under an older generation does not count as fresh.
    generation: u64,
}

impl KeyIds {
    /// Creates an empty set. The first unknown key triggers a read.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        let (known, reading) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { keys: Arc::clone(&store.api_keys), world, known, reading }
    }

    /// Invalidates the set: it is read again before another unknown key is refused.
    pub fn forget(&self) {
        let mut known = self.known.lock();
        known.generation = known.generation.wrapping_add(1);
        known.read_at = None;
    }

    /// Returns whether a key with this id may be valid; the store decides. Reads the ids if they could be outdated.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn have(&self, id: &str) -> Result<bool, StoreFault> {
        loop {
            if let Some(known) = self.answer(id)? {
                return Ok(known);
            }
            let _reading = self.reading.lock().await;
            // Another request may have read the ids in the meantime.
            if let Some(known) = self.answer(id)? {
                return Ok(known);
            }
            let (began_at, generation) = (self.world.uptime(), self.known.lock().generation);
            let records = self.keys.list().await;
            let mut known = self.known.lock();
            match records {
                Ok(records) => {
                    let active = records.into_iter().filter(|record| record.revoked_at.is_none());
                    known.ids = active.map(|record| record.id).collect();
                    known.failed_at = None;
                    if known.generation == generation {
                        known.read_at = Some(began_at);
                    }
                }
                Err(fault) => {
                    known.failed_at = Some(self.world.uptime());
                    return Err(fault);
                }
            }
        }
    }

    /// Returns the answer if it needs no read.
    fn answer(&self, id: &str) -> Result<Option<bool>, StoreFault> {
        let now = self.world.uptime();
        let known = self.known.lock();
        if known.ids.contains(id) {
            return Ok(Some(true));
        }
        if known.read_at.is_some_and(|read_at| now.saturating_sub(read_at) < FRESH) {
            return Ok(Some(false));
        }
        if known.failed_at.is_some_and(|failed_at| now.saturating_sub(failed_at) < RETRY_AFTER) {
            return Err(StoreFault::Unavailable {
                doing: "reading the ids of the API keys",
                source: "the last attempt failed less than a second ago".into(),
            });
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::domain::ids::PartnerId;

    use super::*;
    use crate::access::api_keys::NewKey;

    struct Fixture {
        store: Store,
        world: Arc<TestWorld>,
        ids: KeyIds,
    }

    impl Fixture {
        fn new() -> Self {
            let world = Arc::new(TestWorld::new(1));
            let store = MemoryStore::new(world.clone());
            let ids = KeyIds::new(&store, world.clone());
            Self { store, world, ids }
        }

        async fn add(&self) -> String {
            let record = NewKey::random().record(PartnerId::parse("shop").unwrap(), &[], &*self.world);
            self.store.api_keys.add(&record).await.unwrap();
            record.id
        }

        /// Checks an answer, and the number of store operations that it took.
        async fn check(&self, id: &str, expected: bool, operations: u64) {
            let count = || -> u64 { self.store.operations.snapshot().values().sum() };
            let before = count();
            assert_eq!(self.ids.have(id).await.unwrap(), expected, "{id}");
            assert_eq!(count().saturating_sub(before), operations, "{id}");
        }
    }

    #[tokio::test]
    async fn unknown_keys_cost_one_read_in_a_minute_and_known_ones_none() {
        let fixture = Fixture::new();
        let first = fixture.add().await;
        fixture.check("wrong", false, 1).await;
        for _ in 0..100 {
            fixture.check("wrong", false, 0).await;
            fixture.check(&first, true, 0).await;
        }
        let second = fixture.add().await;
        fixture.check(&second, false, 0).await;
        fixture.world.advance(FRESH);
        fixture.check(&first, true, 0).await;
        fixture.check(&second, true, 1).await;
        fixture.check("wrong", false, 0).await;
    }

    #[tokio::test]
    async fn an_announced_change_is_read_at_once() {
        let fixture = Fixture::new();
        fixture.check("wrong", false, 1).await;
        let added = fixture.add().await;
        fixture.ids.forget();
        fixture.check(&added, true, 1).await;
        fixture.check("wrong", false, 0).await;
        fixture.store.api_keys.revoke(&added, fixture.world.now()).await.unwrap();
        fixture.ids.forget();
        // The store refuses the key even before the ids are read again.
        fixture.check("wrong", false, 1).await;
        fixture.check(&added, false, 0).await;
    }
}
