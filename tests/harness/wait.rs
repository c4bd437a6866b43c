//! Waiting for a condition, with a deadline. Tests do not sleep for a fixed time.
#![expect(clippy::disallowed_methods, reason = "tests wait for real processes")]

use std::time::{Duration, Instant};

/// Timeout of a condition that normally holds at once. It is generous, because the machine may run other tests. A passing test
/// does not wait that long.
pub const TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(15);

/// Returns the result of `check` as soon as it is `Ok`. `Err` describes the current state.
///
/// # Panics
/// When the deadline passes, with the description of the last state.
pub async fn until<T>(what: &str, within: Duration, check: impl AsyncFnMut() -> Result<T, String>) -> T {
    let result = attempt(within, check).await;
    result.unwrap_or_else(|state| panic!("{what}: not within {within:?}; seen last: {state}"))
}

/// Like [`until`], for callers that add details to a failure.
///
/// # Errors
/// The last state, when the deadline passes.
pub async fn attempt<T>(
    within: Duration,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, String> {
    let started = Instant::now();
    loop {
        match check().await {
            Ok(found) => return Ok(found),
            Err(state) if started.elapsed() > within => return Err(state),
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Like [`until`], for code that is not async.
///
/// # Errors
/// The last state, when the deadline passes.
pub fn block_until<T>(within: Duration, mut check: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let started = Instant::now();
    loop {
        match check() {
            Ok(found) => return Ok(found),
            Err(state) if started.elapsed() > within => return Err(state),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Checks that `holds` stays true for this time, for events that must *not* happen.
///
/// # Panics
/// When `holds` fails, with its error.
pub async fn throughout(what: &str, duration: Duration, mut holds: impl AsyncFnMut() -> Result<(), String>) {
    let started = Instant::now();
    while started.elapsed() < duration {
        if let Err(state) = holds().await {
            panic!("{what}: no longer true after {:?}: {state}", started.elapsed());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits for a fixed time, for paced traffic and for measurements after idle time. To wait for a condition, use [`until`].
pub async fn pass(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Measures elapsed time.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts a measurement.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
