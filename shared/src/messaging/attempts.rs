//! The attempts to do the work of a message alone, as recorded in the message.
//!
//! Work that kills its worker must not be tried for ever. But the next receiver of a message cannot see why an attempt
//! was not completed: the process may have ended, or the attempt met an outage that also prevented the process from
//! updating the message. Therefore an attempt names its process and the version of its entry in the process registry.
//! A process that survives an incomplete attempt renews its entry, and one that is stopped removes it. So only an
//! attempt whose entry is unchanged counts.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::time::Timestamp;
use crate::ports::process_registry::{ProcessId, RegisteredProcess};

/// Largest number of attempts in a message, so that its size is limited.
pub const ATTEMPTS_MAX: usize = 8;

/// One version of the entry of a process in the process registry. Each renewal makes another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryVersion {
    /// The process.
    pub process: ProcessId,
    /// [`RegisteredProcess::next_by`] of this version.
    pub next_by: Timestamp,
}

impl EntryVersion {
    /// Returns the version of an entry.
    pub const fn of(entry: &RegisteredProcess) -> Self {
        Self { process: entry.id, next_by: entry.next_by }
    }
}

/// The recorded attempts of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The last attempt of each process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    started: Vec<Attempt>,
    /// Whether the message waited since the last attempt, so that a surviving process could renew its entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    waited: bool,
}

/// An attempt of a process with this version of its entry, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Attempt {
    process: Uuid,
    entry: i64,
}

impl Attempts {
    /// No attempt.
    pub const NONE: Self = Self { started: Vec::new(), waited: false };

    /// Returns whether there are none.
    pub const fn is_none(&self) -> bool {
        self.started.is_empty()
    }

    /// Returns the number of processes with an attempt.
    pub const fn len(&self) -> usize {
        self.started.len()
    }

    /// Returns whether the message waited since the last attempt.
    pub const fn has_waited(&self) -> bool {
        self.waited
    }

    /// Returns the processes with an attempt.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.started.iter().map(|attempt| ProcessId::from_uuid(attempt.process))
    }

    /// Returns the attempts with one that begins now. It replaces an earlier attempt of the same process.
    #[must_use]
    pub fn with(&self, entry: EntryVersion) -> Self {
        let EntryVersion { process, next_by } = entry;
        let (process, entry) = (process.as_uuid(), next_by.unix_ms());
        let others = self.started.iter().filter(|attempt| attempt.process != process).copied();
        Self { started: others.chain([Attempt { process, entry }]).collect(), waited: false }
    }

    /// Returns the attempts after the message waited.
    #[must_use]
    pub fn after_wait(&self) -> Self {
        Self { waited: true, ..self.clone() }
    }

    /// Returns the attempts whose processes are not known to have survived: their entries are still the same.
    #[must_use]
    pub fn not_survived(&self, registered: &[RegisteredProcess]) -> Self {
        let is_unchanged = |attempt: &Attempt| {
            registered.iter().map(EntryVersion::of).any(|entry| {
                entry.process.as_uuid() == attempt.process && entry.next_by.unix_ms() == attempt.entry
            })
        };
        let started: Vec<_> = self.started.iter().filter(|attempt| is_unchanged(attempt)).copied().collect();
        let waited = self.waited && started.len() == self.started.len();
        Self { started, waited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::process_registry::{Address, ProcessKind};

    fn entry(process: u128, next_by: i64) -> RegisteredProcess {
        RegisteredProcess {
            id: ProcessId::from_uuid(Uuid::from_u128(process)),
            kind: ProcessKind::Worker,
            address: Address::parse("h:1").unwrap(),
            started_at: Timestamp::from_unix_ms(0),
            next_by: Timestamp::from_unix_ms(next_by),
        }
    }

    #[test]
    fn only_the_attempt_of_a_process_whose_entry_is_unchanged_counts() {
        let attempts = Attempts::NONE.with(EntryVersion::of(&entry(1, 10)));
        let attempts = attempts.with(EntryVersion::of(&entry(2, 20))).with(EntryVersion::of(&entry(1, 11)));
        assert_eq!(attempts.len(), 2, "process 1 survived its first attempt");
        let waited = attempts.after_wait();
        let check = |registered: &[RegisteredProcess], left: usize| {
            let not_survived = waited.not_survived(registered);
            assert_eq!(not_survived.len(), left, "{registered:?}");
            assert_eq!(not_survived.has_waited(), left == 2, "{registered:?}");
        };
        check(&[entry(1, 11), entry(2, 20), entry(3, 11)], 2);
        check(&[entry(1, 12), entry(2, 20)], 1);
        check(&[entry(2, 20)], 1);
        check(&[], 0);
        assert!(!waited.with(EntryVersion::of(&entry(3, 1))).has_waited());
    }
}
