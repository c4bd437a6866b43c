//! What reading a document costs: its processor time, of which each partner has a share, and the debt of its partner.
//!
//! The thread that reads a document cannot be stopped from outside. So the place of the upload and the debt belong to the
//! thread, and it ends by itself soon after the request.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use actix_web::HttpRequest;
use actix_web::web::Data;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, pending, select};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::access::authentication::{Caller, rates, shares};
use crate::access::rates::Rates;
use crate::access::shares::UploadPlace;
use crate::access::turns::{Turn, Turns};
use crate::error::{ApiError, Code};

/// Bytes of a document that are read before another document has its turn.
const SLICE_BYTES: usize = 256 * 1024;
/// Bytes of a document, compressed or not, that count as a request of its partner.
const BYTES_PER_REQUEST: u64 = 1024;

/// The reading of a document, for its request. When it is dropped, the thread that reads ends at the next piece.
pub struct Reading {
    progress: Arc<Progress>,
    /// For the thread, until that starts.
    pace: Option<Pace>,
    until_lost: BoxFuture<'static, ()>,
    _request: oneshot::Sender<()>,
}

struct Progress {
    partner: PartnerId,
    rate: Option<RequestRate>,
    rates: Data<Rates>,
    received_bytes: AtomicU64,
    expanded_bytes: AtomicU64,
    /// Whether there was no turn in time.
    has_no_turn: AtomicBool,
}

impl Progress {
    /// The requests as which the document counts so far.
    fn requests(&self) -> u64 {
        let bytes =
            self.received_bytes.load(Ordering::Relaxed).max(self.expanded_bytes.load(Ordering::Relaxed));
        bytes.checked_div(BYTES_PER_REQUEST).unwrap_or_default()
    }

    fn owe(&self, requests: u64) {
        self.rates.owe(&self.partner, self.rate, requests);
    }
}

impl Reading {
    /// Takes the place of an upload of the caller, until its document is read.
    ///
    /// # Errors
    /// [`ApiError`] with status 429 or 503 if there is none.
    pub fn of<P>(caller: &Caller<P>, request: &HttpRequest) -> Result<Self, ApiError> {
        let place = shares(request)?.upload_place(request, caller.partner())?;
        let (partner, rate) = (caller.partner().clone(), caller.grant().partner.rate);
        let turns = Arc::clone(&shares(request)?.readings);
        Ok(Self::new((partner, rate), rates(request)?.clone(), turns, place))
    }

    fn new(
        (partner, rate): (PartnerId, Option<RequestRate>),
        rates: Data<Rates>,
        turns: Arc<Turns>,
        (slot, mut place): UploadPlace,
    ) -> Self {
        let until_lost = place.until_lost().boxed();
        let (received_bytes, expanded_bytes, has_no_turn) = Default::default();
        let progress = Progress { partner, rate, rates, received_bytes, expanded_bytes, has_no_turn };
        let progress = Arc::new(progress);
        let (ends, ended) = oneshot::channel();
        let pace = Pace {
            turns,
            progress: Arc::clone(&progress),
            turn: RefCell::default(),
            in_slice: Cell::new(0),
            request_end: RefCell::new(ended),
            _place: (slot, place),
        };
        Self { progress, pace: Some(pace), until_lost, _request: ends }
    }

    /// The batch is accepted: its partner owes its items, as far as they are more than what was read.
    pub fn accept(&self, items: u64) {
        self.progress.owe(items.saturating_sub(self.progress.requests()));
    }

    /// Returns what the thread needs that reads the document, once.
    ///
    /// # Errors
    /// [`ApiError`] if it was taken already.
    pub(super) fn start(&mut self) -> Result<Pace, ApiError> {
        self.pace.take().ok_or_else(|| ApiError::internal("a document is read once"))
    }

    /// Returns what waits until another partner gets the place of the upload, once.
    pub(super) fn until_lost(&mut self) -> BoxFuture<'static, ()> {
        std::mem::replace(&mut self.until_lost, pending().boxed())
    }

    /// Returns the error of a document whose reading ended because others were read.
    pub(super) fn overloaded(&self) -> Option<ApiError> {
        let detail = "Too many batches are being read. Try again in a moment.";
        self.progress.has_no_turn.load(Ordering::Acquire).then(|| ApiError::new(Code::Overloaded, detail))
    }
}

/// The turns of the thread that reads a document. It has none while it waits. When it ends, the place of the upload is free, and
/// the partner owes what was read, whatever becomes of the document.
pub(super) struct Pace {
    turns: Arc<Turns>,
    progress: Arc<Progress>,
    turn: RefCell<Option<Turn>>,
    in_slice: Cell<usize>,
    /// Ready when the request has ended.
    request_end: RefCell<oneshot::Receiver<()>>,
    _place: UploadPlace,
}

/// Why a document is not read further.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// There was no turn in time.
    #[error("too many documents are being read")]
    NoTurn,
    /// The client is gone, or may not submit any more.
    #[error("the request has ended")]
    RequestEnded,
}

impl Pace {
    /// Waits for a turn, unless it has one. Called on a thread that may block.
    ///
    /// # Errors
    /// [`Stopped`] when the request has ended, or after a minute.
    pub(super) fn resume(&self) -> Result<(), Stopped> {
        if self.turn.borrow().is_some() {
            return Ok(());
        }
        let mut request_end = self.request_end.borrow_mut();
        let turn = std::pin::pin!(self.turns.wait(&self.progress.partner));
        let turn = match Handle::current().block_on(select(turn, &mut *request_end)) {
            Either::Left((Ok(turn), _)) => turn,
            Either::Left((Err(_), _)) => {
                self.progress.has_no_turn.store(true, Ordering::Release);
                return Err(Stopped::NoTurn);
            }
            Either::Right(_) => return Err(Stopped::RequestEnded),
        };
        self.in_slice.set(0);
        self.turn.replace(Some(turn));
        Ok(())
    }

    /// Ends the turn, because the thread waits for something else.
    pub(super) fn pause(&self) {
        drop(self.turn.take());
    }

    /// Counts bytes as they were received.
    ///
    /// # Errors
    /// As [`Self::resume`].
    pub(super) fn received(&self, bytes: usize) -> Result<(), Stopped> {
        self.count(&self.progress.received_bytes, bytes)
    }

    /// Counts bytes after decompression.
    ///
    /// # Errors
    /// As [`Self::resume`].
    pub(super) fn expanded(&self, bytes: usize) -> Result<(), Stopped> {
        self.count(&self.progress.expanded_bytes, bytes)
    }

    /// Counts bytes, and after a slice lets others have their turn.
    fn count(&self, counter: &AtomicU64, bytes: usize) -> Result<(), Stopped> {
        counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        if self.request_end.borrow_mut().try_recv() != Err(TryRecvError::Empty) {
            return Err(Stopped::RequestEnded);
        }
        let in_slice = self.in_slice.get().saturating_add(bytes);
        self.in_slice.set(in_slice);
        if in_slice >= SLICE_BYTES {
            self.pause();
        }
        self.resume()
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.progress.owe(self.progress.requests());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use postonce_process::http::Places;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::config::HttpLimits;

    use super::*;
    use crate::access::slots::{NoSlot, Slots};

    /// A document of a partner that has one place, and what its request holds.
    pub(in crate::api::batch_upload) fn reading(turns: Arc<Turns>) -> (Reading, Arc<Slots>, Data<Rates>) {
        let partner = PartnerId::parse("shop").unwrap();
        let limits = HttpLimits { requests_per_second: 1, requests_burst: 1, ..HttpLimits::default() };
        let rates = Data::new(Rates::new(&limits, Arc::new(TestWorld::new(1))));
        let places = Slots::new(1, 1);
        let place = (places.take(&partner, 1).unwrap(), Places::new(1, 1).take(&partner));
        (Reading::new((partner, None), rates.clone(), turns, place), places, rates)
    }

    #[tokio::test]
    async fn a_thread_keeps_its_place_after_its_request_and_ends_at_the_next_piece() {
        let (mut reading, places, rates) = reading(Arc::new(Turns::new(1, 1, Duration::from_secs(60))));
        let partner = PartnerId::parse("shop").unwrap();
        let pace = reading.start().unwrap();
        let pace = tokio::task::spawn_blocking(move || {
            pace.expanded(10 * 1024).unwrap();
            pace
        });
        let pace = pace.await.unwrap();
        drop(reading);
        assert_eq!(places.take(&partner, 1).unwrap_err(), NoSlot::OfHolder(1));
        assert!(matches!(pace.received(1), Err(Stopped::RequestEnded)));
        drop(pace);
        drop(places.take(&partner, 1).unwrap());
        assert_eq!(rates.debt_of(&partner, None), Some(9), "what was read, without a burst");
    }

    #[tokio::test]
    async fn a_thread_that_waits_for_its_turn_ends_with_its_request() {
        let turns = Arc::new(Turns::new(1, 1, Duration::from_secs(60)));
        let other = turns.wait(&PartnerId::parse("mill").unwrap()).await.unwrap();
        let (mut reading, _places, _rates) = reading(turns);
        let pace = reading.start().unwrap();
        let waiting = tokio::task::spawn_blocking(move || pace.resume());
        drop(reading);
        assert!(matches!(waiting.await.unwrap(), Err(Stopped::RequestEnded)));
        drop(other);
    }
}
