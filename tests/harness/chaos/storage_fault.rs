//! What can befall a request to the storage, how often, and what of it was done.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::proxy::Service;

/// Of a thousand requests, those that something befalls: mostly few; now and then so many that whoever
/// asks gives up after all its attempts.
const PER_MILLE: [u32; 6] = [20, 20, 60, 60, 150, 700];
/// Requests until the weather changes.
const SPELL_REQUESTS: u64 = 150;
/// Shortest and longest wait of a request that is only delayed, in milliseconds.
const DELAY_MS: std::ops::Range<u64> = 20..1_200;
/// The same for one that arrives when whoever sent it has given it up: the adapter waits 4 seconds.
const LATE_MS: std::ops::Range<u64> = 4_100..6_000;

/// Something that befalls one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    /// It arrives later than it could.
    Delayed,
    /// It arrives when nobody waits for the answer any more, and is done then.
    Late,
    /// The connection closes; the request does not arrive.
    CutBefore,
    /// It is done, and the connection closes instead of the answer.
    AnswerLost,
    /// It is done, and the connection closes in the middle of the answer.
    CutWithin,
    /// 500, and nothing was done.
    Failed,
    /// 500, although it was done.
    FailedAfter,
    /// 503, and nothing was done.
    Busy,
    /// 503, although it was done.
    BusyAfter,
    /// 412 to a write under a condition, though the condition may hold; nothing was done. Between a
    /// client and the service somebody may have repeated a write whose answer was lost.
    Refused,
    /// A write arrives twice, and the answer is that to the second: 409 or 412 for what was done.
    Repeated,
}

impl Mishap {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Delayed,
        Self::Late,
        Self::CutBefore,
        Self::AnswerLost,
        Self::CutWithin,
        Self::Failed,
        Self::FailedAfter,
        Self::Busy,
        Self::BusyAfter,
        Self::Refused,
        Self::Repeated,
    ];

    /// In words, for a summary.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Late => "done after it was given up",
            Self::CutBefore => "cut before it arrived",
            Self::AnswerLost => "done, answer lost",
            Self::CutWithin => "done, cut within the answer",
            Self::Failed => "500, not done",
            Self::FailedAfter => "500, done",
            Self::Busy => "503, not done",
            Self::BusyAfter => "503, done",
            Self::Refused => "412, not done",
            Self::Repeated => "done twice, second answer",
        }
    }

    /// How often, compared with the others. What applies to few requests weighs more, what holds
    /// everything up for seconds less.
    const fn weight(self) -> u32 {
        match self {
            Self::Refused => 12,
            Self::Repeated => 4,
            Self::Delayed
            | Self::CutBefore
            | Self::AnswerLost
            | Self::CutWithin
            | Self::Failed
            | Self::FailedAfter
            | Self::Busy
            | Self::BusyAfter => 2,
            Self::Late => 1,
        }
    }

    const fn may_befall(self, request: Traits) -> bool {
        (!matches!(self, Self::Refused) || request.conditional)
            && (!matches!(self, Self::Repeated) || request.writes)
    }
}

/// What decides which mishaps make sense for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traits {
    /// It changes something.
    pub(super) writes: bool,
    /// It does so only while a row is as it was read.
    pub(super) conditional: bool,
}

/// Decides what befalls requests, and counts it. Shared by the proxies of a run.
#[derive(Debug)]
pub struct Dice(Mutex<State>);

#[derive(Debug)]
struct State {
    rng: StdRng,
    rough: bool,
    per_mille: u32,
    requests: u64,
    by_service: BTreeMap<Service, u64>,
    counts: BTreeMap<Mishap, u64>,
}

impl Dice {
    /// Dice that fall as the seed says. Nothing befalls requests until [`Self::set_rough`].
    pub fn new(seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        Self(Mutex::new(State {
            rng,
            rough: false,
            per_mille: 0,
            requests: 0,
            by_service: BTreeMap::new(),
            counts: BTreeMap::new(),
        }))
    }

    /// From now on requests have mishaps, or none has.
    pub fn set_rough(&self, rough: bool) {
        self.lock().rough = rough;
    }

    /// Requests so far, by service.
    pub fn requests(&self) -> BTreeMap<Service, u64> {
        self.lock().by_service.clone()
    }

    /// How often each mishap was done to a request so far.
    pub fn counts(&self) -> BTreeMap<Mishap, u64> {
        self.lock().counts.clone()
    }

    /// What is to befall a request.
    pub(super) fn roll(&self, service: Service, request: Traits) -> Option<Mishap> {
        let mut state = self.lock();
        if state.requests.is_multiple_of(SPELL_REQUESTS) {
            let spell = state.rng.random_range(0..PER_MILLE.len());
            state.per_mille = *PER_MILLE.get(spell).expect("a place within");
        }
        state.requests = state.requests.saturating_add(1);
        let of_service = state.by_service.entry(service).or_default();
        *of_service = of_service.saturating_add(1);
        if !state.rough || state.rng.random_range(0..1000) >= state.per_mille {
            return None;
        }
        let fitting = || Mishap::ALL.into_iter().filter(|mishap| mishap.may_befall(request));
        let mut ticket = state.rng.random_range(0..fitting().map(Mishap::weight).sum());
        fitting().find(|mishap| match ticket.checked_sub(mishap.weight()) {
            Some(rest) => {
                ticket = rest;
                false
            }
            None => true,
        })
    }

    /// How long a request with that mishap is held back before it is forwarded.
    pub(super) fn wait_before(&self, mishap: Option<Mishap>) -> Duration {
        let range = match mishap {
            Some(Mishap::Delayed) => DELAY_MS,
            Some(Mishap::Late) => LATE_MS,
            _ => return Duration::ZERO,
        };
        Duration::from_millis(self.lock().rng.random_range(range))
    }

    /// Notes what was really done.
    pub(super) fn note(&self, mishap: Mishap) {
        let mut state = self.lock();
        let count = state.counts.entry(mishap).or_default();
        *count = count.saturating_add(1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolled(dice: &Dice, request: Traits) -> BTreeMap<Mishap, u64> {
        let mut rolled: BTreeMap<Mishap, u64> = BTreeMap::new();
        for mishap in (0..20_000).filter_map(|_| dice.roll(Service::Table, request)) {
            let count = rolled.entry(mishap).or_default();
            *count = count.saturating_add(1);
        }
        rolled
    }

    #[test]
    fn everything_befalls_a_conditional_write_and_a_read_is_never_refused_or_repeated() {
        let dice = Dice::new(1);
        let write = Traits { writes: true, conditional: true };
        assert!(rolled(&dice, write).is_empty(), "the weather is calm");
        dice.set_rough(true);
        assert_eq!(rolled(&dice, write).into_keys().collect::<Vec<_>>(), Mishap::ALL);
        let read = rolled(&dice, Traits { writes: false, conditional: false });
        assert_eq!(read.len(), Mishap::ALL.len().saturating_sub(2), "{read:?}");
        assert!(!read.contains_key(&Mishap::Refused) && !read.contains_key(&Mishap::Repeated));
    }
}
