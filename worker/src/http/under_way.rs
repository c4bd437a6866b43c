//! What is under way on the connections of a server, as their transport and their requests know it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures::task::AtomicWaker;

/// The open streams of all connections of a server.
#[derive(Default)]
pub(super) struct AllStreams {
    pub(super) open: AtomicUsize,
    /// Called with their number when there are more.
    pub(super) bound: OnceLock<Box<dyn Fn(usize) + Send + Sync>>,
    /// How many were answered so far.
    pub(super) answered: AtomicU64,
}

impl AllStreams {
    /// Sets what is called with the number of open streams when there are more, once.
    pub(super) fn bounded_by(&self, bound: impl Fn(usize) + Send + Sync + 'static) {
        // There is only one that bounds them.
        let _is_first = self.bound.set(Box::new(bound));
    }
}

/// What others know about the streams of one connection.
#[derive(Debug, Default)]
pub(super) struct StreamCounts {
    pub(super) open: AtomicUsize,
    /// How many streams of all connections were answered when one of this was answered last.
    pub(super) answered_at: AtomicU64,
}

impl StreamCounts {
    /// The number of requests whose answer is not yet sent.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A number that is smaller the longer ago the connection took an answer.
    pub(super) fn answered_at(&self) -> u64 {
        self.answered_at.load(Ordering::Relaxed)
    }
}

/// The request in progress on a connection over HTTP/1.1.
#[derive(Debug, Default)]
pub(super) struct InTurn {
    is_begun: AtomicBool,
    /// Bytes of its body that were not yet handed over; `u64::MAX` if nobody knows.
    body_left: AtomicU64,
    /// Bytes behind the last head that were handed over before its request was begun.
    ahead: AtomicU64,
    /// Who waits for a read until it is answered.
    pub(super) reader: AtomicWaker,
}

impl InTurn {
    /// Notes that a request was begun, and the length of its body; `None` if it is not announced.
    pub(super) fn begin(&self, body: Option<u64>) {
        let ahead = self.ahead.swap(0, Ordering::Relaxed);
        self.body_left.store(body.map_or(u64::MAX, |body| body.saturating_sub(ahead)), Ordering::Relaxed);
        self.is_begun.store(true, Ordering::Release);
    }

    /// Notes that it is answered.
    pub(super) fn end(&self) {
        self.is_begun.store(false, Ordering::Release);
        self.reader.wake();
    }

    /// How many bytes may be handed over now: all up to the next head, if no request is in progress.
    pub(super) fn wanted(&self) -> usize {
        if !self.is_begun.load(Ordering::Acquire) {
            return usize::MAX;
        }
        usize::try_from(self.body_left.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Notes bytes behind the head of the current request that were handed over.
    pub(super) fn note(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if !self.is_begun.load(Ordering::Acquire) {
            self.ahead.fetch_add(count, Ordering::Relaxed);
            return;
        }
        let left = self.body_left.load(Ordering::Relaxed);
        if left < u64::MAX {
            self.body_left.store(left.saturating_sub(count), Ordering::Relaxed);
        }
    }

    /// Notes that the head of the next request was handed over, with bytes behind it.
    pub(super) fn note_head(&self, ahead: usize) {
        self.ahead.store(u64::try_from(ahead).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
