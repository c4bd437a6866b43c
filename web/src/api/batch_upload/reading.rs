//! Cost of reading a document: each partner has a share of the processor time, and is charged for the bytes (debt).
//!
//! The thread that reads a document cannot be stopped from outside. It therefore owns the place of the upload and the debt,
//! and ends by itself soon after the request.

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

/// Number of bytes of a document to read before another document has its turn.
const SLICE_BYTES: usize = 256 * 1024;
/// Number of bytes of a document, before or after decompression, that count as one request of the partner.
const BYTES_PER_REQUEST: u64 = 1024;

/// Handle of a request to the reading of its document. When it is dropped, the reading thread ends at the next piece.
pub struct Reading {
    progress: Arc<Progress>,
    /// For the reading thread, until it starts.
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
    /// Whether the thread waited too long for a turn.
    has_no_turn: AtomicBool,
}

impl Progress {
    /// Returns the number of requests that the bytes read so far count as.
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
    /// Takes an upload place of the caller, until the document is read.
    ///
    /// # Errors
    /// [`ApiError`] with status 429 or 503 if no place is free.
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

    /// Records that the batch is accepted: charges its partner for the items that exceed the requests already counted.
    pub fn accept(&self, items: u64) {
        self.progress.owe(items.saturating_sub(self.progress.requests()));
    }

    /// Returns the state for the reading thread, once.
    ///
    /// # Errors
    /// [`ApiError`] if it was already taken.
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

/// State of the thread that reads a document. The thread gives up its turn while it waits. When this value is dropped, the
/// place of the upload is free, and the partner is charged for the bytes read, whatever the result is.
pub(super) struct Pace {
    turns: Arc<Turns>,
    progress: Arc<Progress>,
    turn: RefCell<Option<Turn>>,
    in_slice: Cell<usize>,
    /// Resolves when the request has ended.
    request_end: RefCell<oneshot::Receiver<()>>,
    _place: UploadPlace,
}

/// Reason why the reading of a document stopped.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadingError {
    /// The thread waited too long for a turn.
    #[error("too many documents are being read")]
    NoTurn,
    /// The client disconnected, or lost its right to submit.
    #[error("the request has ended")]
    RequestEnded,
}

impl Pace {
    /// Waits for a turn, unless the thread has one. Blocks the thread.
    ///
    /// # Errors
    /// [`ReadingError`] when the request has ended, or after waiting for a minute.
    pub(super) fn resume(&self) -> Result<(), ReadingError> {
        if self.turn.borrow().is_some() {
            return Ok(());
        }
        let mut request_end = self.request_end.borrow_mut();
        let turn = std::pin::pin!(self.turns.wait(&self.progress.partner));
        let turn = match Handle::current().block_on(select(turn, &mut *request_end)) {
            Either::Left((Ok(turn), _)) => turn,
            Either::Left((Err(_), _)) => {
                self.progress.has_no_turn.store(true, Ordering::Release);
                return Err(ReadingError::NoTurn);
            }
            Either::Right(_) => return Err(ReadingError::RequestEnded),
        };
        self.in_slice.set(0);
        self.turn.replace(Some(turn));
        Ok(())
    }

    /// Ends the turn, before the thread waits for something else.
    pub(super) fn pause(&self) {
        drop(self.turn.take());
    }

    /// Counts bytes before decompression.
    ///
    /// # Errors
    /// Same as [`Self::resume`].
    pub(super) fn received(&self, bytes: usize) -> Result<(), ReadingError> {
        self.count(&self.progress.received_bytes, bytes)
    }

    /// Counts bytes after decompression.
    ///
    /// # Errors
    /// Same as [`Self::resume`].
    pub(super) fn expanded(&self, bytes: usize) -> Result<(), ReadingError> {
        self.count(&self.progress.expanded_bytes, bytes)
    }

    /// Counts bytes. After each slice, other documents have their turn.
    fn count(&self, counter: &AtomicU64, bytes: usize) -> Result<(), ReadingError> {
        counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        if self.request_end.borrow_mut().try_recv() != Err(TryRecvError::Empty) {
            return Err(ReadingError::RequestEnded);
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

    /// Returns the reading of a document by a partner with one upload place, with the places and the rates.
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
        assert!(matches!(pace.received(1), Err(ReadingError::RequestEnded)));
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
        assert!(matches!(waiting.await.unwrap(), Err(ReadingError::RequestEnded)));
        drop(other);
    }
}
