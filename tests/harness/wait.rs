//! Waiting for a condition, with a deadline. Nothing in the tests sleeps and hopes.
#![expect(clippy::disallowed_methods, reason = "tests run in the real world and wait for real processes")]

use std::time::{Duration, Instant};

/// How long a condition may take that normally holds at once: generous, because the machine may be
/// busy with other tests. A test that passes never waits that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks.
const LOOK_DELAY: Duration = Duration::from_millis(15);

/// Returns what `look` finds as soon as it finds it. `Err` says what was seen instead.
///
/// # Panics
/// When the deadline passes, with what was waited for and what was seen last.
pub async fn until<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) if started.elapsed() > within => {
                panic!("{what}: not within {within:?}; seen last: {seen}")
            }
            Err(_) => tokio::time::sleep(LOOK_DELAY).await,
        }
    }
}

/// As [`until`], for code that is not async.
///
/// # Errors
/// What was seen last, when the deadline passes.
pub fn block_until<T>(within: Duration, mut look: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let started = Instant::now();
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(seen) if started.elapsed() > within => return Err(seen),
            Err(_) => std::thread::sleep(LOOK_DELAY),
        }
    }
}

/// Checks that `holds` stays true for that long: for what must *not* happen.
///
/// # Panics
/// When it does not hold, with what it says.
pub async fn throughout(what: &str, duration: Duration, mut holds: impl AsyncFnMut() -> Result<(), String>) {
    let started = Instant::now();
    while started.elapsed() < duration {
        if let Err(seen) = holds().await {
            panic!("{what}: no longer true after {:?}: {seen}", started.elapsed());
        }
        tokio::time::sleep(LOOK_DELAY).await;
    }
}

/// Lets time pass: for traffic with a pace, and for measurements after idleness. A test that waits for
/// something waits with [`until`].
pub async fn pass(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Measures time.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
