//! The attempts to process a message alone, as recorded in the message.
//!
//! Work that crashes its worker must not be retried forever. But an attempt without a result does not show why it
//! failed: the process may have crashed, or an outage may have failed the attempt and also prevented the update of the
//! message. Each attempt therefore records its process, and how many attempts that process had survived before. A
//! process that survives an attempt but cannot update the message increments that count in its entry of the process
//! registry. A process that stops normally removes its entry. An attempt counts as a crash only if the entry exists,
//! has no higher count, and is stale: not renewed for more than half an hour.
//!
//! A process that cannot renew or remove its entry for that long, while others can read the registry, also counts as
//! crashed. Therefore a message is given up only after several processes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::time::Timestamp;
use crate::ports::process_registry::{ProcessId, RegisteredProcess};

/// Maximum number of attempts in a message, which bounds its size.
pub const ATTEMPTS_MAX: usize = 8;

/// One attempt of a process. A process makes at most one attempt at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The process.
    pub process: ProcessId,
    /// [`RegisteredProcess::attempts_survived`] of the process when the attempt began.
    pub attempts_survived: u64,
}

/// The recorded attempts of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The last attempt of each process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    started: Vec<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    process: Uuid,
    #[serde(rename = "survivals")]
    attempts_survived: u64,
}

impl Row {
    fn entry<'r>(&self, registered: &'r [RegisteredProcess]) -> Option<&'r RegisteredProcess> {
        registered.iter().find(|entry| entry.id.as_uuid() == self.process)
    }
}

impl Attempts {
    /// No attempt.
    pub const NONE: Self = Self { started: Vec::new() };

    /// Returns whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.started.is_empty()
    }

    /// Returns the number of processes with an attempt.
    pub const fn len(&self) -> usize {
        self.started.len()
    }

    /// Returns the processes that made an attempt.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.started.iter().map(|attempt| ProcessId::from_uuid(attempt.process))
    }

    /// Adds an attempt that begins now, in place of an earlier attempt of the same process.
    #[must_use]
    pub fn with(&self, attempt: Attempt) -> Self {
        let Attempt { process, attempts_survived } = attempt;
        let process = process.as_uuid();
        let others = self.started.iter().filter(|other| other.process != process).copied();
        Self { started: others.chain([Row { process, attempts_survived }]).collect() }
    }

    /// Returns the attempts that their processes may not have survived: the entry exists, and counts no survival since.
    #[must_use]
    pub fn not_survived(&self, registered: &[RegisteredProcess]) -> Self {
        let is_open = |attempt: &&Row| {
            attempt
                .entry(registered)
                .is_some_and(|entry| entry.attempts_survived <= attempt.attempts_survived)
        };
        Self { started: self.started.iter().filter(is_open).copied().collect() }
    }

    /// Returns whether all of these processes crashed: their entries are stale.
    pub fn are_ended(&self, registered: &[RegisteredProcess], now: Timestamp) -> bool {
        self.started.iter().all(|attempt| attempt.entry(registered).is_some_and(|entry| entry.is_stale(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::process_registry::{Address, LEVEL, ProcessKind};

    fn entry(process: u128, attempts_survived: u64, next_by_s: i64) -> RegisteredProcess {
        RegisteredProcess {
            id: ProcessId::from_uuid(Uuid::from_u128(process)),
            kind: ProcessKind::Worker,
            address: Address::parse("h:1").unwrap(),
            started_at: Timestamp::from_unix_ms(0),
            next_by: Timestamp::from_unix_ms(next_by_s.saturating_mul(1000)),
            attempts_survived,
            level: LEVEL,
        }
    }

    fn attempt(process: u128, attempts_survived: u64) -> Attempt {
        Attempt { process: ProcessId::from_uuid(Uuid::from_u128(process)), attempts_survived }
    }

    #[test]
    fn only_attempts_that_their_processes_did_not_survive_count() {
        let attempts = Attempts::NONE.with(attempt(1, 0)).with(attempt(2, 3)).with(attempt(1, 1));
        assert_eq!(attempts.len(), 2, "process 1 survived its first attempt");
        let check = |registered: &[RegisteredProcess], left: usize| {
            assert_eq!(attempts.not_survived(registered).len(), left, "{registered:?}");
        };
        check(&[entry(1, 1, 0), entry(2, 3, 0), entry(3, 1, 0)], 2);
        check(&[entry(1, 1, 99), entry(2, 3, 99)], 2);
        check(&[entry(1, 2, 0), entry(2, 3, 0)], 1);
        // A write that arrived late.
        check(&[entry(1, 0, 0)], 1);
        check(&[], 0);
    }

    #[test]
    fn processes_have_ended_when_all_entries_are_stale() {
        let attempts = Attempts::NONE.with(attempt(1, 0)).with(attempt(2, 0));
        let now = Timestamp::from_unix_ms(100_000);
        assert!(attempts.are_ended(&[entry(1, 0, 10), entry(2, 0, 20), entry(3, 0, 200)], now));
        assert!(!attempts.are_ended(&[entry(1, 0, 10), entry(2, 0, 99)], now));
        assert!(!attempts.are_ended(&[entry(1, 0, 10)], now));
    }
}
