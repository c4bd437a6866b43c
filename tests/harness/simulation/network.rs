//! Between a process and the store: every request takes its time, may get lost on the way there or
//! back, may come late or twice. A request that is under way goes on when its process dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use postonce_shared::messaging::envelope;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::queue::QueueName;
use tokio::sync::oneshot;

use super::auditor::Auditor;
use super::faults::{Fault, FaultCounts, FaultMix, length};
use super::mutations::Mutation;
use super::scheduler::{Life, Scheduler};
use super::trace::Trace;

/// Longest way to the store, or back, on a good day.
const TRIP_MAX: Duration = Duration::from_millis(8);
/// The same on a bad one.
const SLOW_TRIP_MAX: Duration = Duration::from_millis(2_000);
/// Longest time after which a client of the store gives up.
const TIMEOUT_MAX: Duration = Duration::from_secs(12);
/// Of a thousand requests to the store, how many are followed by a crash within a few steps, where
/// crashes happen at all: the most telling moments are those around a write.
const CRASH_AROUND_WRITE_PERMILLE: u32 = 8;

/// What is asked of the store.
#[derive(Debug, Clone)]
pub struct Request {
    /// The operation.
    pub name: &'static str,
    /// On what, for the trace.
    pub on: String,
    /// Whether it changes anything.
    pub writes: bool,
    /// Whether the client of the store repeats it by itself.
    pub repeats: bool,
}

impl Request {
    /// A read.
    pub fn read(name: &'static str, on: impl ToString) -> Self {
        Self { name, on: on.to_string(), writes: false, repeats: false }
    }

    /// A write that the client of the store repeats when it hears no answer.
    pub fn write(name: &'static str, on: impl ToString) -> Self {
        Self { name, on: on.to_string(), writes: true, repeats: true }
    }

    /// A write that it never repeats.
    pub fn write_once(name: &'static str, on: impl ToString) -> Self {
        Self { name, on: on.to_string(), writes: true, repeats: false }
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Twice,
    Hit(Fault),
}

struct Weather {
    mix: FaultMix,
    counts: FaultCounts,
    /// What lasts until when.
    spells: BTreeMap<Fault, Duration>,
    /// A life that is to end in so many steps.
    doomed: Option<(Life, u64)>,
}

/// The network and the store at its end.
pub struct Network {
    /// Who decides what happens next.
    pub scheduler: Scheduler,
    /// Watches every write.
    pub auditor: Arc<Auditor>,
    /// A mistake to be found.
    pub mutation: Option<Mutation>,
    /// The store itself.
    pub raw: Store,
    /// The same store without a look at transaction rows, for a mistake that needs one.
    pub unguarded: Store,
    trace: Mutex<Trace>,
    weather: Mutex<Weather>,
}

impl Network {
    /// A network to a store (and to the same without guards of rows).
    pub fn new(
        scheduler: Scheduler,
        (raw, unguarded): (Store, Store),
        auditor: Arc<Auditor>,
        mutation: Option<Mutation>,
        (mix, trace): (FaultMix, Trace),
    ) -> Self {
        let weather = Weather { mix, counts: FaultCounts::default(), spells: BTreeMap::new(), doomed: None };
        let (trace, weather) = (Mutex::new(trace), Mutex::new(weather));
        Self { scheduler, auditor, mutation, raw, unguarded, trace, weather }
    }

    /// Notes an event in the trace.
    pub fn note(&self, event: impl AsRef<str>) {
        let (steps, now) = (self.scheduler.steps(), self.scheduler.now());
        self.trace.lock().note(steps, now, event.as_ref());
    }

    /// What is known of the trace: its sum and its last lines.
    pub fn trace(&self) -> (u64, Vec<String>) {
        let trace = self.trace.lock();
        (trace.sum(), trace.tail())
    }

    /// Whether the fault happens on this occasion; it is counted then.
    pub fn strikes(&self, fault: Fault) -> bool {
        let permille = self.weather.lock().mix.permille(fault);
        let strikes = self.scheduler.chance(permille);
        if strikes {
            self.count(fault);
        }
        strikes
    }

    /// Whether a kind of fault happens in this run at all; it is counted as one more.
    pub fn strikes_often(&self, fault: Fault) -> bool {
        let strikes = self.weather.lock().mix.permille(fault) > 0;
        if strikes {
            self.count(fault);
        }
        strikes
    }

    /// Whether nothing is owed, and no message waits.
    pub fn is_at_rest(&self, queue_count: u16) -> bool {
        let is_empty =
            |queue: &QueueName| now(self.raw.queue.backlog(queue)).is_ok_and(|backlog| backlog.depth == 0);
        self.auditor.owed().is_empty() && envelope::queues(queue_count).iter().all(is_empty)
    }

    /// Counts a fault.
    pub fn count(&self, fault: Fault) {
        self.weather.lock().counts.add(fault);
    }

    /// The counts so far.
    pub fn counts(&self) -> FaultCounts {
        self.weather.lock().counts.clone()
    }

    /// From now on nothing goes wrong any more. What is under way may still come late.
    pub fn calm(&self) {
        let mut weather = self.weather.lock();
        weather.mix = FaultMix::default();
        weather.spells.clear();
        weather.doomed = None;
    }

    /// Between two steps: the store may become slow, or go away.
    pub fn blow(&self) {
        for fault in [Fault::SlowStore, Fault::Outage] {
            // A step is short: of the steps, far fewer than of other occasions.
            if self.lasts(fault) || self.scheduler.below(8) > 0 || !self.strikes(fault) {
                continue;
            }
            let until = self.scheduler.now().saturating_add(length(fault, &self.scheduler));
            self.weather.lock().spells.insert(fault, until);
            self.note(format!("{fault} until {until:?}"));
        }
    }

    /// Whether a spell of that kind lasts now.
    fn lasts(&self, fault: Fault) -> bool {
        self.weather.lock().spells.get(&fault).is_some_and(|until| *until > self.scheduler.now())
    }

    /// The life that is to end now, if any.
    pub fn doomed(&self) -> Option<Life> {
        let mut weather = self.weather.lock();
        let (life, steps) = weather.doomed?;
        weather.doomed = steps.checked_sub(1).map(|left| (life, left));
        if weather.doomed.is_some() {
            return None;
        }
        weather.counts.add(Fault::Crash);
        Some(life)
    }

    /// Asks the store. `operation` is done at its end, at once and as one step; maybe twice, maybe when
    /// nobody waits for it any more.
    ///
    /// # Errors
    /// What the operation gives, or that the store was not available: then it may have happened, or
    /// may still happen.
    pub async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        life: Life,
        request: Request,
        operation: impl Fn(&Self) -> Result<T, StoreFault> + Send + Sync + 'static,
    ) -> Result<T, StoreFault> {
        let fate = self.fate(&request);
        self.doom(life, &request);
        let (answer, answered) = oneshot::channel();
        let network = Arc::clone(self);
        let trip = async move {
            let result = network.travel(life, &request, fate, &operation).await;
            // A late write takes place all the same, and nobody hears of it.
            let _gone = answer.send(result);
            if fate == Fate::Hit(Fault::WriteLate) {
                let delay = length(Fault::WriteLate, &network.scheduler);
                network.pass(delay).await;
                let _unheard = network.perform(life, &request, "late", &operation);
            }
        };
        self.scheduler.spawn(Life::OUTSIDE, trip.boxed());
        answered.await.unwrap_or_else(|_| Err(unavailable("the answer never came")))
    }

    async fn travel<T>(
        &self,
        life: Life,
        request: &Request,
        fate: Fate,
        operation: &(impl Fn(&Self) -> Result<T, StoreFault> + Send + Sync),
    ) -> Result<T, StoreFault> {
        self.pass(self.trip()).await;
        match fate {
            Fate::Hit(fault @ (Fault::Throttled | Fault::Outage)) => {
                self.note(format!("{} {} {}: {fault}", life.number(), request.name, request.on));
                Err(unavailable(fault.name()))
            }
            Fate::Hit(fault) => {
                if fault == Fault::AnswerLost {
                    let _lost = self.perform(life, request, "answer lost", operation);
                } else {
                    self.note(format!("{} {} {}: {fault}", life.number(), request.name, request.on));
                }
                self.pass(self.scheduler.up_to(TIMEOUT_MAX)).await;
                Err(unavailable(fault.name()))
            }
            Fate::Answered => {
                let result = self.perform(life, request, "done", operation);
                self.pass(self.trip()).await;
                result
            }
            Fate::Twice => {
                let _first = self.perform(life, request, "first", operation);
                self.pass(self.trip()).await;
                let second = self.perform(life, request, "second", operation);
                self.pass(self.trip()).await;
                second
            }
        }
    }

    fn perform<T>(
        &self,
        life: Life,
        request: &Request,
        how: &str,
        operation: &impl Fn(&Self) -> Result<T, StoreFault>,
    ) -> Result<T, StoreFault> {
        let result = operation(self);
        let ending = if result.is_ok() { "" } else { ", refused" };
        self.note(format!("{} {} {}: {how}{ending}", life.number(), request.name, request.on));
        result
    }

    fn fate(&self, request: &Request) -> Fate {
        if self.lasts(Fault::Outage) {
            return Fate::Hit(Fault::Outage);
        }
        for fault in [Fault::Throttled, Fault::RequestLost, Fault::AnswerLost] {
            if self.strikes(fault) {
                return Fate::Hit(fault);
            }
        }
        if request.writes && self.strikes(Fault::WriteLate) {
            return Fate::Hit(Fault::WriteLate);
        }
        if request.repeats && self.strikes(Fault::WriteTwice) {
            return Fate::Twice;
        }
        Fate::Answered
    }

    /// Around a write a process may be told to die in a few steps.
    fn doom(&self, life: Life, request: &Request) {
        let crashes = self.weather.lock().mix.permille(Fault::Crash) > 0;
        if life == Life::OUTSIDE || !request.writes || !crashes {
            return;
        }
        if self.scheduler.chance(CRASH_AROUND_WRITE_PERMILLE) {
            let steps = self.scheduler.below(12);
            self.weather.lock().doomed = Some((life, steps));
        }
    }

    fn trip(&self) -> Duration {
        let slow = self.lasts(Fault::SlowStore);
        self.scheduler.up_to(if slow { SLOW_TRIP_MAX } else { TRIP_MAX })
    }

    async fn pass(&self, time: Duration) {
        self.scheduler.sleep(Life::OUTSIDE, time).await;
    }
}

/// The store was not available.
pub fn unavailable(why: &'static str) -> StoreFault {
    StoreFault::Unavailable { doing: "asking the simulated store", source: why.into() }
}

/// The answer of a store in memory, which is there at once.
pub fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("a store in memory answers at once")
}
