//! Remembers for a while what the store said about partners, so that a partner who acts often costs no
//! operations of the store. Both the check of API keys and the check of direct orders use it.
//!
//! A remembered answer ends in one of three ways:
//!
//! 1. A process that changes a partner tells all others ([`PartnerCache::forget`]), so that the change counts
//!    at once.
//! 2. Where that call is lost, the change counts after [`GRANT_FRESH`]: the next question goes to the store,
//!    while concurrent ones are still answered from memory.
//! 3. While the store does not answer, an answer is used until [`GRANT_TTL`] at most.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::domain::ids::PartnerId;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::world::World;

/// How long a grant is used before the store is asked again.
pub const GRANT_FRESH: Duration = Duration::from_secs(60);
/// How long a grant is used at the very most, counted from before the store was asked: a little less than the
/// 5 minutes that are promised, so that a request that was let in at the last moment ends in time.
pub const GRANT_TTL: Duration = Duration::from_secs(5 * 60 - 10);
/// How long a refusal is repeated without asking again.
pub const ABSENT_TTL: Duration = Duration::from_secs(5);
/// How long concurrent questions are answered with an old grant while one of them asks again.
const REFRESH_GRACE: Duration = Duration::from_secs(5);
/// Answers that are remembered, of each kind: a flood of refusals must not push out the grants.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// Something that a partner was granted.
pub trait OfPartner {
    /// The partner.
    fn partner(&self) -> &PartnerId;
}

/// What the store says.
#[derive(Debug)]
pub enum Answer<G, R> {
    /// Granted. It is remembered for up to [`GRANT_TTL`].
    Granted(G),
    /// Refused. It is remembered for [`ABSENT_TTL`].
    Refused(R),
    /// Refused for now. It is not remembered.
    NotYet(R),
}

/// Answers of the store, by key: grants `G` and refusals `R`.
pub struct PartnerCache<K: Hash + Eq, G, R> {
    world: Arc<dyn World>,
    answers: Mutex<Answers<K, G, R>>,
}

struct Answers<K: Hash + Eq, G, R> {
    granted: LruCache<K, Held<G>>,
    refused: LruCache<K, (R, Duration)>,
    /// How often [`PartnerCache::forget`] was called: an answer that was asked for before a call is not
    /// remembered after it.
    generation: u64,
}

/// A grant that is remembered.
struct Held<G> {
    grant: Arc<G>,
    refresh_at: Duration,
    ends_at: Duration,
}

enum Remembered<G, R> {
    /// It can be used.
    Granted(Arc<G>),
    /// The store should be asked again; if it does not answer, it can be used.
    Old(Arc<G>),
    /// It can be used.
    Refused(R),
    Nothing,
}

impl<K: Hash + Eq + Clone, G: OfPartner, R: Clone> PartnerCache<K, G, R> {
    /// A memory without answers.
    pub fn new(world: Arc<dyn World>) -> Self {
        let (granted, refused) = (LruCache::new(REMEMBERED_MAX), LruCache::new(REMEMBERED_MAX));
        Self { world, answers: Mutex::new(Answers { granted, refused, generation: 0 }) }
    }

    /// Whether nothing is remembered for the key, so that the store has to be asked.
    pub fn is_unknown(&self, key: &K) -> bool {
        let now = self.world.uptime();
        let answers = self.answers.lock();
        let is_refused = answers.refused.peek(key).is_some_and(|(_, until)| now < *until);
        !is_refused && !answers.granted.contains(key)
    }

    /// Forgets what is remembered of a partner, or, without one, of all partners. Answers that are under way
    /// are not remembered.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        let mut answers = self.answers.lock();
        answers.generation = answers.generation.wrapping_add(1);
        answers.refused.clear();
        let Some(partner) = partner else { return answers.granted.clear() };
        let of_partner = answers.granted.iter().filter(|(_, held)| held.grant.partner() == partner);
        let keys: Vec<K> = of_partner.map(|(key, _)| key.clone()).collect();
        for key in keys {
            answers.granted.pop(&key);
        }
    }

    /// The answer for a key: the remembered one, or else that of `ask`, which is only polled when it is needed.
    ///
    /// # Errors
    /// [`StoreFault`] of `ask`, unless a remembered grant can be used instead.
    pub async fn recall(
        &self,
        key: &K,
        ask: impl Future<Output = Result<Answer<G, R>, StoreFault>>,
    ) -> Result<Result<Arc<G>, R>, StoreFault> {
        let (remembered, generation) = self.remembered(key);
        let old = match remembered {
            Remembered::Granted(grant) => return Ok(Ok(grant)),
            Remembered::Refused(refusal) => return Ok(Err(refusal)),
            Remembered::Old(grant) => Some(grant),
            Remembered::Nothing => None,
        };
        let asked_at = self.world.uptime();
        match (ask.await, old) {
            (Ok(Answer::Granted(grant)), _) => {
                let grant = Arc::new(grant);
                self.remember(key, Ok(Arc::clone(&grant)), (generation, asked_at));
                Ok(Ok(grant))
            }
            (Ok(Answer::Refused(refusal)), _) => {
                self.remember(key, Err(refusal.clone()), (generation, asked_at));
                Ok(Err(refusal))
            }
            (Ok(Answer::NotYet(refusal)), _) => Ok(Err(refusal)),
            (Err(fault), Some(old))
                if fault.is_transient() && self.answers.lock().generation == generation =>
            {
                let (partner, why) = (old.partner(), chain(&fault));
                tracing::warn!("What {partner} may do cannot be read again now: {why}");
                Ok(Ok(old))
            }
            (Err(fault), _) => Err(fault),
        }
    }

    /// What is remembered for a key, and the generation of it.
    fn remembered(&self, key: &K) -> (Remembered<G, R>, u64) {
        let now = self.world.uptime();
        let mut answers = self.answers.lock();
        let generation = answers.generation;
        if let Some(held) = answers.granted.get_mut(key).filter(|held| now < held.ends_at) {
            let grant = Arc::clone(&held.grant);
            if now < held.refresh_at {
                return (Remembered::Granted(grant), generation);
            }
            held.refresh_at = now.saturating_add(REFRESH_GRACE);
            return (Remembered::Old(grant), generation);
        }
        match answers.refused.get(key) {
            Some((refusal, until)) if now < *until => (Remembered::Refused(refusal.clone()), generation),
            Some(_) | None => (Remembered::Nothing, generation),
        }
    }

    fn remember(&self, key: &K, answer: Result<Arc<G>, R>, (generation, asked_at): (u64, Duration)) {
        let mut answers = self.answers.lock();
        if answers.generation != generation {
            return;
        }
        match answer {
            Ok(grant) => {
                let refresh_at = asked_at.saturating_add(GRANT_FRESH);
                let ends_at = asked_at.saturating_add(GRANT_TTL);
                answers.refused.pop(key);
                answers.granted.put(key.clone(), Held { grant, refresh_at, ends_at });
            }
            Err(refusal) => {
                answers.granted.pop(key);
                answers.refused.put(key.clone(), (refusal, asked_at.saturating_add(ABSENT_TTL)));
            }
        }
    }
}
