//! Order numbers: globally unique, across processes and crashes.
//!
//! A process reserves a range in a shared [`register`] by compare-and-swap, and issues its numbers with one atomic add
//! per request. Numbers are unique for these reasons:
//!
//! 1. A range is used only after its write was **confirmed**. After a failed or unclear write none of its numbers is
//!    issued; they may be lost, but never repeated.
//! 2. The write is guarded by the revision that was **read** for it.
//! 3. A register is refused if it cannot be decoded, if it is behind a range of this process, or if it is missing
//!    although the ledger has postings. An operator then [moves it ahead](Register::moved_ahead).
//! 4. A number in an attempted commit is used up. Only numbers that no store has ever seen are [given
//!    back](OrderNumbers::give_back).
//!
//! The next range is fetched before the current one is used up, all waiters share one fetch, and no lock is held during
//! network calls. The length of the ranges adapts so that one lasts for about 10 s. The refill starts at a random
//! point, so that processes that start together do not always refill together.

mod range;
mod register;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::backoff::ORDER_NUMBERS_WRITE;
use crate::domain::account::Revision;
use crate::domain::ids::OrderNumber;
use crate::ports::archive::Archive;
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::{World, WorldExt as _};
use range::Range;
pub use register::{FIRST_COUNTER, Holding, Register, RegisterError, Report, Span};
use usage::UsageCounters;

/// The name of the register in the [`SyncStore`].
pub const REGISTER: &str = "order-numbers";

/// Largest length of a range.
pub const RANGE_LEN_MAX: u64 = 100_000;

/// The lengths that ranges may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeLengths {
    /// Smallest length, and the usual length of the first range.
    pub min: u64,
    /// Largest length, at least `min` and at most [`RANGE_LEN_MAX`].
    pub max: u64,
}

impl RangeLengths {
    /// The default lengths.
    pub const DEFAULT: Self = Self { min: 100, max: RANGE_LEN_MAX };
}

/// A range should last for about 10 s. If it lasted for less than this, the next one is longer.
const REFILL_TOO_SOON: Duration = Duration::from_secs(5);
/// If a range lasted for more than this, the next one is shorter.
const REFILL_TOO_LATE: Duration = Duration::from_secs(20);

/// Error: no order number is available now.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OrderNumberFault {
    /// The store of the register is not available.
    #[error("no range of order numbers could be reserved")]
    Unavailable(#[source] Arc<StoreFault>),
    /// Other processes changed the register during each attempt.
    #[error(
        "no range of order numbers could be reserved: conflicts in each of {} attempts",
        ORDER_NUMBERS_WRITE.attempts
    )]
    Contended,
    /// The register must not be used. An operator has to investigate.
    #[error("the register of order numbers must not be used")]
    Unsound(#[source] Arc<RegisterError>),
    /// The task that fetched a range panicked. The next request starts another fetch.
    #[error("the fetch of a range of order numbers was aborted")]
    Abandoned,
    /// The process is shutting down.
    #[error("no order numbers are issued any more: the process is ending")]
    Closed,
}

/// A fetch that all waiters share. A watch channel wakes its receivers in random order, so runs would not be repeatable.
type Fetching = Shared<BoxFuture<'static, Result<(), OrderNumberFault>>>;

#[derive(Default)]
struct State {
    following: Option<Arc<Range>>,
    fetching: Option<Fetching>,
    /// Numbers that were taken and given back, because no store has seen them.
    returned: Vec<OrderNumber>,
    /// The length of the next range, and the uptime when the latest range was requested.
    len: u64,
    requested_at: Option<Duration>,
    /// The highest end of the confirmed ranges of this process.
    confirmed: u64,
    /// Writes with unknown outcome, each with the span that it would reserve and its report.
    unclear: Vec<(Span, Report)>,
    closed: bool,
}

/// Issues order numbers. A process has one.
pub struct OrderNumbers {
    sync: Arc<dyn SyncStore>,
    /// The ledger. If there is no register, it shows whether the bank is new.
    archive: Arc<dyn Archive>,
    world: Arc<dyn World>,
    holder: String,
    lengths: RangeLengths,
    /// The current range. It is read without a lock and changed only under the lock of the state.
    current: ArcSwapOption<Range>,
    /// Whether numbers were given back; these are issued first.
    has_returned: AtomicBool,
    state: Mutex<State>,
    usage: UsageCounters,
}

impl OrderNumbers {
    /// Creates an allocator without a range, with the default lengths.
    pub fn new(sync: Arc<dyn SyncStore>, archive: Arc<dyn Archive>, world: Arc<dyn World>) -> Arc<Self> {
        Self::with_ranges(&sync, &archive, world, RangeLengths::DEFAULT)
    }

    /// Creates an allocator without a range, whose ranges will have these lengths.
    pub fn with_ranges(
        sync: &Arc<dyn SyncStore>,
        archive: &Arc<dyn Archive>,
        world: Arc<dyn World>,
        lengths: RangeLengths,
    ) -> Arc<Self> {
        let holder = world.uuid().simple().to_string();
        let state = Mutex::new(State { len: lengths.min, ..State::default() });
        let (current, has_returned) = (ArcSwapOption::empty(), AtomicBool::new(false));
        Arc::new(Self {
            sync: Arc::clone(sync),
            archive: Arc::clone(archive),
            world,
            holder,
            lengths,
            current,
            has_returned,
            state,
            usage: UsageCounters::default(),
        })
    }

    /// Issues one number.
    ///
    /// # Errors
    /// [`OrderNumberFault`] when none is available now.
    pub async fn next(self: &Arc<Self>) -> Result<OrderNumber, OrderNumberFault> {
        // Usually this takes one atomic add and no lock.
        if !self.has_returned.load(Ordering::Relaxed) {
            let span = self.take_from_current(1);
            if !span.is_empty() {
                return Ok(OrderNumber::from_counter(span.from));
            }
        }
        let numbers = self.take(1).await?;
        Ok(*numbers.first().expect("one number was requested"))
    }

    /// Takes up to `count` counters of the current range; none without a range or after its end.
    fn take_from_current(self: &Arc<Self>, count: u64) -> Span {
        let range = self.current.load();
        let Some(range) = range.as_ref() else { return Span { from: 0, until: 0 } };
        let span = range.take(count);
        if range.should_prefetch(span) {
            self.prefetch();
        }
        span
    }

    /// Issues `count` numbers, ascending within each range.
    ///
    /// # Errors
    /// [`OrderNumberFault`] if they are not available now. No number is used up then.
    pub async fn take(self: &Arc<Self>, count: usize) -> Result<Vec<OrderNumber>, OrderNumberFault> {
        let mut numbers = self.take_returned(count);
        while numbers.len() < count {
            let missing = u64::try_from(count.saturating_sub(numbers.len())).unwrap_or(u64::MAX);
            let span = self.take_from_current(missing);
            if !span.is_empty() {
                numbers.extend((span.from..span.until).map(OrderNumber::from_counter));
            } else if let Err(fault) = self.advance(missing).await {
                self.give_back(numbers);
                return Err(fault);
            }
        }
        Ok(numbers)
    }

    /// Gives back numbers that **no attempted write contained**. The allocator issues them again.
    pub fn give_back(&self, numbers: Vec<OrderNumber>) {
        self.usage.remove_issued(count_of(&numbers));
        let mut state = self.state.lock();
        if state.closed {
            self.usage.add_lost(count_of(&numbers));
        } else {
            // The lowest number is issued first.
            state.returned.extend(numbers.into_iter().rev());
            self.has_returned.store(!state.returned.is_empty(), Ordering::Relaxed);
        }
    }

    /// Closes the allocator. Unused numbers that are still the last ones return to the register; all others are lost.
    ///
    /// # Errors
    /// [`OrderNumberFault`] if the register could not be read or written.
    pub async fn close(&self) -> Result<(), OrderNumberFault> {
        let tails: Vec<Span> = {
            let mut state = self.state.lock();
            if state.closed {
                return Ok(());
            }
            state.closed = true;
            self.usage.add_lost(count_of(&state.returned));
            state.returned.clear();
            let current = self.current.swap(None);
            let ranges = [current, state.following.take()];
            let close = |range: Arc<Range>| {
                let tail = range.close();
                self.usage.add_issued(range.span().len().saturating_sub(tail.len()));
                tail
            };
            let tails: Vec<Span> = ranges.into_iter().flatten().map(close).collect();
            // Other processes may reserve from there on, so a lower `next` in the register is valid.
            let given_back = tails.iter().filter(|tail| !tail.is_empty()).map(|tail| tail.from).min();
            state.confirmed = given_back.unwrap_or(state.confirmed).min(state.confirmed);
            tails
        };
        let report = self.report();
        if tails.iter().all(|tail| tail.is_empty()) && report == Report::default() {
            return Ok(());
        }
        for attempt in 1..=ORDER_NUMBERS_WRITE.attempts {
            let (revision, register) = self.read().await?;
            let after = register.release(&self.holder, &tails, report);
            match self.sync.swap(REGISTER, revision.as_ref(), &after.encode()).await {
                Ok(Swapped::Done(_)) => {
                    self.usage.subtract(report);
                    return Ok(());
                }
                Ok(Swapped::Conflict) => ORDER_NUMBERS_WRITE.pause(attempt, &*self.world).await,
                // The write may have happened. Repeating it could return a range twice.
                Err(fault) => return Err(OrderNumberFault::Unavailable(Arc::new(fault))),
            }
        }
        Err(OrderNumberFault::Contended)
    }

    /// Reads the register for operators, including the unreported changes of this process.
    ///
    /// # Errors
    /// [`OrderNumberFault`] when it cannot be read or decoded.
    pub async fn register(&self) -> Result<Register, OrderNumberFault> {
        let (_, register) = self.read().await?;
        Ok(register.reported(self.report()))
    }

    /// Returns the changes since the last report. The current range counts its own numbers, to save a second counter.
    fn report(&self) -> Report {
        // The current range does not change while the lock is held.
        let _state = self.state.lock();
        self.usage.report_with(self.current.load().as_ref().map_or(0, |range| range.taken()))
    }

    fn take_returned(&self, count: usize) -> Vec<OrderNumber> {
        let mut state = self.state.lock();
        let kept = state.returned.len().saturating_sub(count);
        let mut numbers = state.returned.split_off(kept);
        numbers.reverse();
        self.has_returned.store(!state.returned.is_empty(), Ordering::Relaxed);
        self.usage.add_issued(count_of(&numbers));
        numbers
    }

    fn prefetch(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.following.is_none() && !state.closed {
            // There is no waiter yet.
            drop(self.fetch_once(&mut state, 0));
        }
    }

    /// Switches to the next range, or waits for the fetch that all waiters share.
    async fn advance(self: &Arc<Self>, missing: u64) -> Result<(), OrderNumberFault> {
        let fetched = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(OrderNumberFault::Closed);
            }
            // Another caller may have switched already.
            if self.current.load().as_ref().is_some_and(|range| range.has_more()) {
                return Ok(());
            }
            if let Some(following) = state.following.take() {
                // The previous range is used up. From now on the usage counters contain its numbers.
                let before = self.current.swap(Some(following));
                self.usage.add_issued(before.map_or(0, |range| range.taken()));
                return Ok(());
            }
            self.fetch_once(&mut state, missing)
        };
        fetched.await
    }

    /// Returns the counter at which the next range is fetched: a random one in the middle half of the range.
    fn prefetch_at(&self, span: Span) -> u64 {
        let quarter = span.len() / 4;
        let chance = self.world.random().checked_rem(span.len().saturating_sub(quarter.saturating_mul(2)));
        span.from.saturating_add(quarter).saturating_add(chance.unwrap_or_default())
    }

    /// Starts a fetch unless one is in progress. It runs in its own task, so that it continues if the caller is cancelled.
    fn fetch_once(self: &Arc<Self>, state: &mut State, missing: u64) -> Fetching {
        // A fetch that has ended but is still stored panicked before it could answer.
        if let Some(fetching) = &state.fetching
            && fetching.clone().now_or_never().is_none()
        {
            return fetching.clone();
        }
        let now = self.world.uptime();
        let lasted = state.requested_at.map(|asked| now.saturating_sub(asked));
        state.len = self.lengths.next(state.len, lasted).max(missing.min(self.lengths.max));
        state.requested_at = Some(now);
        let len = state.len;
        let (sender, fetched) = oneshot::channel();
        let fetching: Fetching =
            fetched.map(|result| result.unwrap_or(Err(OrderNumberFault::Abandoned))).boxed().shared();
        state.fetching = Some(fetching.clone());
        let numbers = Arc::clone(self);
        self.world.spawn(
            async move {
                let result = numbers.reserve(len).await;
                let result = numbers.publish(result);
                // All waiters may have been cancelled.
                drop(sender.send(result));
            }
            .boxed(),
        );
        fetching
    }

    fn publish(&self, reserved: Result<Span, OrderNumberFault>) -> Result<(), OrderNumberFault> {
        let mut state = self.state.lock();
        state.fetching = None;
        let span = reserved?;
        state.confirmed = state.confirmed.max(span.until);
        if state.closed {
            self.usage.add_lost(span.len());
            return Err(OrderNumberFault::Closed);
        }
        state.following = Some(Arc::new(Range::new(span, self.prefetch_at(span))));
        Ok(())
    }

    /// Reserves a range: read, compare-and-swap, and retry with full jitter. Only a confirmed write yields a range.
    async fn reserve(&self, len: u64) -> Result<Span, OrderNumberFault> {
        let mut last = OrderNumberFault::Contended;
        for attempt in 1..=ORDER_NUMBERS_WRITE.attempts {
            match self.try_reserve(len).await {
                Ok(Some(span)) => return Ok(span),
                Ok(None) => last = OrderNumberFault::Contended,
                Err(fault @ OrderNumberFault::Unavailable(_)) => last = fault,
                Err(fault) => return Err(fault),
            }
            ORDER_NUMBERS_WRITE.pause(attempt, &*self.world).await;
        }
        Err(last)
    }

    async fn try_reserve(&self, len: u64) -> Result<Option<Span>, OrderNumberFault> {
        let (revision, register) = self.read().await?;
        self.settle_unclear(&register);
        let report = self.report();
        let live: Vec<Span> = {
            let state = self.state.lock();
            let current = self.current.load_full();
            [current, state.following.clone()].into_iter().flatten().map(|range| range.span()).collect()
        };
        let (after, span) = register
            .reserve(&self.holder, len, &live, report, self.world.now())
            .map_err(|unsound| OrderNumberFault::Unsound(Arc::new(unsound)))?;
        match self.sync.swap(REGISTER, revision.as_ref(), &after.encode()).await {
            Ok(Swapped::Done(_)) => {
                // The revision that guarded earlier unclear writes is gone, so they can no longer take effect.
                self.state.lock().unclear.clear();
                self.usage.subtract(report);
                Ok(Some(span))
            }
            Ok(Swapped::Conflict) => Ok(None),
            // If the unclear write took effect, its numbers are lost: the next attempt reserves the ones after them.
            Err(fault) => {
                let unclear = &mut self.state.lock().unclear;
                // A retry that read the same revision reserves the same numbers.
                if unclear.iter().all(|(known, _)| *known != span) {
                    unclear.push((span, report));
                }
                Err(OrderNumberFault::Unavailable(Arc::new(fault)))
            }
        }
    }

    /// Settles unclear writes that took effect: the register has received their reports, and their numbers are lost.
    fn settle_unclear(&self, register: &Register) {
        let mut state = self.state.lock();
        state.unclear.retain(|(span, report)| {
            let took_effect =
                register.holdings.iter().any(|held| held.holder == self.holder && held.span == *span);
            if took_effect {
                self.usage.subtract(*report);
                self.usage.add_lost(span.len());
            }
            !took_effect
        });
    }

    async fn read(&self) -> Result<(Option<Revision>, Register), OrderNumberFault> {
        let unavailable = |fault| OrderNumberFault::Unavailable(Arc::new(fault));
        let stored = self.sync.get(REGISTER).await.map_err(unavailable)?;
        let unsound = |unsound| OrderNumberFault::Unsound(Arc::new(unsound));
        let confirmed = self.state.lock().confirmed;
        let (revision, register) = match stored {
            Some(stored) => (Some(stored.revision), Register::decode(&stored.value).map_err(unsound)?),
            None if self.archive.has_pages().await.map_err(unavailable)? => {
                return Err(unsound(RegisterError::Missing));
            }
            None => (None, Register::fresh()),
        };
        if register.next < confirmed {
            return Err(unsound(RegisterError::WentBack { next: register.next, confirmed }));
        }
        Ok((revision, register))
    }
}

fn count_of(numbers: &[OrderNumber]) -> u64 {
    u64::try_from(numbers.len()).unwrap_or(u64::MAX)
}

impl RangeLengths {
    /// Returns the length of the next range, given how long the latest one lasted. A range should last for about 10 s.
    fn next(self, len: u64, lasted: Option<Duration>) -> u64 {
        let Some(lasted) = lasted else { return len };
        let len = if lasted < REFILL_TOO_SOON {
            len.saturating_mul(2)
        } else if lasted > REFILL_TOO_LATE {
            len / 2
        } else {
            len
        };
        len.max(self.min).min(self.max)
    }
}

#[cfg(test)]
mod tests;
