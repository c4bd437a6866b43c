//! Decides about a message that was received too often and never settled: whether its work is tried alone, or given up.
//!
//! A receipt is not an attempt: answers can be lost, and the death of a worker affects all messages that it holds. So the
//! work is tried alone, and each attempt is recorded in the message before it begins. The work is given up only after
//! several processes ended during such an attempt ([`Attempts`]); an outage, however long, never has that effect.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::bank::Bank;
use postonce_shared::cluster::registration::Registration;
use postonce_shared::messaging::attempts::{ATTEMPTS_MAX, Attempts};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::process_registry::ProcessRegistry;
use postonce_shared::ports::world::World;

use crate::config::WorkerConfig;

/// What is done next with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// These attempts are recorded in the message, and then one begins.
    Begin(Attempts),
    /// These attempts are recorded in the message, which is hidden for [`LoneAttempts::wait`]: a process that survived
    /// its attempt renews its registry entry in that time.
    Wait(Attempts),
    /// The processes of this many attempts ended during them.
    GiveUp(usize),
}

/// Decides about messages that were received too often.
pub struct LoneAttempts {
    registry: Arc<dyn ProcessRegistry>,
    registration: Arc<Registration>,
    world: Arc<dyn World>,
    /// Number of attempts that end with their processes until the work is given up.
    attempts_max: usize,
    /// Time for which a message waits before it is given up.
    pub wait: Duration,
}

impl LoneAttempts {
    /// Creates the decisions of a process of the bank.
    pub fn new(bank: &Bank, config: &WorkerConfig) -> Self {
        Self {
            registry: Arc::clone(&bank.store.process_registry),
            registration: Arc::clone(&bank.registration),
            world: Arc::clone(&bank.world),
            attempts_max: usize::try_from(config.dequeue_count_max)
                .map_or(ATTEMPTS_MAX, |max| max.min(ATTEMPTS_MAX)),
            wait: config.visibility_timeout.saturating_mul(2),
        }
    }

    /// Decides about a message with these attempts.
    ///
    /// # Errors
    /// [`StoreFault`] when this process is not registered, or the registry cannot be read: nothing may begin.
    pub async fn next_step(&self, recorded: &Attempts) -> Result<NextStep, StoreFault> {
        let Some(entry) = self.registration.entry(self.world.uptime()) else {
            let source = "this process is not in the process registry".into();
            return Err(StoreFault::Unavailable { doing: "beginning an attempt alone", source });
        };
        if recorded.len() < self.attempts_max {
            return Ok(NextStep::Begin(recorded.with(entry)));
        }
        let not_survived = recorded.not_survived(&self.registry.list().await?);
        Ok(if not_survived.len() < self.attempts_max {
            NextStep::Begin(not_survived.with(entry))
        } else if recorded.has_waited() {
            NextStep::GiveUp(not_survived.len())
        } else {
            NextStep::Wait(not_survived.after_wait())
        })
    }

    /// Records that an attempt was not completed, or that it is not known whether its begin was recorded: other
    /// processes must learn that this one survived it.
    pub fn survived(&self) {
        self.registration.request_renewal();
    }
}
