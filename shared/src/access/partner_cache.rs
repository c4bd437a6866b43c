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

use std::error::Error;
use std::hash::{BuildHasher as _, Hash, RandomState};
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
/// Number of places for the last change of a partner. Partners with the same place end each other's standing.
const PLACES: usize = 4096;
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
    changes: Arc<Changes>,
}

struct Answers<K: Hash + Eq, G, R> {
    granted: LruCache<K, CachedGrant<G>>,
    refused: LruCache<K, (R, Duration)>,
    /// The number of the last call of [`PartnerCache::forget`]. An answer that was requested before a call about its partner is
    /// not cached after it.
    last_change: u64,
}

/// The number of the last change of each partner.
struct Changes {
    last: Vec<AtomicU64>,
    /// Has a random seed per process, so that a client cannot choose a partner id with the place of another partner.
    hasher: RandomState,
}

impl Changes {
    fn place_of(&self, partner: &PartnerId) -> usize {
        // The upper half of the hash fits in any `usize`.
        usize::try_from(self.hasher.hash_one(partner) >> 32).unwrap_or_default().wrapping_rem(PLACES)
    }

    /// Returns whether the partner at a place changed after the change with that number.
    fn has_changed(&self, place: usize, seen: u64) -> bool {
        self.last.get(place).is_none_or(|last| last.load(Ordering::SeqCst) > seen)
    }

    /// Records the number of a change of one partner, or of all partners.
    fn note(&self, partner: Option<&PartnerId>, number: u64) {
        let changed = match partner.map(|partner| self.place_of(partner)) {
            Some(place) => self.last.get(place..=place),
            None => self.last.get(..),
        };
        changed.into_iter().flatten().for_each(|last| last.store(number, Ordering::SeqCst));
    }
}

/// Tells whether a grant can be used without another look-up. After a wait, a caller checks this before it uses the grant, and looks
/// the grant up again if the standing is not current. The usual check compares two numbers.
#[derive(Clone)]
pub struct Standing(Option<Basis>);

#[derive(Clone)]
struct Basis {
    world: Arc<dyn World>,
    changes: Arc<Changes>,
    /// The place of the partner in `changes`.
    place: usize,
    /// The last change before the look-up.
    seen: u64,
    until: Duration,
    /// The time from which on the grant does not count.
    expires_at: Option<Timestamp>,
}

impl Standing {
    /// The standing of an act that no partner makes, or whose rights were all used when it began.
    pub const ALWAYS: Self = Self(None);

    /// Returns whether the grant was looked up within a second, its partner has not changed since, and it has not expired.
    pub fn is_current(&self) -> bool {
        self.0.as_ref().is_none_or(|basis| basis.world.uptime() < basis.until) && self.is_unchanged()
    }

    /// As [`Self::is_current`], however long ago the look-up was. For the last check before an act that began while the standing was
    /// current: on a slow store, a look-up before each attempt would always be too long ago.
    pub fn is_unchanged(&self) -> bool {
        self.0.as_ref().is_none_or(|Basis { world, changes, place, seen, expires_at, .. }| {
            !changes.has_changed(*place, *seen) && expires_at.is_none_or(|at| world.now() < at)
        })
    }

    /// Checks that the rights are unchanged. Acts with several steps call this directly before each write. A repetition of the act
    /// looks the rights up again. `doing` describes the act in the fault.
    ///
    /// # Errors
    /// [`StoreFault::Refused`] because of [`RightsChanged`]: nothing is written.
    pub fn check(&self, doing: &'static str) -> Result<(), StoreFault> {
        let refused = || StoreFault::Refused { doing, source: RightsChanged.into() };
        if self.is_unchanged() { Ok(()) } else { Err(refused()) }
    }

    /// Returns whether it is not current only because the look-up was too long ago.
    pub fn is_late(&self) -> bool {
        self.0.as_ref().is_some_and(|Basis { world, changes, place, seen, until, .. }| {
            !changes.has_changed(*place, *seen) && world.uptime() >= *until
        })
    }

    /// Returns this standing of a grant that expires at that time.
    #[must_use]
    pub fn until(self, expires_at: Option<Timestamp>) -> Self {
        Self(self.0.map(|basis| Basis { expires_at, ..basis }))
    }
}

/// The rights of the caller have changed since they were looked up.
#[derive(Debug, thiserror::Error)]
#[error("the rights of the caller have changed")]
pub struct RightsChanged;

impl RightsChanged {
    /// Returns whether it is an error, or the cause of it.
    pub fn is_cause_of(error: &(dyn Error + 'static)) -> bool {
        error.is::<Self>() || error.source().is_some_and(Self::is_cause_of)
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
        let last = (0..PLACES).map(|_| AtomicU64::default()).collect();
        let changes = Arc::new(Changes { last, hasher: RandomState::new() });
        Self { world, answers: Mutex::new(Answers { granted, refused, last_change: 0 }), changes }
    }

    /// Returns a grant that was looked up at that time, after the change with that number, with its standing.
    fn standing(&self, grant: Arc<G>, (seen, looked_up_at): (u64, Duration)) -> (Arc<G>, Standing) {
        let standing = Standing(Some(Basis {
            world: Arc::clone(&self.world),
            changes: Arc::clone(&self.changes),
            place: self.changes.place_of(grant.partner()),
            seen,
            until: looked_up_at.saturating_add(STANDING_TTL),
            expires_at: None,
        }));
        (grant, standing)
    }

    /// Removes the answers about one partner, or about all partners. Answers that are being read are not
    /// cached.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        let mut answers = self.answers.lock();
        answers.last_change = answers.last_change.saturating_add(1);
        self.changes.note(partner, answers.last_change);
        answers.refused.clear();
        let Some(partner) = partner else { return answers.granted.clear() };
        let of_partner = answers.granted.iter().filter(|(_, cached)| cached.grant.partner() == partner);
        let keys: Vec<K> = of_partner.map(|(key, _)| key.clone()).collect();
        for key in keys {
            answers.granted.pop(&key);
        }
    }

    /// Returns the cached answer for a key, or else that of `load`, which is polled only when it is needed; a grant with its
    /// standing.
    ///
    /// # Errors
    /// [`StoreFault`] of `load`, unless a cached grant can be used instead.
    pub async fn get_or_load(
        &self,
        key: &K,
        load: impl Future<Output = Result<Answer<G, R>, StoreFault>>,
    ) -> Result<Result<(Arc<G>, Standing), R>, StoreFault> {
        let now = self.world.uptime();
        let (lookup, seen) = self.lookup(key, now);
        let old = match lookup {
            Lookup::Granted(grant) => return Ok(Ok(self.standing(grant, (seen, now)))),
            Lookup::Refused(refusal) => return Ok(Err(refusal)),
            Lookup::Stale(grant) => Some(grant),
            Lookup::Missing => None,
        };
        let answer = match (load.await, old) {
            (Ok(Answer::Granted(grant)), _) => Ok(Arc::new(grant)),
            (Ok(Answer::Refused(refusal)), _) => Err(refusal),
            (Ok(Answer::NotYet(refusal)), _) => return Ok(Err(refusal)),
            (Err(fault), Some(old)) if fault.is_transient() && !self.has_changed(&old, seen) => {
                let (partner, why) = (old.partner(), chain(&fault));
                tracing::warn!(
                    "The permissions of {partner} cannot be refreshed, cached ones are used: {why}"
                );
                return Ok(Ok(self.standing(old, (seen, now))));
            }
            (Err(fault), _) => return Err(fault),
        };
        self.insert(key, answer.clone(), (seen, now));
        Ok(answer.map(|grant| self.standing(grant, (seen, now))))
    }

    /// Returns whether the partner of a grant changed after the change with that number.
    fn has_changed(&self, grant: &G, seen: u64) -> bool {
        self.changes.has_changed(self.changes.place_of(grant.partner()), seen)
    }

    /// Returns the cached answer for a key, with the number of the last change.
    fn lookup(&self, key: &K, now: Duration) -> (Lookup<G, R>, u64) {
        let mut answers = self.answers.lock();
        let seen = answers.last_change;
        if let Some(cached) = answers.granted.get_mut(key).filter(|cached| now < cached.ends_at) {
            let grant = Arc::clone(&cached.grant);
            if now < cached.refresh_at {
                return (Lookup::Granted(grant), seen);
            }
            cached.refresh_at = now.saturating_add(REFRESH_GRACE);
            return (Lookup::Stale(grant), seen);
        }
        match answers.refused.get(key) {
            Some((refusal, until)) if now < *until => (Lookup::Refused(refusal.clone()), seen),
            Some(_) | None => (Lookup::Missing, seen),
        }
    }

    fn insert(&self, key: &K, answer: Result<Arc<G>, R>, (seen, loaded_at): (u64, Duration)) {
        let mut answers = self.answers.lock();
        match answer {
            Ok(grant) if !self.has_changed(&grant, seen) => {
                let refresh_at = loaded_at.saturating_add(GRANT_FRESH);
                let ends_at = loaded_at.saturating_add(GRANT_TTL);
                answers.refused.pop(key);
                answers.granted.put(key.clone(), CachedGrant { grant, refresh_at, ends_at });
            }
            Ok(_) => {}
            Err(refusal) => {
                answers.granted.pop(key);
                if answers.last_change == seen {
                    answers.refused.put(key.clone(), (refusal, loaded_at.saturating_add(ABSENT_TTL)));
                }
            }
        }
    }
}
