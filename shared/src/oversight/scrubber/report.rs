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
    /// The configured number of storage operations per day; zero: there are no rounds.
    pub operations_per_day: u32,
    /// The process that scrubs; `None` if none does.
    pub process: Option<ProcessId>,
    /// The round in progress.
    pub round: Option<RoundReport>,
    /// The last round that ended.
    pub last_round: Option<RoundReport>,
    /// When a recovery was requested that has not ended yet.
    pub recovery_requested_at: Option<Timestamp>,
    /// The last recovery after the end of a process.
    pub last_recovery: Option<RecoveryReport>,
    /// When the oldest transaction was accepted that is not final and not in the dead letters. It was so when a round
    /// passed it.
    pub oldest_accepted_at: Option<Timestamp>,
    /// How long it had been open then.
    pub oldest_accepted_age: Option<Duration>,
    /// The last findings, the oldest first.
    pub findings: Vec<ScrubberFinding>,
}

/// A round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundReport {
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; `None` while it is in progress.
    pub ended_at: Option<Timestamp>,
    /// When it will probably end; `None` if it has ended, or while that is unknown.
    pub expected_end: Option<Timestamp>,
    /// The part of it that is done, in thousandths.
    pub progress: u16,
    /// Number of accounts.
    pub accounts: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of storage operations.
    pub operations: u64,
    /// Number of findings.
    pub findings: u64,
    /// Number of accepted transactions.
    pub accepted: u64,
    /// Number of accepted transactions that were enqueued again.
    pub enqueued: u64,
}

/// A number of open dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLetters {
    /// The number.
    pub count: u64,
    /// When they were counted.
    pub counted_at: Timestamp,
}

/// A recovery at full speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryReport {
    /// When it was requested.
    pub requested_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Number of accepted transactions that were examined.
    pub examined: u64,
    /// Number of those that were enqueued again.
    pub enqueued: u64,
    /// Number of accepted transactions that cannot be read.
    pub damaged: u64,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubberFinding {
    /// When it was found.
    pub at: Timestamp,
    /// The code of its kind, as in the output of `verify`.
    pub kind: String,
    /// A sentence.
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

/// What this process scrubbed since its start, and the state while it scrubs.
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

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the number.
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

    /// Returns the last number of open dead letters; `None` if this process does not scrub. Never accesses the store.
    pub fn open_letters(&self) -> Option<OpenLetters> {
        *self.open_letters.lock()
    }

    /// Returns the report; `None` if this process does not scrub. Never accesses the store.
    pub fn report(&self) -> Option<ScrubberReport> {
        let state = self.state.lock();
        state.as_ref().map(|state| ScrubberReport::of(state, Timestamp::from_unix_ms(0), 0))
    }
}

/// Reads the state of the scrubber, as the process that scrubs last wrote it.
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
