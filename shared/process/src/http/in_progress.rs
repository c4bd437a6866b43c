//! Counts of the requests in progress on the connections of a server, shared between their transports and requests.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures::task::AtomicWaker;

/// Totals of all connections of a server.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// HTTP/2 streams whose response is not yet sent.
    pub(super) open_streams: AtomicUsize,
    /// Number of streams answered so far.
    pub(super) answered_streams: AtomicU64,
    /// Bytes of incomplete request heads.
    pub(super) head_bytes: AtomicUsize,
}

/// Counts of the streams of one connection.
#[derive(Debug, Default)]
pub(super) struct StreamCounts {
    pub(super) open: AtomicUsize,
    /// How many streams of all connections were answered when one of this was answered last, or when it opened its only one.
    pub(super) answered_at: AtomicU64,
}

impl StreamCounts {
    /// Returns the number of requests whose response is not yet sent.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A number that is smaller the longer ago the connection took an answer, or began to wait for one.
    pub(super) fn answered_at(&self) -> u64 {
        self.answered_at.load(Ordering::Relaxed)
    }
}

/// Requests of an HTTP/1.1 connection, which are in progress one at a time.
#[derive(Debug, Default)]
pub(super) struct InTurn {
    begun: AtomicU64,
    answered: AtomicU64,
    /// Length of the body of the last request; `u64::MAX` if it is chunked.
    body: AtomicU64,
    /// The task to wake for a read when a request has begun or is answered.
    pub(super) reader: AtomicWaker,
}

impl InTurn {
    /// Records that a request has begun, and the length of its body; `None` if it is chunked.
    pub(super) fn begin(&self, body: Option<u64>) {
        self.body.store(body.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Release);
        self.reader.wake();
    }

    /// Records that a request is answered.
    pub(super) fn end(&self) {
        self.answered.fetch_add(1, Ordering::Release);
        self.reader.wake();
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }

    /// Returns the length of the body of the last request that has begun; `None` if it is chunked.
    pub(super) fn body(&self) -> Option<u64> {
        Some(self.body.load(Ordering::Relaxed)).filter(|body| *body < u64::MAX)
    }
}
