//! What is under way on the connections of a server, as their transport and their requests know it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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

/// The requests of a connection over HTTP/1.1, of which one is in progress at a time.
#[derive(Debug, Default)]
pub(super) struct InTurn {
    begun: AtomicU64,
    answered: AtomicU64,
    /// Length of the body of the last one; `u64::MAX` if it is sent in chunks.
    body: AtomicU64,
    /// Who waits for a read until the next one is begun or answered.
    pub(super) reader: AtomicWaker,
}

impl InTurn {
    /// Notes that a request was begun, and the length of its body; `None` if it is sent in chunks.
    pub(super) fn begin(&self, body: Option<u64>) {
        self.body.store(body.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Release);
        self.reader.wake();
    }

    /// Notes that a request is answered.
    pub(super) fn end(&self) {
        self.answered.fetch_add(1, Ordering::Release);
        self.reader.wake();
    }

    /// How many requests were begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// How many requests were answered.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }

    /// The length of the body of the request that was begun last; `None` if it is sent in chunks.
    pub(super) fn body(&self) -> Option<u64> {
        Some(self.body.load(Ordering::Relaxed)).filter(|body| *body < u64::MAX)
    }
}
