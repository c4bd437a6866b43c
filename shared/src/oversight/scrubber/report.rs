//! Reports of the scrubber, for operators and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::DAY;
use super::state::{Round, State, StateStore, round_time};
use crate::domain::time::Timestamp;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::ProcessId;
use crate::ports::world::World;

/// Progress and results of the scrubber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubberReport {
    /// Configured storage operations per day; 0 means that there are no rounds.
    pub operations_per_day: u32,
    /// The process that scrubs, if any.
    pub process: Option<ProcessId>,
    /// The current round.
    pub round: Option<RoundReport>,
    /// The last completed round.
    pub last_round: Option<RoundReport>,
    /// When the pending recovery was requested.
    pub recovery_requested_at: Option<Timestamp>,
    /// The last recovery after a crash.
    pub last_recovery: Option<RecoveryReport>,
    /// Acceptance time of the oldest transaction that was neither final nor a dead letter when a round passed it.
    pub oldest_accepted_at: Option<Timestamp>,
    /// The age of that transaction when the round passed it.
    pub oldest_accepted_age: Option<Duration>,
    /// The last findings, oldest first.
    pub findings: Vec<ScrubberFinding>,
}

/// Progress and results of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundReport {
    /// When the round started.
    pub started_at: Timestamp,
    /// When the round ended; `None` while it is in progress.
    pub ended_at: Option<Timestamp>,
    /// When the round will probably end; `None` if that is unknown, or the round has ended.
    pub expected_end: Option<Timestamp>,
    /// Completed fraction, in thousandths.
    pub progress: u16,
    /// Number of accounts audited.
    pub accounts: u64,
    /// Number of rows read.
    pub rows: u64,
    /// Number of storage operations.
    pub operations: u64,
    /// Number of findings in the round.
    pub findings: u64,
    /// Number of accepted transactions found.
    pub accepted: u64,
    /// Number of accepted transactions that were enqueued again.
    pub enqueued: u64,
}

/// The number of open dead letters at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLetters {
    /// The number.
    pub count: u64,
    /// When the letters were counted.
    pub counted_at: Timestamp,
}

/// The result of a recovery at full speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryReport {
    /// When it was requested.
    pub requested_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Number of accepted transactions that were examined.
    pub examined: u64,
    /// Number of transactions that were enqueued again.
    pub enqueued: u64,
    /// Number of accepted transactions that cannot be decoded.
    pub damaged: u64,
}

/// A finding of the scrubber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubberFinding {
    /// When it was found.
    pub at: Timestamp,
    /// The code of its kind, as in the output of `verify`.
    pub kind: String,
    /// The finding as a sentence.
    pub text: String,
}

impl ScrubberReport {
    pub(super) fn of(state: &State, now: Timestamp, operations_per_day: u32) -> Self {
        let interval = DAY.checked_div(operations_per_day);
        let (time, oldest) = (Timestamp::from_unix_ms, state.oldest());
        Self {
            operations_per_day,
            process: state.claimed_by(now),
            round: state.round.as_ref().map(|round| RoundReport::of(round, interval)),
            last_round: state.last_round.as_ref().map(|round| RoundReport::of(round, None)),
            recovery_requested_at: state.recovery_requested.map(time),
            last_recovery: state.last_recovery.as_ref().map(|recovery| RecoveryReport {
                requested_at: time(recovery.requested_at),
                ended_at: time(recovery.ended_at),
                examined: recovery.examined,
                enqueued: recovery.enqueued,
                damaged: recovery.damaged,
            }),
            oldest_accepted_at: oldest.map(|(accepted_at, _)| accepted_at),
            oldest_accepted_age: oldest.map(|(_, age)| age),
            findings: state
                .findings
                .iter()
                .map(|found| ScrubberFinding {
                    at: time(found.at),
                    kind: found.kind.clone(),
                    text: found.text.clone(),
                })
                .collect(),
        }
    }
}

impl RoundReport {
    fn of(round: &Round, interval: Option<Duration>) -> Self {
        let started_at = Timestamp::from_unix_ms(round.started_at);
        let progress = round.progress();
        let whole = interval.and_then(|interval| round_time(round.operations, progress, interval));
        Self {
            started_at,
            ended_at: round.ended_at.map(Timestamp::from_unix_ms),
            expected_end: whole.map(|whole| started_at.after(whole)),
            progress,
            accounts: round.accounts,
            rows: round.rows,
            operations: round.operations,
            findings: round.findings,
            accepted: round.accepted,
            enqueued: round.enqueued,
        }
    }
}

/// Counts since the start of this process, and the current state while it scrubs.
#[derive(Debug, Default)]
pub struct ScrubberStatus {
    /// Number of storage operations, except those of recoveries.
    pub operations: Count,
    /// Number of findings.
    pub findings: Count,
    /// Number of transactions whose work was enqueued again.
    pub enqueued: Count,
    state: Mutex<Option<State>>,
    open_letters: Mutex<Option<OpenLetters>>,
}

/// A counter that never decreases.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ScrubberStatus {
    pub(super) fn set(&self, state: Option<State>) {
        if state.is_none() {
            self.set_open_letters(None);
        }
        *self.state.lock() = state;
    }

    pub(super) fn set_open_letters(&self, counted: Option<OpenLetters>) {
        *self.open_letters.lock() = counted;
    }

    /// Returns the last count of open dead letters; `None` if this process does not scrub. Does not access the store.
    pub fn open_letters(&self) -> Option<OpenLetters> {
        *self.open_letters.lock()
    }

    /// Returns the report; `None` if this process does not scrub. Does not access the store.
    pub fn report(&self) -> Option<ScrubberReport> {
        let state = self.state.lock();
        state.as_ref().map(|state| ScrubberReport::of(state, Timestamp::from_unix_ms(0), 0))
    }
}

/// Reads the state as last saved by the process that scrubs.
///
/// # Errors
/// [`StoreFault`] when the store cannot be read.
pub async fn report(
    store: &Store,
    world: &dyn World,
    operations_per_day: u32,
) -> Result<ScrubberReport, StoreFault> {
    let (state, _) = StateStore::new(Arc::clone(&store.sync)).load().await?;
    Ok(ScrubberReport::of(&state, world.now(), operations_per_day))
}
