//! The registry entry of this process: whether other processes can find it, and the attempts that it counts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::attempts::Attempt;
use crate::ports::process_registry::{ProcessId, RegisteredProcess};

/// The registry entry of this process. Gate changes are sent to the processes in the registry, so only registered
/// processes may post ([`GatePermits`](crate::cluster::gate::permits::GatePermits)). Times are on the clock of
/// [`World::uptime`](crate::ports::world::World::uptime).
#[derive(Debug, Default)]
pub struct Registration {
    state: Mutex<State>,
    renewal: Notify,
}

#[derive(Debug, Default)]
struct State {
    entry: Entry,
    /// Number of attempts that this process survived without being able to update their messages.
    attempts_survived: u64,
    is_attempting: bool,
}

/// The entry as last written by this process.
#[derive(Debug, Default)]
enum Entry {
    /// The process is not registered yet.
    #[default]
    Starting,
    /// The entry has this number of survived attempts, and expires at `until`.
    Valid { process: ProcessId, attempts_survived: u64, until: Duration },
    /// The process drains. Other processes find its entry until this time.
    Ended { until: Duration },
}

impl Entry {
    const fn listed_until(&self) -> Duration {
        match self {
            Self::Starting => Duration::ZERO,
            Self::Valid { until, .. } | Self::Ended { until } => *until,
        }
    }
}

/// Why an attempt cannot begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttemptError {
    /// Another attempt of this process is in progress. A crash during two attempts would count against both messages.
    #[error("another attempt of this process is in progress")]
    Busy,
    /// This process has no valid entry.
    #[error("this process is not in the process registry")]
    NotRegistered,
    /// The entry does not yet record that the process survived an earlier attempt.
    #[error("the process registry does not show yet that this process survived an earlier attempt")]
    NotRecorded,
}

/// An attempt in progress. Dropping it before [`Self::forget`] means that this process survived the attempt, but the
/// message may still record it. The survival is then counted, and a renewal of the entry is requested.
#[derive(Debug)]
pub struct AttemptInProgress {
    registration: Arc<Registration>,
    /// The attempt to record in the message.
    pub attempt: Attempt,
    is_recorded: bool,
}

impl Registration {
    /// Records that the entry was written, and when it expires. Has no effect after [`Self::end`].
    pub(super) fn extend(&self, entry: &RegisteredProcess, until: Duration) {
        let mut state = self.state.lock();
        if !matches!(state.entry, Entry::Ended { .. }) {
            state.entry =
                Entry::Valid { process: entry.id, attempts_survived: entry.attempts_survived, until };
        }
    }

    /// Records that the process drains. It begins no new attempts; its entry stays until its work has ended.
    pub fn end(&self) {
        let mut state = self.state.lock();
        let until = state.entry.listed_until();
        state.entry = Entry::Ended { until };
    }

    /// Records that the entry is about to be removed.
    pub fn withdraw(&self) {
        self.state.lock().entry = Entry::Ended { until: Duration::ZERO };
    }

    /// Returns whether other processes find this process in the registry, also while it drains.
    pub fn is_listed(&self, now: Duration) -> bool {
        now < self.state.lock().entry.listed_until()
    }

    /// Returns whether the entry is valid and the process does not drain.
    pub fn is_valid(&self, now: Duration) -> bool {
        self.process(now).is_some()
    }

    /// Returns the id under which this process is registered; `None` if the entry is not valid.
    pub fn process(&self, now: Duration) -> Option<ProcessId> {
        match self.state.lock().entry {
            Entry::Valid { process, until, .. } if now < until => Some(process),
            Entry::Valid { .. } | Entry::Starting | Entry::Ended { .. } => None,
        }
    }

    /// Returns [`RegisteredProcess::attempts_survived`] to write with the next renewal.
    pub fn attempts_survived(&self) -> u64 {
        self.state.lock().attempts_survived
    }

    /// Begins an attempt to process a message alone.
    ///
    /// # Errors
    /// [`AttemptError`]
    pub fn begin_attempt(self: &Arc<Self>, now: Duration) -> Result<AttemptInProgress, AttemptError> {
        let mut state = self.state.lock();
        match state.entry {
            _ if state.is_attempting => Err(AttemptError::Busy),
            Entry::Valid { process, attempts_survived, until } if now < until => {
                // Otherwise a crash of this process would also count as a crash in an earlier attempt.
                if attempts_survived != state.attempts_survived {
                    return Err(AttemptError::NotRecorded);
                }
                state.is_attempting = true;
                let attempt = Attempt { process, attempts_survived };
                Ok(AttemptInProgress { registration: Arc::clone(self), attempt, is_recorded: true })
            }
            Entry::Valid { .. } | Entry::Starting | Entry::Ended { .. } => Err(AttemptError::NotRegistered),
        }
    }

    /// Completes when the entry should be renewed at once, because this process survived an attempt.
    pub async fn renewal_requested(&self) {
        self.renewal.notified().await;
    }
}

impl AttemptInProgress {
    /// Ends an attempt whose message was deleted, or rewritten without it.
    pub fn forget(mut self) {
        self.is_recorded = false;
    }
}

impl Drop for AttemptInProgress {
    fn drop(&mut self) {
        let mut state = self.registration.state.lock();
        state.is_attempting = false;
        if self.is_recorded {
            state.attempts_survived = state.attempts_survived.saturating_add(1);
            self.registration.renewal.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;
    use crate::ports::process_registry::{Address, LEVEL, ProcessKind};
    use uuid::Uuid;

    fn entry(attempts_survived: u64) -> RegisteredProcess {
        RegisteredProcess {
            id: ProcessId::from_uuid(Uuid::from_u128(1)),
            kind: ProcessKind::Worker,
            address: Address::parse("h:1").unwrap(),
            started_at: Timestamp::from_unix_ms(0),
            next_by: Timestamp::from_unix_ms(0),
            attempts_survived,
            level: LEVEL,
        }
    }

    #[test]
    fn one_attempt_is_in_progress_at_a_time_and_a_survived_one_is_recorded_before_the_next() {
        let registration = Arc::new(Registration::default());
        let second = Duration::from_secs(1);
        let begin = || registration.begin_attempt(second);
        assert_eq!(begin().map(|it| it.attempt), Err(AttemptError::NotRegistered));
        registration.extend(&entry(0), second * 2);
        let first = begin().unwrap();
        assert_eq!(begin().map(|it| it.attempt), Err(AttemptError::Busy));
        first.forget();
        assert_eq!(registration.attempts_survived(), 0, "the message does not record it any more");
        drop(begin().unwrap());
        assert_eq!(
            (registration.attempts_survived(), begin().map(|it| it.attempt)),
            (1, Err(AttemptError::NotRecorded))
        );
        registration.extend(&entry(1), second * 2);
        assert_eq!(begin().map(|it| it.attempt.attempts_survived), Ok(1));
        registration.end();
        assert_eq!(begin().map(|it| it.attempt), Err(AttemptError::NotRegistered));
    }

    #[test]
    fn a_process_is_listed_while_its_entry_is_valid_also_while_it_drains_until_the_entry_is_removed() {
        let registration = Registration::default();
        let second = Duration::from_secs(1);
        let listed = || [0, 1, 2].map(|seconds| registration.is_listed(second * seconds));
        assert_eq!(listed(), [false; 3]);
        registration.extend(&entry(0), second * 2);
        assert_eq!(listed(), [true, true, false]);
        registration.end();
        registration.extend(&entry(0), second * 3);
        assert_eq!((listed(), registration.is_valid(Duration::ZERO)), ([true, true, false], false));
        registration.withdraw();
        assert_eq!(listed(), [false; 3]);
    }
}
