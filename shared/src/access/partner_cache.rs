//! A cache of the store's answers about partners, so that a partner with many requests costs few operations
//! of the store. The check of API keys and the check of direct orders use it.
//!
//! A cached answer ends in one of three ways:
//!
//! 1. A process that changes a partner invalidates the caches of all others ([`PartnerCache::forget`]), so that
//!    the change is effective at once.
//! 2. When that call is lost, the change is effective after [`GRANT_FRESH`]: the next request reads the store,
//!    while concurrent ones are still answered from the cache.
//! 3. While the store is not available, an answer is used until [`GRANT_TTL`] at most.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::domain::ids::PartnerId;
use crate::domain::time::Timestamp;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::world::World;

/// Time for which a grant is used before it is read again.
pub const GRANT_FRESH: Duration = Duration::from_secs(60);
/// Longest time for which a grant is used, counted from before it was read: a little less than the
/// 5 minutes that are promised, so that a request that was admitted at the last moment ends in time.
pub const GRANT_TTL: Duration = Duration::from_secs(5 * 60 - 10);
/// Time for which a refusal is used before it is read again.
pub const ABSENT_TTL: Duration = Duration::from_secs(5);
/// Time for which concurrent requests use an old grant while one of them reads it again.
const REFRESH_GRACE: Duration = Duration::from_secs(5);
/// Time for which a [`Standing`] is current without a look at the cache, which decides when the store is read again.
const STANDING_TTL: Duration = Duration::from_secs(1);
/// Largest number of cached answers of each kind. A flood of refusals must not evict the grants.
const CACHED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// A grant of one partner.
pub trait OfPartner {
    /// The partner.
    fn partner(&self) -> &PartnerId;
}

/// An answer of the store.
#[derive(Debug)]
pub enum Answer<G, R> {
    /// Granted; cached for up to [`GRANT_TTL`].
    Granted(G),
    /// Refused; cached for [`ABSENT_TTL`].
    Refused(R),
    /// Refused for now; not cached.
    NotYet(R),
}

/// Cached answers of the store, by key: grants `G` and refusals `R`.
pub struct PartnerCache<K: Hash + Eq, G, R> {
    world: Arc<dyn World>,
    answers: Mutex<Answers<K, G, R>>,
    /// Incremented by [`PartnerCache::forget`]. An answer that was requested before such a call is not cached
    /// after it.
    generation: Arc<AtomicU64>,
}

struct Answers<K: Hash + Eq, G, R> {
    granted: LruCache<K, CachedGrant<G>>,
    refused: LruCache<K, (R, Duration)>,
}

/// Whether a grant that was looked up can be relied on without another look-up. Who waits between the look-up and the act
/// that needs the grant asks this before the act, and if it is not current, looks the grant up again. The usual answer costs
/// a comparison of numbers.
#[derive(Clone)]
pub struct Standing(Option<Basis>);

#[derive(Clone)]
struct Basis {
    world: Arc<dyn World>,
    generation: Arc<AtomicU64>,
    /// The generation before the look-up.
    seen: u64,
    until: Duration,
    /// The time from which on the grant does not count.
    expires_at: Option<Timestamp>,
}

impl Standing {
    /// The standing of an act that no partner makes, or whose rights were all used when it began.
    pub const ALWAYS: Self = Self(None);

    /// Returns whether the grant was looked up within a second, no partner changed since, and it has not expired.
    pub fn is_current(&self) -> bool {
        self.0.as_ref().is_none_or(|basis| basis.world.uptime() < basis.until) && self.is_unchanged()
    }

    /// As [`Self::is_current`], however long ago the look-up was. For the last check before an act that began while the standing was
    /// current: on a slow store, a look-up before each attempt would always be too long ago.
    pub fn is_unchanged(&self) -> bool {
        self.0.as_ref().is_none_or(|Basis { world, generation, seen, expires_at, .. }| {
            generation.load(Ordering::SeqCst) == *seen && expires_at.is_none_or(|at| world.now() < at)
        })
    }

    /// Returns whether it is not current only because the look-up was too long ago.
    pub fn is_late(&self) -> bool {
        self.0.as_ref().is_some_and(|Basis { world, generation, seen, until, .. }| {
            generation.load(Ordering::SeqCst) == *seen && world.uptime() >= *until
        })
    }

    /// Returns this standing of a grant that expires at that time.
    #[must_use]
    pub fn until(self, expires_at: Option<Timestamp>) -> Self {
        Self(self.0.map(|basis| Basis { expires_at, ..basis }))
    }
}

/// The rights on which a request was admitted. They are checked, and if necessary confirmed, after a wait.
pub trait Rights {
    /// Returns whether they can be relied on now.
    fn standing(&self) -> &Standing;

    /// Looks them up again. Returns false if they have ended, or cannot be read.
    fn confirm(&mut self) -> impl Future<Output = bool>;
}

/// A standing alone cannot be looked up again: it is confirmed only while it is current.
impl Rights for Standing {
    fn standing(&self) -> &Standing {
        self
    }

    async fn confirm(&mut self) -> bool {
        self.is_current()
    }
}

/// A cached grant.
struct CachedGrant<G> {
    grant: Arc<G>,
    refresh_at: Duration,
    ends_at: Duration,
}

enum Lookup<G, R> {
    /// It can be used.
    Granted(Arc<G>),
    /// It should be read again; if that fails, it can be used.
    Stale(Arc<G>),
    /// It can be used.
    Refused(R),
    Missing,
}

impl<K: Hash + Eq + Clone, G: OfPartner, R: Clone> PartnerCache<K, G, R> {
    /// Creates an empty cache.
    pub fn new(world: Arc<dyn World>) -> Self {
        let (granted, refused) = (LruCache::new(CACHED_MAX), LruCache::new(CACHED_MAX));
        Self { world, answers: Mutex::new(Answers { granted, refused }), generation: Arc::default() }
    }

    /// Returns the standing of a grant that is looked up after this call.
    pub fn standing(&self) -> Standing {
        Standing(Some(Basis {
            world: Arc::clone(&self.world),
            generation: Arc::clone(&self.generation),
            seen: self.generation.load(Ordering::SeqCst),
            until: self.world.uptime().saturating_add(STANDING_TTL),
            expires_at: None,
        }))
    }

    /// Removes the answers about one partner, or about all partners. Answers that are being read are not
    /// cached.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        let mut answers = self.answers.lock();
        self.generation.fetch_add(1, Ordering::SeqCst);
        answers.refused.clear();
        let Some(partner) = partner else { return answers.granted.clear() };
        let of_partner = answers.granted.iter().filter(|(_, cached)| cached.grant.partner() == partner);
        let keys: Vec<K> = of_partner.map(|(key, _)| key.clone()).collect();
        for key in keys {
            answers.granted.pop(&key);
        }
    }

    /// Returns the cached answer for a key, or else that of `load`, which is polled only when it is needed.
    ///
    /// # Errors
    /// [`StoreFault`] of `load`, unless a cached grant can be used instead.
    pub async fn get_or_load(
        &self,
        key: &K,
        load: impl Future<Output = Result<Answer<G, R>, StoreFault>>,
    ) -> Result<Result<Arc<G>, R>, StoreFault> {
        let (lookup, generation) = self.lookup(key);
        let old = match lookup {
            Lookup::Granted(grant) => return Ok(Ok(grant)),
            Lookup::Refused(refusal) => return Ok(Err(refusal)),
            Lookup::Stale(grant) => Some(grant),
            Lookup::Missing => None,
        };
        let loaded_at = self.world.uptime();
        match (load.await, old) {
            (Ok(Answer::Granted(grant)), _) => {
                let grant = Arc::new(grant);
                self.insert(key, Ok(Arc::clone(&grant)), (generation, loaded_at));
                Ok(Ok(grant))
            }
            (Ok(Answer::Refused(refusal)), _) => {
                self.insert(key, Err(refusal.clone()), (generation, loaded_at));
                Ok(Err(refusal))
            }
            (Ok(Answer::NotYet(refusal)), _) => Ok(Err(refusal)),
            (Err(fault), Some(old))
                if fault.is_transient() && self.generation.load(Ordering::SeqCst) == generation =>
            {
                let (partner, why) = (old.partner(), chain(&fault));
                tracing::warn!(
                    "The permissions of {partner} cannot be refreshed, cached ones are used: {why}"
                );
                Ok(Ok(old))
            }
            (Err(fault), _) => Err(fault),
        }
    }

    /// Returns the cached answer for a key, with the current generation.
    fn lookup(&self, key: &K) -> (Lookup<G, R>, u64) {
        let now = self.world.uptime();
        let mut answers = self.answers.lock();
        let generation = self.generation.load(Ordering::SeqCst);
        if let Some(cached) = answers.granted.get_mut(key).filter(|cached| now < cached.ends_at) {
            let grant = Arc::clone(&cached.grant);
            if now < cached.refresh_at {
                return (Lookup::Granted(grant), generation);
            }
            cached.refresh_at = now.saturating_add(REFRESH_GRACE);
            return (Lookup::Stale(grant), generation);
        }
        match answers.refused.get(key) {
            Some((refusal, until)) if now < *until => (Lookup::Refused(refusal.clone()), generation),
            Some(_) | None => (Lookup::Missing, generation),
        }
    }

    fn insert(&self, key: &K, answer: Result<Arc<G>, R>, (generation, loaded_at): (u64, Duration)) {
        let mut answers = self.answers.lock();
        if self.generation.load(Ordering::SeqCst) != generation {
            return;
        }
        match answer {
            Ok(grant) => {
                let refresh_at = loaded_at.saturating_add(GRANT_FRESH);
                let ends_at = loaded_at.saturating_add(GRANT_TTL);
                answers.refused.pop(key);
                answers.granted.put(key.clone(), CachedGrant { grant, refresh_at, ends_at });
            }
            Err(refusal) => {
                answers.granted.pop(key);
                answers.refused.put(key.clone(), (refusal, loaded_at.saturating_add(ABSENT_TTL)));
            }
        }
    }
}
