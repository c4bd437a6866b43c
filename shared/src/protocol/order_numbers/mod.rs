//! Order numbers: unique for ever, across processes and crashes.
//!
//! A process reserves a range in a shared [`register`] by compare-and-swap, and hands it out with
//! one atomic add per request. What keeps numbers unique:
//!
//! 1. A range is published only after its write was **confirmed**. After a failed or unclear write
//!    nothing of it can be issued; the numbers may be lost, never repeated.
//! 2. The write compares with the revision that was **read** for it.
//! 3. A register that cannot be read, or that lies before a range of our own, is refused.
//! 4. A number that was in a write attempt of a commit is burnt; only numbers that no store ever
//!    saw are [given back](OrderNumbers::give_back).
//!
//! A second range is fetched before the first one runs out, all waiters share one fetch, and no
//! lock is held over the network. Ranges grow and shrink so that a refill is due about every 10 s; when
//! exactly is left to chance, so that processes that started together do not ask together for ever.

mod books;
mod range;
mod register;

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
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::{World, WorldExt as _};
use books::Books;
use range::Range;
pub use register::{FIRST_COUNTER, Holding, Register, Report, Span, UnsoundRegister};

/// The name of the shared value.
pub const REGISTER: &str = "order-numbers";

/// Numbers of the first range of a process, and of the smallest one.
const RANGE_LEN_MIN: u64 = 100;
/// Numbers of the largest range.
pub const RANGE_LEN_MAX: u64 = 100_000;
/// A range should last about 10 s: one that was used up sooner than this makes the next one larger.
const REFILL_TOO_SOON: Duration = Duration::from_secs(5);
/// One that lasted longer than this makes the next one smaller.
const REFILL_TOO_LATE: Duration = Duration::from_secs(20);

/// No number can be had now.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OrderNumberFault {
    /// The register could not be reached.
    #[error("no range of order numbers could be reserved")]
    Unavailable(#[source] Arc<StoreFault>),
    /// Others were faster, every time.
    #[error(
        "no range of order numbers could be reserved in {} attempts: others were faster",
        ORDER_NUMBERS_WRITE.attempts
    )]
    Contended,
    /// The register must not be used. A person has to look.
    #[error("the register of order numbers must not be used")]
    Unsound(#[source] Arc<UnsoundRegister>),
    /// The task that fetched a range fell over a bug; the next request starts another one.
    #[error("the fetch of a range of order numbers was given up")]
    Abandoned,
    /// The process is shutting down.
    #[error("order numbers are closed: the process is ending")]
    Closed,
}

/// A fetch that all who wait share. Not a watch channel: that wakes its receivers in a random order, and
/// then one seed would not repeat a whole run.
type Fetching = Shared<BoxFuture<'static, Result<(), OrderNumberFault>>>;

#[derive(Default)]
struct State {
    following: Option<Arc<Range>>,
    /// A fetch under way.
    fetching: Option<Fetching>,
    /// Numbers that were taken and that no store ever saw.
    returned: Vec<OrderNumber>,
    /// The length of the next range, and when the latest one was asked for.
    len: u64,
    asked_at: Option<Duration>,
    /// The highest end of a range of our own that was confirmed.
    confirmed: u64,
    /// Writes whose outcome is not known: what they would have reserved, and what they reported.
    unclear: Vec<(Span, Report)>,
    closed: bool,
}

/// Hands out order numbers. One per process.
pub struct OrderNumbers {
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
    holder: String,
    /// The range in use: read by everybody, changed under the lock of the state only.
    current: ArcSwapOption<Range>,
    /// Whether there are returned numbers, which are handed out first.
    has_returned: AtomicBool,
    state: Mutex<State>,
    books: Books,
}

impl OrderNumbers {
    /// An allocator that has reserved nothing yet.
    pub fn new(sync: Arc<dyn SyncStore>, world: Arc<dyn World>) -> Arc<Self> {
        let holder = world.uuid().simple().to_string();
        let state = Mutex::new(State { len: RANGE_LEN_MIN, ..State::default() });
        let (current, has_returned) = (ArcSwapOption::empty(), AtomicBool::new(false));
        Arc::new(Self { sync, world, holder, current, has_returned, state, books: Books::default() })
    }

    /// One number.
    ///
    /// # Errors
    /// [`OrderNumberFault`] when none can be had now.
    pub async fn next(self: &Arc<Self>) -> Result<OrderNumber, OrderNumberFault> {
        // Mostly it takes one atomic add, and no lock.
        if !self.has_returned.load(Ordering::Relaxed) {
            let span = self.take_at_hand(1);
            if !span.is_empty() {
                return Ok(OrderNumber::from_counter(span.from));
            }
        }
        let numbers = self.take(1).await?;
        Ok(*numbers.first().expect("one number was asked for"))
    }

    /// Up to so many counters of the range in use; none when there is no range, or nothing left in it.
    fn take_at_hand(self: &Arc<Self>, count: u64) -> Span {
        let range = self.current.load();
        let Some(range) = range.as_ref() else { return Span { from: 0, until: 0 } };
        let span = range.take(count);
        if range.is_time_for_another(span) {
            self.prefetch();
        }
        span
    }

    /// That many numbers, ascending as far as they come from one range.
    ///
    /// # Errors
    /// [`OrderNumberFault`] when they cannot be had now; none is used up then.
    pub async fn take(self: &Arc<Self>, count: usize) -> Result<Vec<OrderNumber>, OrderNumberFault> {
        let mut numbers = self.take_returned(count);
        while numbers.len() < count {
            let missing = u64::try_from(count.saturating_sub(numbers.len())).unwrap_or(u64::MAX);
            let span = self.take_at_hand(missing);
            if !span.is_empty() {
                numbers.extend((span.from..span.until).map(OrderNumber::from_counter));
            } else if let Err(fault) = self.advance(missing).await {
                self.give_back(numbers);
                return Err(fault);
            }
        }
        Ok(numbers)
    }

    /// Takes back numbers that **no write attempt ever held**; they are handed out again.
    pub fn give_back(&self, numbers: Vec<OrderNumber>) {
        self.books.take_back(count_of(&numbers));
        let mut state = self.state.lock();
        if state.closed {
            self.books.give_up(count_of(&numbers));
        } else {
            // The lowest is taken first again.
            state.returned.extend(numbers.into_iter().rev());
            self.has_returned.store(!state.returned.is_empty(), Ordering::Relaxed);
        }
    }

    /// Ends the allocator: its ranges are closed first, then what was not used is given back to the
    /// register, where it is still the last. A failure only loses numbers.
    ///
    /// # Errors
    /// [`OrderNumberFault`] when the register could not be written.
    pub async fn close(&self) -> Result<(), OrderNumberFault> {
        let tails: Vec<Span> = {
            let mut state = self.state.lock();
            if state.closed {
                return Ok(());
            }
            state.closed = true;
            self.books.give_up(count_of(&state.returned));
            state.returned.clear();
            let current = self.current.swap(None);
            let ranges = [current, state.following.take()];
            let close = |range: Arc<Range>| {
                let tail = range.close();
                self.books.hand_out(range.span().len().saturating_sub(tail.len()));
                tail
            };
            let tails: Vec<Span> = ranges.into_iter().flatten().map(close).collect();
            // Others may reserve from there on: a register that says so did not go back.
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
                    self.books.settle(report);
                    return Ok(());
                }
                Ok(Swapped::Conflict) => ORDER_NUMBERS_WRITE.pause(attempt, &*self.world).await,
                // It may be written or not: writing it again could give back a range twice.
                Err(fault) => return Err(OrderNumberFault::Unavailable(Arc::new(fault))),
            }
        }
        Err(OrderNumberFault::Contended)
    }

    /// The register, for people, with what this process has not reported yet. It changes nothing.
    ///
    /// # Errors
    /// [`OrderNumberFault`] when it cannot be read.
    pub async fn register(&self) -> Result<Register, OrderNumberFault> {
        let (_, register) = self.read().await?;
        Ok(register.reported(self.report()))
    }

    /// What this process did since the register was last told. What was taken from the range in use is told
    /// by the range itself: a second count would cost as much as the number.
    fn report(&self) -> Report {
        // While it is held no range comes into use or out of it.
        let _state = self.state.lock();
        self.books.report_with(self.current.load().as_ref().map_or(0, |range| range.taken()))
    }

    fn take_returned(&self, count: usize) -> Vec<OrderNumber> {
        let mut state = self.state.lock();
        let kept = state.returned.len().saturating_sub(count);
        let mut numbers = state.returned.split_off(kept);
        numbers.reverse();
        self.has_returned.store(!state.returned.is_empty(), Ordering::Relaxed);
        self.books.hand_out(count_of(&numbers));
        numbers
    }

    fn prefetch(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.following.is_none() && !state.closed {
            // Nobody waits for it yet.
            drop(self.fetch_once(&mut state, 0));
        }
    }

    /// Goes on to the next range, or waits for the one fetch that all waiters share.
    async fn advance(self: &Arc<Self>, missing: u64) -> Result<(), OrderNumberFault> {
        let fetched = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(OrderNumberFault::Closed);
            }
            // Somebody else may have gone on meanwhile.
            if self.current.load().as_ref().is_some_and(|range| range.has_more()) {
                return Ok(());
            }
            if let Some(following) = state.following.take() {
                // All of the one before was taken. From here on the books have it.
                let before = self.current.swap(Some(following));
                self.books.hand_out(before.map_or(0, |range| range.taken()));
                return Ok(());
            }
            self.fetch_once(&mut state, missing)
        };
        fetched.await
    }

    /// Where a range calls for the next one: anywhere in its middle half.
    fn call_at(&self, span: Span) -> u64 {
        let quarter = span.len() / 4;
        let chance = self.world.random().checked_rem(span.len().saturating_sub(quarter.saturating_mul(2)));
        span.from.saturating_add(quarter).saturating_add(chance.unwrap_or_default())
    }

    /// Starts a fetch unless one is under way. It runs in a task of its own, so that it outlives the
    /// caller who happened to need it first.
    fn fetch_once(self: &Arc<Self>, state: &mut State, missing: u64) -> Fetching {
        // One that has ended, and still stands here, fell over a bug before it could answer.
        if let Some(fetching) = &state.fetching
            && fetching.clone().now_or_never().is_none()
        {
            return fetching.clone();
        }
        let now = self.world.uptime();
        state.len = next_len(state.len, state.asked_at.map(|asked| now.saturating_sub(asked)))
            .max(missing.min(RANGE_LEN_MAX));
        state.asked_at = Some(now);
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
                // It may be that nobody waits any more.
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
            self.books.give_up(span.len());
            return Err(OrderNumberFault::Closed);
        }
        state.following = Some(Arc::new(Range::new(span, self.call_at(span))));
        Ok(())
    }

    /// Reserves a range: read, compare-and-swap, and again with full jitter. Only a confirmed write
    /// gives a range.
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
                // The revision that they were guarded by is gone: they can never take place now.
                self.state.lock().unclear.clear();
                self.books.settle(report);
                Ok(Some(span))
            }
            Ok(Swapped::Conflict) => Ok(None),
            // Unclear: if the write took place, its numbers belong to nobody. The next attempt reads
            // again and reserves behind them, so they are lost and never issued.
            Err(fault) => {
                let unclear = &mut self.state.lock().unclear;
                // A retry that read the same state again would have reserved the same numbers.
                if unclear.iter().all(|(known, _)| *known != span) {
                    unclear.push((span, report));
                }
                Err(OrderNumberFault::Unavailable(Arc::new(fault)))
            }
        }
    }

    /// Books the unclear writes that took place after all: what they reported is known by now, and
    /// what they reserved is lost.
    fn settle_unclear(&self, register: &Register) {
        let mut state = self.state.lock();
        state.unclear.retain(|(span, report)| {
            let landed =
                register.holdings.iter().any(|held| held.holder == self.holder && held.span == *span);
            if landed {
                self.books.settle(*report);
                self.books.give_up(span.len());
            }
            !landed
        });
    }

    async fn read(&self) -> Result<(Option<Revision>, Register), OrderNumberFault> {
        let stored =
            self.sync.get(REGISTER).await.map_err(|fault| OrderNumberFault::Unavailable(Arc::new(fault)))?;
        let unsound = |unsound| OrderNumberFault::Unsound(Arc::new(unsound));
        let confirmed = self.state.lock().confirmed;
        let (revision, register) = match stored {
            Some(stored) => (Some(stored.revision), Register::decode(&stored.value).map_err(unsound)?),
            None => (None, Register::fresh()),
        };
        if register.next < confirmed {
            return Err(unsound(UnsoundRegister::WentBack { next: register.next, confirmed }));
        }
        Ok((revision, register))
    }
}

fn count_of(numbers: &[OrderNumber]) -> u64 {
    u64::try_from(numbers.len()).unwrap_or(u64::MAX)
}

/// The length of the next range, when the latest one was asked for that long ago: so that a refill
/// is due about every 10 s.
fn next_len(len: u64, lasted: Option<Duration>) -> u64 {
    let Some(lasted) = lasted else { return len };
    let len = if lasted < REFILL_TOO_SOON {
        len.saturating_mul(2)
    } else if lasted > REFILL_TOO_LATE {
        len / 2
    } else {
        len
    };
    len.clamp(RANGE_LEN_MIN, RANGE_LEN_MAX)
}

#[cfg(test)]
mod tests;
