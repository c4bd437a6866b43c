//! Floods: clients that ask for answers and do not take them, or send what takes memory. Each is tried against a real process,
//! whose memory is read, and beside requests of another partner, whose time is taken.

mod bank;
mod client;
pub mod http2;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join;

pub use self::bank::{FloodBank, Latency};
pub use self::client::{Target, flood};
use crate::wait;

/// Largest memory that a process may use, in KiB.
pub const MEMORY_KIB_MAX: u64 = 256 * 1024;

/// The answer that a flood asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Small and at once.
    Livez,
    /// The same for all, and large.
    Docs,
    /// A page of a statement, which is made for each request.
    Statement,
    /// The results of a batch, which are read while they are sent.
    Results,
    /// A list of batches.
    Batches,
    /// A page of the console.
    Console,
    /// The metrics.
    Metrics,
    /// A request that waits.
    Waiting,
}

impl Answer {
    /// All, with a name.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Livez, "livez"),
        (Self::Docs, "docs"),
        (Self::Statement, "statement"),
        (Self::Results, "results"),
        (Self::Batches, "batches"),
        (Self::Console, "console"),
        (Self::Metrics, "metrics"),
        (Self::Waiting, "waiting"),
    ];
}

/// How a flood asks, and what it does with the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// HTTP/1.1 over TLS, a few requests one after the other on each connection, nothing is read.
    Http1,
    /// HTTP/2 with the largest windows, nothing is read.
    Unread,
    /// HTTP/2 without a window for the bodies; the rest is read.
    NoWindow,
    /// HTTP/2 with requests for heads only, nothing is read.
    Heads,
    /// HTTP/2 with bodies of empty frames after each request.
    EmptyFrames,
}

impl Way {
    /// All, with a name.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Http1, "HTTP/1.1 unread"),
        (Self::Unread, "HTTP/2 unread"),
        (Self::NoWindow, "HTTP/2 no window"),
        (Self::Heads, "HTTP/2 heads"),
        (Self::EmptyFrames, "HTTP/2 empty frames"),
    ];
}

/// One flood.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// What it asks for.
    pub answer: Answer,
    /// How.
    pub way: Way,
    /// Whether it has the key of a partner, or a session.
    pub has_key: bool,
    /// The number of its connections, which are opened again when they are closed.
    pub connections: usize,
    /// How long it lasts.
    pub lasting: Duration,
}

/// What a flood did.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Bytes that were sent.
    pub sent: u64,
    /// Largest memory of the process meanwhile.
    pub memory_kib: u64,
    /// Of the requests of the other partner beside it.
    pub latency: Latency,
}

impl Flood {
    /// Floods one bank, beside requests of a partner to another one, or to the same.
    pub async fn run(self, flooded: &FloodBank, working: &FloodBank) -> Outcome {
        flooded.forget_memory_peak();
        let is_over = Arc::new(AtomicBool::new(false));
        let flooding = flood(flooded.target(self), self, Arc::clone(&is_over));
        let others = async {
            // Until its connections are open.
            wait::pass(self.lasting.checked_div(4).unwrap_or_default()).await;
            let latency = working.latency(self.lasting).await;
            is_over.store(true, Ordering::Relaxed);
            latency
        };
        let (sent, latency) = join(flooding, others).await;
        Outcome { sent, memory_kib: flooded.memory_peak_kib(), latency }
    }
}
