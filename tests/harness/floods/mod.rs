//! Floods: clients that request responses without reading them, or that send data which takes memory. Each flood runs against
//! a real process whose memory is measured, next to requests of another partner whose latency is measured.

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

/// Maximum memory of a process, in KiB.
pub const MEMORY_KIB_MAX: u64 = 256 * 1024;

/// The response that a flood requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A small response without work.
    Livez,
    /// A large response that is the same for all requests.
    Docs,
    /// A page of a statement, created for each request.
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
    /// All responses, with their names.
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

/// How a flood sends requests and treats responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// HTTP/1.1 over TLS, with a few pipelined requests per connection. Reads nothing.
    Http1,
    /// HTTP/2 with maximum windows. Reads nothing.
    Unread,
    /// HTTP/2 without a window for response bodies. Reads the other frames.
    NoWindow,
    /// HTTP/2 with `HEAD` requests only. Reads nothing.
    Heads,
    /// HTTP/2 with a body of empty frames after each request.
    EmptyFrames,
}

impl Way {
    /// All ways, with their names.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Http1, "HTTP/1.1 unread"),
        (Self::Unread, "HTTP/2 unread"),
        (Self::NoWindow, "HTTP/2 no window"),
        (Self::Heads, "HTTP/2 heads"),
        (Self::EmptyFrames, "HTTP/2 empty frames"),
    ];
}

/// Settings of a flood.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// The response that it requests.
    pub answer: Answer,
    /// How it sends requests.
    pub way: Way,
    /// Whether it uses the key of a partner or a session.
    pub has_key: bool,
    /// Number of connections, which are reopened when they are closed.
    pub connections: usize,
    /// Duration of the flood.
    pub lasting: Duration,
}

/// Result of a flood.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Number of bytes sent.
    pub sent: u64,
    /// Peak memory of the process during the flood, in KiB.
    pub memory_kib: u64,
    /// Latency of the requests of the other partner.
    pub latency: Latency,
}

impl Flood {
    /// Floods one bank, during requests of a partner to another bank or to the same one.
    pub async fn run(self, flooded: &FloodBank, working: &FloodBank) -> Outcome {
        flooded.forget_memory_peak();
        let is_over = Arc::new(AtomicBool::new(false));
        let flooding = flood(flooded.target(self), self, Arc::clone(&is_over));
        let others = async {
            // Waits until the connections of the flood are open.
            wait::pass(self.lasting.checked_div(4).unwrap_or_default()).await;
            let latency = working.latency(self.lasting).await;
            is_over.store(true, Ordering::Relaxed);
            latency
        };
        let (sent, latency) = join(flooding, others).await;
        Outcome { sent, memory_kib: flooded.memory_peak_kib(), latency }
    }
}
