//! Records the use of keys. A process writes at most once a day for each key, in the background, so a recorded time
//! is usually at most a day older than the last use.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use lru::LruCache;
use parking_lot::Mutex;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::api_keys::ApiKeys;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;

use super::Grant;

/// Time during which further uses of a key are not recorded.
pub(super) const RECORDED_AGAIN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of remembered keys. The use of an evicted key is recorded again.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// The uses that this process has recorded.
pub(super) struct KeyUses {
    keys: Arc<dyn ApiKeys>,
    world: Arc<dyn World>,
    /// Time of the last recorded use, by key id.
    recorded: Mutex<LruCache<String, Timestamp>>,
}

impl KeyUses {
    pub(super) fn new(keys: Arc<dyn ApiKeys>, world: Arc<dyn World>) -> Self {
        Self { keys, world, recorded: Mutex::new(LruCache::new(KEYS_MAX)) }
    }

    /// Records a use, unless this process recorded one within the last day or `grant` shows that another process did.
    /// A failed write is not repeated before the next day, because nothing depends on it.
    pub(super) fn note(&self, grant: &Grant, now: Timestamp) {
        if !self.is_due(grant, now) {
            return;
        }
        let (keys, id) = (Arc::clone(&self.keys), grant.key_id.clone());
        let write = async move {
            if let Err(fault) = keys.mark_used(&id, now).await {
                tracing::debug!("The use of an API key was not recorded: {}", chain(&fault));
            }
        };
        self.world.spawn(write.boxed());
    }

    /// Returns whether to record a use, and remembers it as recorded.
    fn is_due(&self, grant: &Grant, now: Timestamp) -> bool {
        let mut recorded = self.recorded.lock();
        let last = recorded.get(&grant.key_id).copied().max(grant.last_used_at);
        if last.is_some_and(|last| now.since(last) < RECORDED_AGAIN_AFTER) {
            return false;
        }
        recorded.put(grant.key_id.clone(), now);
        true
    }
}
