//! What is under way on the connections of a server, as their transport and their requests know it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures::task::AtomicWaker;

/// What is under way on all connections of a server.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Streams over HTTP/2 whose answer is not yet sent.
    pub(super) open_streams: AtomicUsize,
    /// How many streams were answered so far.
    pub(super) answered_streams: AtomicU64,
    /// Bytes of heads of requests that have not arrived completely.
    pub(super) head_bytes: AtomicUsize,
}

/// What others know about the streams of one connection.
#[derive(Debug, Default)]
pub(super) struct StreamCounts {
    pub(super) open: AtomicUsize,
    /// How many streams of all connections were answered when one of this was answered last, or when it opened its only one.
    pub(super) answered_at: AtomicU64,
}

impl StreamCounts {
    /// The number of requests whose answer is not yet sent.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A number that is smaller the longer ago the connection took an answer, or began to wait for one.
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
