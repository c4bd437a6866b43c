//! The network between a process and the store. A request takes time. It may be lost in either direction, arrive late, or be
//! executed twice. A request continues after the end of its process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use postonce_shared::testing::prelude::*;
use tokio::sync::oneshot;

use super::auditor::Auditor;
use super::azure::tables::Tables;
use super::faults::{Fault, FaultCounts, FaultMix, length};
use super::immediate_counts::ImmediateCounts;
use super::mutations::Mutation;
use super::scheduler::{ProcessId, Scheduler};
use super::trace::Trace;

/// Maximum time of one direction under normal conditions.
const TRIP_MAX: Duration = Duration::from_millis(8);
/// Maximum time of one direction while the store is slow.
const SLOW_TRIP_MAX: Duration = Duration::from_millis(2_000);
/// Maximum time after which a client of the store gives up.
const TIMEOUT_MAX: Duration = Duration::from_secs(12);
/// Maximum time after which a late write is executed.
const LATE_MAX: Duration = Duration::from_secs(90);
/// Number of writes, per thousand, that are followed by a crash of their process within a few steps, in runs with crashes. A
/// crash around a write finds the most mistakes.
const CRASH_AROUND_WRITE_PERMILLE: u32 = 8;

/// A request to the store.
#[derive(Debug, Clone)]
pub struct StoreRequest {
    /// The operation.
    pub name: &'static str,
    /// The object of the operation, for the trace.
    pub target: String,
    /// Whether the operation changes anything.
    pub writes: bool,
    /// Whether the client of the store repeats the request automatically.
    pub repeats: bool,
    /// When the sender gives up, and when the request is executed nevertheless.
    pub lateness: Lateness,
}

/// Times of a request that gets no response.
#[derive(Debug, Clone, Copy)]
pub struct Lateness {
    /// Maximum time after which the sender gives up.
    pub gives_up_max: Duration,
    /// Maximum time from then until a late write is executed.
    pub late_max: Duration,
    /// Number of lost writes, per thousand, that are late instead.
    pub late_permille: u32,
}

impl Lateness {
    const USUAL: Self = Self { gives_up_max: TIMEOUT_MAX, late_max: LATE_MAX, late_permille: 0 };
}

impl StoreRequest {
    /// Creates a read request.
    pub fn read(name: &'static str, target: impl ToString) -> Self {
        Self { name, target: target.to_string(), writes: false, repeats: false, lateness: Lateness::USUAL }
    }

    /// Creates a write that the client of the store repeats when it receives no response.
    pub fn write(name: &'static str, target: impl ToString) -> Self {
        Self { name, target: target.to_string(), writes: true, repeats: true, lateness: Lateness::USUAL }
    }

    /// Creates a write that the client of the store never repeats.
    pub fn write_once(name: &'static str, target: impl ToString) -> Self {
        Self { name, target: target.to_string(), writes: true, repeats: false, lateness: Lateness::USUAL }
    }
}

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestOutcome {
    Answered,
    Twice,
    Failed(Fault),
}

struct FaultState {
    mix: FaultMix,
    counts: FaultCounts,
    /// Lasting faults, with their end times.
    lasting: BTreeMap<Fault, Duration>,
    /// A process that crashes after this number of steps.
    scheduled_crash: Option<(ProcessId, u64)>,
}

/// The network, and the store that it leads to.
pub struct Network {
    /// Determines the next step.
    pub scheduler: Scheduler,
    /// Checks the store after every write.
    pub auditor: Arc<Auditor>,
    /// The mistake that the run must find, if there is one.
    pub mutation: Option<Mutation>,
    /// The store itself.
    pub raw: Store,
    /// The same store without some guards, for mistakes that need it.
    pub unguarded: Store,
    /// The tables of the store, if it is the adapter for Azure.
    pub tables: Option<Arc<Mutex<Tables>>>,
    /// Whether all work is stored in payloads.
    pub claims_work: bool,
    trace: Mutex<Trace>,
    fault_state: Mutex<FaultState>,
    immediate: Mutex<ImmediateCounts>,
}

impl Network {
    /// Creates a network to a store, and to the same store without row guards.
    pub fn new(
        scheduler: Scheduler,
        (raw, unguarded, tables): (Store, Store, Option<Arc<Mutex<Tables>>>),
        auditor: Arc<Auditor>,
        mutation: Option<Mutation>,
        (mix, trace): (FaultMix, Trace),
    ) -> Self {
        let fault_state = FaultState {
            mix,
            counts: FaultCounts::default(),
            lasting: BTreeMap::new(),
            scheduled_crash: None,
        };
        let (claims_work, immediate) = (scheduler.below(4) == 0, Mutex::default());
        Self {
            scheduler,
            auditor,
            mutation,
            raw,
            unguarded,
            tables,
            claims_work,
            trace: Mutex::new(trace),
            fault_state: Mutex::new(fault_state),
            immediate,
        }
    }

    /// Adds an event to the trace.
    pub fn note(&self, event: impl AsRef<str>) {
        let (steps, now) = (self.scheduler.steps(), self.scheduler.now());
        self.trace.lock().note(steps, now, event.as_ref());
    }

    /// Returns the hash and the last lines of the trace.
    pub fn trace(&self) -> (u64, Vec<String>) {
        let trace = self.trace.lock();
        (trace.sum(), trace.tail())
    }

    /// Returns whether the fault occurs now, and counts it if so.
    pub fn injects(&self, fault: Fault) -> bool {
        let permille = self.fault_state.lock().mix.permille(fault);
        let occurs = self.scheduler.chance(permille);
        if occurs {
            self.count(fault);
        }
        occurs
    }

    /// Returns whether this kind of fault occurs in this run at all, and counts it if so.
    pub fn injects_if_enabled(&self, fault: Fault) -> bool {
        let occurs = self.fault_state.lock().mix.permille(fault) > 0;
        if occurs {
            self.count(fault);
        }
        occurs
    }

    /// Returns whether everything acknowledged is final, every queue is empty, and no batch counts as open.
    pub fn is_at_rest(&self, queues: &[QueueName]) -> bool {
        let is_empty =
            |queue: &QueueName| now(self.raw.queue.backlog(queue)).is_ok_and(|backlog| backlog.depth == 0);
        let (batches, unread) = self.auditor.unfinished_batches();
        let open = now(self.raw.records.list(Collection::OpenBatches, "", None, 1));
        self.auditor.unfinished().is_empty()
            && batches.is_empty()
            && unread.is_empty()
            && open.is_ok_and(|open| open.is_empty())
            && queues.iter().all(is_empty)
    }

    /// Counts a fault.
    pub fn count(&self, fault: Fault) {
        self.fault_state.lock().counts.add(fault);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> FaultCounts {
        self.fault_state.lock().counts.clone()
    }

    /// Counts events of requests that are posted immediately.
    pub fn count_immediate(&self, count: impl FnOnce(&mut ImmediateCounts)) {
        count(&mut self.immediate.lock());
    }

    /// Returns the counts of requests that are posted immediately, so far.
    pub fn immediate_counts(&self) -> ImmediateCounts {
        self.immediate.lock().clone()
    }

    /// Stops all faults. Requests in transit may still arrive late.
    pub fn stop_faults(&self) {
        let mut state = self.fault_state.lock();
        state.mix = FaultMix::default();
        state.lasting.clear();
        state.scheduled_crash = None;
    }

    /// Called between two steps: may make the store slow or unavailable.
    pub fn start_lasting_faults(&self) {
        for fault in [Fault::SlowStore, Fault::Outage] {
            // Steps are far more frequent than other occasions, so most steps are skipped.
            if self.lasts(fault) || self.scheduler.below(8) > 0 || !self.injects(fault) {
                continue;
            }
            let until = self.scheduler.now().saturating_add(length(fault, &self.scheduler));
            self.fault_state.lock().lasting.insert(fault, until);
            self.note(format!("{fault} until {until:?}"));
        }
    }

    /// Returns whether a fault of this kind lasts now.
    fn lasts(&self, fault: Fault) -> bool {
        self.fault_state.lock().lasting.get(&fault).is_some_and(|until| *until > self.scheduler.now())
    }

    /// Returns the process that must crash now, if there is one.
    pub fn due_crash(&self) -> Option<ProcessId> {
        let mut state = self.fault_state.lock();
        let (process_id, steps) = state.scheduled_crash?;
        state.scheduled_crash = steps.checked_sub(1).map(|left| (process_id, left));
        if state.scheduled_crash.is_some() {
            return None;
        }
        state.counts.add(Fault::Crash);
        Some(process_id)
    }

    /// Sends a request to the store. `operation` runs at the store in one step. It may run twice, or after its sender gave up.
    ///
    /// # Errors
    /// The error of the operation, or [`StoreFault::Unavailable`], after which the operation may have run or may still run.
    pub async fn request<T: Send + 'static>(
        self: &Arc<Self>,
        process_id: ProcessId,
        request: StoreRequest,
        operation: impl Fn(&Self) -> Result<T, StoreFault> + Send + Sync + 'static,
    ) -> Result<T, StoreFault> {
        let answer = self.exchange(process_id, request, operation).await;
        answer.unwrap_or_else(|fault| Err(unavailable(fault.name())))
    }

    /// Sends a request like [`Self::request`].
    ///
    /// # Errors
    /// The fault that prevented a response.
    pub async fn exchange<T: Send + 'static>(
        self: &Arc<Self>,
        process_id: ProcessId,
        request: StoreRequest,
        operation: impl Fn(&Self) -> Result<T, StoreFault> + Send + Sync + 'static,
    ) -> Result<Result<T, StoreFault>, Fault> {
        let outcome = self.outcome(&request);
        self.schedule_crash(process_id, &request);
        let (answer, answered) = oneshot::channel();
        let network = Arc::clone(self);
        let trip = async move {
            let result = network.travel(process_id, &request, outcome, &operation).await;
            // A late write still runs, but its result is dropped.
            let _gone = answer.send(result);
            if outcome == RequestOutcome::Failed(Fault::WriteLate) {
                network.pass(network.scheduler.up_to(request.lateness.late_max)).await;
                let _ignored = network.perform(process_id, &request, "late", &operation);
            }
        };
        self.scheduler.spawn(ProcessId::ENVIRONMENT, trip.boxed());
        answered.await.unwrap_or(Err(Fault::AnswerLost))
    }

    async fn travel<T>(
        &self,
        process_id: ProcessId,
        request: &StoreRequest,
        outcome: RequestOutcome,
        operation: &(impl Fn(&Self) -> Result<T, StoreFault> + Send + Sync),
    ) -> Result<Result<T, StoreFault>, Fault> {
        self.pass(self.trip()).await;
        match outcome {
            RequestOutcome::Failed(fault @ (Fault::Throttled | Fault::Outage)) => {
                self.note(format!("{} {} {}: {fault}", process_id.number(), request.name, request.target));
                Err(fault)
            }
            RequestOutcome::Failed(fault) => {
                if fault == Fault::AnswerLost {
                    let _lost = self.perform(process_id, request, "answer lost", operation);
                } else {
                    self.note(format!(
                        "{} {} {}: {fault}",
                        process_id.number(),
                        request.name,
                        request.target
                    ));
                }
                self.pass(self.scheduler.up_to(request.lateness.gives_up_max)).await;
                Err(fault)
            }
            RequestOutcome::Answered => {
                let result = self.perform(process_id, request, "done", operation);
                self.pass(self.trip()).await;
                Ok(result)
            }
            RequestOutcome::Twice => {
                let _first = self.perform(process_id, request, "first", operation);
                self.pass(self.trip()).await;
                let second = self.perform(process_id, request, "second", operation);
                self.pass(self.trip()).await;
                Ok(second)
            }
        }
    }

    fn perform<T>(
        &self,
        process_id: ProcessId,
        request: &StoreRequest,
        how: &str,
        operation: &impl Fn(&Self) -> Result<T, StoreFault>,
    ) -> Result<T, StoreFault> {
        let result = operation(self);
        let ending = if result.is_ok() { "" } else { ", refused" };
        self.note(format!("{} {} {}: {how}{ending}", process_id.number(), request.name, request.target));
        result
    }

    fn outcome(&self, request: &StoreRequest) -> RequestOutcome {
        if self.lasts(Fault::Outage) {
            return RequestOutcome::Failed(Fault::Outage);
        }
        for fault in [Fault::Throttled, Fault::RequestLost, Fault::AnswerLost] {
            if self.injects(fault) {
                let is_lost_write = fault == Fault::RequestLost && request.writes;
                if is_lost_write && self.scheduler.chance(request.lateness.late_permille) {
                    self.count(Fault::WriteLate);
                    return RequestOutcome::Failed(Fault::WriteLate);
                }
                return RequestOutcome::Failed(fault);
            }
        }
        if request.writes && self.injects(Fault::WriteLate) {
            return RequestOutcome::Failed(Fault::WriteLate);
        }
        if request.repeats && self.injects(Fault::WriteTwice) {
            return RequestOutcome::Twice;
        }
        RequestOutcome::Answered
    }

    /// May schedule a crash of the process within a few steps after a write.
    fn schedule_crash(&self, process_id: ProcessId, request: &StoreRequest) {
        let crashes = self.fault_state.lock().mix.permille(Fault::Crash) > 0;
        if process_id == ProcessId::ENVIRONMENT || !request.writes || !crashes {
            return;
        }
        if self.scheduler.chance(CRASH_AROUND_WRITE_PERMILLE) {
            let steps = self.scheduler.below(12);
            self.fault_state.lock().scheduled_crash = Some((process_id, steps));
        }
    }

    fn trip(&self) -> Duration {
        let slow = self.lasts(Fault::SlowStore);
        self.scheduler.up_to(if slow { SLOW_TRIP_MAX } else { TRIP_MAX })
    }

    async fn pass(&self, time: Duration) {
        self.scheduler.sleep(ProcessId::ENVIRONMENT, time).await;
    }
}

/// Returns the error of an unavailable store.
pub fn unavailable(why: &'static str) -> StoreFault {
    StoreFault::Unavailable { doing: "asking the simulated store", source: why.into() }
}

/// Returns the result of a store in memory, which is always ready.
pub fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("a store in memory is always ready")
}
