//! Looks up API keys, and remembers both answers for a while: who calls often costs nothing, and a
//! flood of one wrong key does not reach the store.
//!
//! A key works when the store has it and it was not revoked, *and* the record of its partner lists it, *and*
//! the partner is active. A change of any of these is rung to all processes ([`Keyring::forget`]), so that it
//! counts at once. Where a ring is not heard it counts after a minute, as the first request then asks the
//! store again while others go on with what is remembered; and within [`GRANT_TTL`] at the latest, also
//! while the store does not answer.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::Partner;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::{ApiKeyRecord, ApiKeys};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::partners::Partners;
use postonce_shared::ports::world::World;
use subtle::ConstantTimeEq as _;

use crate::api_keys::{KEY_CHARS_MAX, hash, id_of};
use crate::scopes::Scope;

/// How long a grant is used before a request asks the store again.
pub const GRANT_FRESH: Duration = Duration::from_secs(60);
/// How long a grant is used at the very most, counted from before the store was asked: a little less than the
/// 5 minutes that are promised, so that a request that was let in at the last moment ends in time.
pub const GRANT_TTL: Duration = Duration::from_secs(5 * 60 - 10);
/// How long a key that was not found stays refused without asking again.
pub const ABSENT_TTL: Duration = Duration::from_secs(5);
/// How long the others go on with an old grant while one request asks again.
const REFRESH_GRACE: Duration = Duration::from_secs(5);
/// Keys that are remembered, of each kind: a flood of wrong ones must not push out the good ones.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// Who calls, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The id of the key.
    pub key_id: String,
    /// The scopes of the key.
    pub scopes: Vec<Scope>,
    /// The partner of the key, as it was when the key was looked up.
    pub partner: Arc<Partner>,
}

impl Grant {
    /// Whether the key allows what needs that scope.
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own.includes(scope))
    }
}

/// The API keys of the store and their partners, with a memory.
pub struct Keyring {
    keys: Arc<dyn ApiKeys>,
    partners: Arc<dyn Partners>,
    world: Arc<dyn World>,
    memory: Mutex<Memory>,
    awaits_first_key: AtomicBool,
}

struct Memory {
    found: LruCache<[u8; 32], Held>,
    absent: LruCache<[u8; 32], Duration>,
    /// Grows with every ring: what was looked up before one is not remembered after it.
    rings: u64,
}

/// A grant that is remembered.
struct Held {
    grant: Arc<Grant>,
    refresh_at: Duration,
    ends_at: Duration,
}

enum Remembered {
    /// It can be used.
    Found(Arc<Grant>),
    /// It should be looked up again; if that is not possible now, it can be used.
    Old(Arc<Grant>),
    /// It is known to be wrong.
    Absent,
    Nothing,
}

impl Keyring {
    /// A keyring that remembers nothing yet.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        let (found, absent) = (LruCache::new(REMEMBERED_MAX), LruCache::new(REMEMBERED_MAX));
        Self {
            keys: Arc::clone(&store.api_keys),
            partners: Arc::clone(&store.partners),
            world,
            memory: Mutex::new(Memory { found, absent, rings: 0 }),
            awaits_first_key: AtomicBool::new(false),
        }
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

    /// The time, for signatures.
    pub fn now(&self) -> Timestamp {
        self.world.now()
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

    /// Something about that partner or its keys changed, or about any partner: what is remembered of it, and
    /// every look-up that is under way, counts no more.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        let mut memory = self.memory();
        memory.rings = memory.rings.wrapping_add(1);
        memory.absent.clear();
        let Some(partner) = partner else { return memory.found.clear() };
        let of_partner = memory.found.iter().filter(|(_, held)| held.grant.partner.id == *partner);
        let hashes: Vec<[u8; 32]> = of_partner.map(|(hash, _)| *hash).collect();
        for hash in hashes {
            memory.found.pop(&hash);
        }
    }

    /// What a key grants; `None` when it is not known, was revoked, or its partner may not call.
    ///
    /// # Errors
    /// [`StoreFault`] when the store has to be asked and does not answer.
    pub async fn look_up(&self, key: &str) -> Result<Option<Arc<Grant>>, StoreFault> {
        if key.len() > KEY_CHARS_MAX {
            return Ok(None);
        }
        let hash = hash(key);
        let (remembered, rings) = self.remembered(&hash);
        let old = match remembered {
            Remembered::Found(grant) => return Ok(Some(grant)),
            Remembered::Absent => return Ok(None),
            Remembered::Old(grant) => Some(grant),
            Remembered::Nothing => None,
        };
        let (too_early, asked_at) = (self.awaits_first_key(), self.world.uptime());
        let grant = match (self.ask(&hash).await, old) {
            (Ok(grant), _) => grant.map(Arc::new),
            (Err(fault), Some(old)) if fault.is_transient() && self.rings() == rings => {
                tracing::warn!(
                    "A key of {} cannot be looked up again now: {}",
                    old.partner.id,
                    chain(&fault)
                );
                return Ok(Some(old));
            }
            (Err(fault), _) => return Err(fault),
        };
        if grant.is_some() || !too_early {
            self.remember(hash, grant.clone(), (rings, asked_at));
        }
        Ok(grant)
    }

    async fn ask(&self, hash: &[u8; 32]) -> Result<Option<Grant>, StoreFault> {
        let record = self.keys.find(&id_of(hash)).await?;
        let Some(record) = record.filter(|record| opens(record, hash)) else { return Ok(None) };
        let partner = self.partners.find(&record.partner).await?.map(|stored| stored.value);
        Ok(partner.filter(|partner| partner.admits(&record.id)).map(|partner| granted(record, partner)))
    }

    /// What is remembered of a key, and how many rings were heard by then.
    fn remembered(&self, hash: &[u8; 32]) -> (Remembered, u64) {
        let now = self.world.uptime();
        let mut memory = self.memory();
        let rings = memory.rings;
        if let Some(held) = memory.found.get_mut(hash).filter(|held| now < held.ends_at) {
            let grant = Arc::clone(&held.grant);
            if now < held.refresh_at {
                return (Remembered::Found(grant), rings);
            }
            held.refresh_at = now.saturating_add(REFRESH_GRACE);
            return (Remembered::Old(grant), rings);
        }
        match memory.absent.get(hash) {
            Some(until) if now < *until => (Remembered::Absent, rings),
            Some(_) | None => (Remembered::Nothing, rings),
        }
    }

    /// Remembers an answer, unless a ring came since it was asked for: the answer may be of before.
    fn remember(&self, hash: [u8; 32], grant: Option<Arc<Grant>>, (rings, asked_at): (u64, Duration)) {
        let mut memory = self.memory();
        if memory.rings != rings {
            return;
        }
        match grant {
            Some(grant) => {
                let (refresh_at, ends_at) =
                    (asked_at.saturating_add(GRANT_FRESH), asked_at.saturating_add(GRANT_TTL));
                memory.absent.pop(&hash);
                memory.found.put(hash, Held { grant, refresh_at, ends_at });
            }
            None => {
                memory.found.pop(&hash);
                memory.absent.put(hash, asked_at.saturating_add(ABSENT_TTL));
            }
        }
    }

    fn rings(&self) -> u64 {
        self.memory().rings
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

fn granted(record: ApiKeyRecord, partner: Partner) -> Grant {
    let ApiKeyRecord { id, hash: _, partner: _, scopes, created_at: _, revoked_at: _ } = record;
    Grant { key_id: id, scopes: Scope::of_codes(&scopes), partner: Arc::new(partner) }
}

#[cfg(test)]
mod tests;
