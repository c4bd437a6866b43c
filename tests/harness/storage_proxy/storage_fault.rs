//! The faults of requests to the storage: their frequency, and whether the request is executed.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::request::Service;

/// Number of failing requests per thousand: mostly few, sometimes so many that a sender gives up after all its attempts.
const PER_MILLE: [u32; 6] = [20, 20, 60, 60, 150, 700];
/// Number of requests after which the rate changes.
const RATE_CHANGE_REQUESTS: u64 = 150;
/// Range of the delay of a delayed request, in milliseconds.
const DELAY_MS: std::ops::Range<u64> = 20..1_200;
/// Range of the delay of a request that arrives after its sender gave up. The adapter waits 4 seconds.
const LATE_MS: std::ops::Range<u64> = 4_100..6_000;

/// A fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageFault {
    /// The request is delayed.
    Delayed,
    /// The request is executed after its sender gave up.
    Late,
    /// The connection closes; the request is not forwarded.
    CutBefore,
    /// The request is executed, and the connection closes before the response.
    AnswerLost,
    /// The request is executed, and the connection closes in the middle of the response.
    CutWithin,
    /// The response is 500, and the request is not executed.
    Failed,
    /// The response is 500, although the request is executed.
    FailedAfter,
    /// The response is 503, and the request is not executed.
    Busy,
    /// The response is 503, although the request is executed.
    BusyAfter,
    /// The response to a conditional write is 412, although the condition may hold, and the request is not executed. This happens
    /// when a write whose response was lost is repeated between the client and the service.
    Refused,
    /// A write is executed twice, and the response is the second one: 409 or 412 for a write that succeeded.
    Repeated,
}

impl StorageFault {
    /// All faults.
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

    /// Returns a description for summaries.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Late => "carried out after the sender gave up",
            Self::CutBefore => "cut, not carried out",
            Self::AnswerLost => "carried out, answer lost",
            Self::CutWithin => "carried out, cut within the answer",
            Self::Failed => "500, not carried out",
            Self::FailedAfter => "500, carried out",
            Self::Busy => "503, not carried out",
            Self::BusyAfter => "503, carried out",
            Self::Refused => "412, not carried out",
            Self::Repeated => "carried out twice, second answer",
        }
    }

    /// Returns the relative frequency. Faults of rare requests weigh more; faults that delay everything for seconds weigh less.
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

    const fn applies_to(self, request: RequestTraits) -> bool {
        (!matches!(self, Self::Refused) || request.conditional)
            && (!matches!(self, Self::Repeated) || request.writes)
    }
}

/// The properties that determine which faults apply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestTraits {
    /// Whether the request changes anything.
    pub(super) writes: bool,
    /// Whether the change depends on state that was read.
    pub(super) conditional: bool,
}

/// Determines which requests fail, and counts the faults. The proxies of a run share it.
#[derive(Debug)]
pub struct FaultInjector(Mutex<State>);

#[derive(Debug)]
struct State {
    rng: StdRng,
    enabled: bool,
    per_mille: u32,
    requests: u64,
    by_service: BTreeMap<Service, u64>,
    counts: BTreeMap<StorageFault, u64>,
}

impl FaultInjector {
    /// Creates an injector with this seed. No request fails until [`Self::set_enabled`] is called.
    pub fn new(seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        Self(Mutex::new(State {
            rng,
            enabled: false,
            per_mille: 0,
            requests: 0,
            by_service: BTreeMap::new(),
            counts: BTreeMap::new(),
        }))
    }

    /// Enables or disables faults.
    pub fn set_enabled(&self, enabled: bool) {
        self.lock().enabled = enabled;
    }

    /// Returns the number of requests so far, by service.
    pub fn requests(&self) -> BTreeMap<Service, u64> {
        self.lock().by_service.clone()
    }

    /// Returns the number of occurrences of each fault so far.
    pub fn counts(&self) -> BTreeMap<StorageFault, u64> {
        self.lock().counts.clone()
    }

    /// Draws the fault of a request.
    pub(super) fn draw(&self, service: Service, request: RequestTraits) -> Option<StorageFault> {
        let mut state = self.lock();
        if state.requests.is_multiple_of(RATE_CHANGE_REQUESTS) {
            let rate = state.rng.random_range(0..PER_MILLE.len());
            state.per_mille = *PER_MILLE.get(rate).expect("an index within the list");
        }
        state.requests = state.requests.saturating_add(1);
        let of_service = state.by_service.entry(service).or_default();
        *of_service = of_service.saturating_add(1);
        if !state.enabled || state.rng.random_range(0..1000) >= state.per_mille {
            return None;
        }
        let applicable = || StorageFault::ALL.into_iter().filter(|fault| fault.applies_to(request));
        let mut ticket = state.rng.random_range(0..applicable().map(StorageFault::weight).sum());
        applicable().find(|fault| match ticket.checked_sub(fault.weight()) {
            Some(rest) => {
                ticket = rest;
                false
            }
            None => true,
        })
    }

    /// Returns the time for which a request with this fault is held before it is forwarded.
    pub(super) fn wait_before(&self, fault: StorageFault) -> Duration {
        let range = match fault {
            StorageFault::Delayed => DELAY_MS,
            StorageFault::Late => LATE_MS,
            StorageFault::CutBefore
            | StorageFault::AnswerLost
            | StorageFault::CutWithin
            | StorageFault::Failed
            | StorageFault::FailedAfter
            | StorageFault::Busy
            | StorageFault::BusyAfter
            | StorageFault::Refused
            | StorageFault::Repeated => return Duration::ZERO,
        };
        Duration::from_millis(self.lock().rng.random_range(range))
    }

    /// Counts a fault that was applied.
    pub(super) fn count(&self, fault: StorageFault) {
        let mut state = self.lock();
        let count = state.counts.entry(fault).or_default();
        *count = count.saturating_add(1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// An injector without faults.
impl Default for FaultInjector {
    fn default() -> Self {
        Self::new(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(faults: &FaultInjector, request: RequestTraits) -> BTreeMap<StorageFault, u64> {
        let mut drawn: BTreeMap<StorageFault, u64> = BTreeMap::new();
        for fault in (0..20_000).filter_map(|_| faults.draw(Service::Table, request)) {
            let count = drawn.entry(fault).or_default();
            *count = count.saturating_add(1);
        }
        drawn
    }

    #[test]
    fn every_fault_applies_to_a_conditional_write_and_a_read_is_never_refused_or_repeated() {
        let faults = FaultInjector::new(1);
        let write = RequestTraits { writes: true, conditional: true };
        assert!(drawn(&faults, write).is_empty(), "faults are disabled");
        faults.set_enabled(true);
        assert_eq!(drawn(&faults, write).into_keys().collect::<Vec<_>>(), StorageFault::ALL);
        let read = drawn(&faults, RequestTraits { writes: false, conditional: false });
        assert_eq!(read.len(), StorageFault::ALL.len().saturating_sub(2), "{read:?}");
        assert!(!read.contains_key(&StorageFault::Refused) && !read.contains_key(&StorageFault::Repeated));
    }
}
