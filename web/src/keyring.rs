//! Looks up API keys, and remembers both answers for a while: who calls often costs nothing, and a
//! flood of one wrong key does not reach the store.
//!
//! A revoked key works for at most [`FOUND_TTL`] longer. When a remembered key gets old, the first
//! request asks the store; those that come meanwhile go on with what is remembered.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::ports::api_keys::{ApiKeyRecord, ApiKeys};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::world::World;
use subtle::ConstantTimeEq as _;

use crate::api_keys::{KEY_CHARS_MAX, hash, id_of};
use crate::scopes::Scope;

/// How long a key that was found is used without asking again.
pub const FOUND_TTL: Duration = Duration::from_secs(30);
/// How long a key that was not found stays refused without asking again.
pub const ABSENT_TTL: Duration = Duration::from_secs(5);
/// How long the others go on with an old key while one request asks again.
const REFRESH_GRACE: Duration = Duration::from_secs(5);
/// Keys that are remembered, of each kind: a flood of wrong ones must not push out the good ones.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// Who calls, and what its key allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The partner of the key.
    pub partner: PartnerId,
    /// The scopes of the key.
    pub scopes: Vec<Scope>,
}

/// The API keys of the store, with a memory.
pub struct Keyring {
    store: Arc<dyn ApiKeys>,
    world: Arc<dyn World>,
    memory: Mutex<Memory>,
    awaits_first_key: AtomicBool,
}

struct Memory {
    found: LruCache<[u8; 32], (Arc<Grant>, Duration)>,
    absent: LruCache<[u8; 32], Duration>,
}

enum Remembered {
    Found(Arc<Grant>),
    Absent,
    Nothing,
}

impl Keyring {
    /// A keyring that remembers nothing yet.
    pub fn new(store: Arc<dyn ApiKeys>, world: Arc<dyn World>) -> Self {
        let memory = Memory { found: LruCache::new(REMEMBERED_MAX), absent: LruCache::new(REMEMBERED_MAX) };
        Self { store, world, memory: Mutex::new(memory), awaits_first_key: AtomicBool::new(false) }
    }

    /// From now on an unknown key may be the store's first one, which is on its way: it must not be
    /// called wrong.
    pub fn await_first_key(&self) {
        self.awaits_first_key.store(true, Ordering::Release);
    }

    /// The store knows its first key: what is unknown from now on is wrong.
    pub fn first_key_is_known(&self) {
        self.awaits_first_key.store(false, Ordering::Release);
    }

    /// Whether an unknown key may be right.
    pub fn awaits_first_key(&self) -> bool {
        self.awaits_first_key.load(Ordering::Acquire)
    }

    /// Whether looking up a key means to ask the store for one that was never right here.
    pub fn is_unseen(&self, key: &str) -> bool {
        if key.len() > KEY_CHARS_MAX {
            return false;
        }
        let hash = hash(key);
        let now = self.world.uptime();
        let memory = self.memory();
        let is_wrong = memory.absent.peek(&hash).is_some_and(|until| now < *until);
        !is_wrong && !memory.found.contains(&hash)
    }

    /// What a key grants; `None` when it is not known or was revoked.
    ///
    /// # Errors
    /// [`StoreFault`] when the store has to be asked and does not answer.
    pub async fn look_up(&self, key: &str) -> Result<Option<Arc<Grant>>, StoreFault> {
        if key.len() > KEY_CHARS_MAX {
            return Ok(None);
        }
        let hash = hash(key);
        match self.remembered(&hash) {
            Remembered::Found(grant) => return Ok(Some(grant)),
            Remembered::Absent => return Ok(None),
            Remembered::Nothing => {}
        }
        let too_early = self.awaits_first_key();
        let record = self.store.find(&id_of(&hash)).await?;
        let grant = record.filter(|record| opens(record, &hash)).map(|record| Arc::new(granted(record)));
        if grant.is_some() || !too_early {
            self.remember(hash, grant.clone());
        }
        Ok(grant)
    }

    fn remembered(&self, hash: &[u8; 32]) -> Remembered {
        let now = self.world.uptime();
        let mut memory = self.memory();
        if let Some((grant, until)) = memory.found.get_mut(hash) {
            if now < *until {
                return Remembered::Found(Arc::clone(grant));
            }
            *until = now.saturating_add(REFRESH_GRACE);
            return Remembered::Nothing;
        }
        match memory.absent.get(hash) {
            Some(until) if now < *until => Remembered::Absent,
            Some(_) | None => Remembered::Nothing,
        }
    }

    fn remember(&self, hash: [u8; 32], grant: Option<Arc<Grant>>) {
        let now = self.world.uptime();
        let mut memory = self.memory();
        match grant {
            Some(grant) => {
                memory.absent.pop(&hash);
                memory.found.put(hash, (grant, now.saturating_add(FOUND_TTL)));
            }
            None => {
                memory.found.pop(&hash);
                memory.absent.put(hash, now.saturating_add(ABSENT_TTL));
            }
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a stored key is the one with that hash and still works. In constant time, since the id
/// tells only a part of the hash.
fn opens(record: &ApiKeyRecord, hash: &[u8; 32]) -> bool {
    record.revoked_at.is_none() && bool::from(record.hash.ct_eq(hash))
}

fn granted(record: ApiKeyRecord) -> Grant {
    let ApiKeyRecord { id: _, hash: _, partner, scopes, created_at: _, revoked_at: _ } = record;
    // A scope of a newer program means nothing here.
    let scopes = scopes.iter().filter_map(|code| Scope::from_code(code)).collect();
    Grant { partner, scopes }
}

#[cfg(test)]
mod tests {
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::ports::Store;

    use super::*;
    use crate::api_keys::NewKey;

    struct Desk {
        store: Store,
        world: Arc<TestWorld>,
        keyring: Keyring,
        key: NewKey,
    }

    async fn desk() -> Desk {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let key = NewKey::random();
        let record = key.record(PartnerId::parse("shop").unwrap(), &[Scope::AccountsRead], &*world);
        store.api_keys.add(&record).await.unwrap();
        let keyring = Keyring::new(Arc::clone(&store.api_keys), world.clone());
        Desk { store, world, keyring, key }
    }

    impl Desk {
        fn operations(&self) -> u64 {
            self.store.operations.snapshot().values().sum()
        }

        async fn check(&self, key: &str, known: bool, operations: u64) {
            let before = self.operations();
            let grant = self.keyring.look_up(key).await.unwrap();
            assert_eq!(grant.is_some(), known, "{key}");
            assert_eq!(self.operations().saturating_sub(before), operations, "{key}");
        }
    }

    #[tokio::test]
    async fn the_store_is_asked_once_for_a_good_key_and_once_for_a_wrong_one() {
        let desk = desk().await;
        let key = desk.key.expose().to_owned();
        desk.check(&key, true, 1).await;
        desk.check(&key, true, 0).await;
        desk.check("wrong", false, 1).await;
        desk.check("wrong", false, 0).await;
        desk.world.advance(ABSENT_TTL);
        desk.check("wrong", false, 1).await;
        desk.check(&key, true, 0).await;
        desk.check(&"long".repeat(100), false, 0).await;
    }

    #[tokio::test]
    async fn a_revoked_key_stops_when_its_memory_ends() {
        let desk = desk().await;
        let key = desk.key.expose().to_owned();
        desk.check(&key, true, 1).await;
        let id = id_of(&hash(&key));
        assert!(desk.store.api_keys.revoke(&id, desk.world.now()).await.unwrap());
        desk.check(&key, true, 0).await;
        desk.world.advance(FOUND_TTL);
        desk.check(&key, false, 1).await;
    }

    #[test]
    fn the_whole_hash_has_to_match() {
        let world = TestWorld::new(1);
        let key = NewKey::random();
        let record = key.record(PartnerId::parse("shop").unwrap(), &[], &world);
        let mut forged = hash(key.expose());
        assert!(opens(&record, &forged));
        forged[31] ^= 1;
        assert_eq!(id_of(&forged), record.id);
        assert!(!opens(&record, &forged));
    }
}
