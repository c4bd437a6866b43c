//! Decides whether the work of a message that was received too often is tried alone or given up.
//!
//! A receipt is not an attempt: responses can be lost, and when a worker dies, all of its messages are redelivered. Therefore
//! the work is tried alone, one message per process at a time, and each attempt is recorded in the message before it begins.
//! The work is given up only after several processes ended during such attempts ([`Attempts`]), and never because of an outage.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::bank::Bank;
use postonce_shared::cluster::attempts::{ATTEMPTS_MAX, Attempts};
use postonce_shared::cluster::registration::{AttemptError, AttemptInProgress, Registration};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::process_registry::ProcessRegistry;
use postonce_shared::ports::world::World;

use crate::config::WorkerConfig;

/// Minimum number of processes that must have ended. One that stops during an outage may be unable to remove its entry.
pub const ATTEMPTS_MIN: usize = 3;
/// Time for which a message is hidden while another attempt of this process is in progress.
const BUSY: Duration = Duration::from_secs(2);
/// Time for which a message is hidden until its processes are checked again. Entries of processes that ended become stale
/// within 36 minutes; a survival may be recorded earlier.
const UNKNOWN: Duration = Duration::from_secs(60);

/// The next step for a message.
#[derive(Debug)]
pub enum NextStep {
    /// Record these attempts in the message, then begin the attempt.
    Begin(Attempts, AttemptInProgress),
    /// Hide the message for this time.
    Wait(Duration),
    /// Give up. This many processes have ended during their attempts.
    GiveUp(usize),
}

/// Decides about the attempts of a process.
pub struct LoneAttempts {
    registry: Arc<dyn ProcessRegistry>,
    registration: Arc<Registration>,
    world: Arc<dyn World>,
    /// Number of processes that must end during attempts before the work is given up.
    attempts_max: usize,
}

impl LoneAttempts {
    /// Creates the decisions for a process of the bank.
    pub fn new(bank: &Bank, config: &WorkerConfig) -> Self {
        let max = usize::try_from(config.dequeue_count_max).unwrap_or(usize::MAX);
        Self {
            registry: Arc::clone(&bank.store.process_registry),
            registration: Arc::clone(&bank.registration),
            world: Arc::clone(&bank.world),
            attempts_max: max.clamp(ATTEMPTS_MIN, ATTEMPTS_MAX),
        }
    }

    /// Decides about a message with these recorded attempts.
    ///
    /// # Errors
    /// [`StoreFault`] when no attempt may begin: the entry of this process is missing or outdated, or the registry cannot be
    /// read.
    pub async fn next_step(&self, recorded: &Attempts) -> Result<NextStep, StoreFault> {
        if recorded.len() < self.attempts_max {
            return self.begin(recorded);
        }
        let registered = self.registry.list().await?;
        let not_survived = recorded.not_survived(&registered);
        if not_survived.len() < self.attempts_max {
            self.begin(&not_survived)
        } else if not_survived.are_ended(&registered, self.world.now()) {
            Ok(NextStep::GiveUp(not_survived.len()))
        } else {
            Ok(NextStep::Wait(UNKNOWN))
        }
    }

    fn begin(&self, attempts: &Attempts) -> Result<NextStep, StoreFault> {
        match self.registration.begin_attempt(self.world.uptime()) {
            Ok(begun) => Ok(NextStep::Begin(attempts.with(begun.attempt), begun)),
            Err(AttemptError::Busy) => Ok(NextStep::Wait(BUSY)),
            Err(not_begun @ (AttemptError::NotRegistered | AttemptError::NotRecorded)) => {
                Err(StoreFault::Unavailable { doing: "beginning an attempt alone", source: not_begun.into() })
            }
        }
    }
}
