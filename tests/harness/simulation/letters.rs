//! Checks why a message became a dead letter: only a permanent fault, or the ends of processes, may cause that.

use std::collections::BTreeSet;

use postonce_shared::batches::messages;
use postonce_shared::messaging::attempts::Attempts;
use postonce_shared::messaging::envelope::{Body, Content};
use postonce_shared::ports::dead_letters::DeadLetter;
use postonce_shared::ports::process_registry::ProcessId;
use postonce_shared::testing::conformance::sealed::seal_of;

use super::processes::RING_SECRET;
use super::records::{Checked, check};

/// How the reason of a letter ends whose processes ended.
const ENDED: &str = "it may crash the worker";

/// What the checks need to know about processes.
#[derive(Debug, Default)]
pub struct LetterAudit {
    crashed: BTreeSet<ProcessId>,
}

impl LetterAudit {
    /// Records that a process crashed.
    pub fn crashed(&mut self, process: ProcessId) {
        self.crashed.insert(process);
    }

    /// Checks the reason of a new letter.
    pub fn set_aside(&self, letter: &DeadLetter) -> Checked {
        let body = Body::decode(&letter.body, &seal_of(RING_SECRET));
        if letter.reason.ends_with(ENDED) {
            let attempts = match body {
                Ok(Body::Content(Content::Work(envelope))) => envelope.attempts,
                Ok(Body::Claim(claim)) => claim.attempts,
                Ok(Body::Content(Content::Names(_))) | Err(_) => messages::attempts_in(&letter.body),
            };
            return self.check_attempts(letter, &attempts);
        }
        // Nothing that a process of the bank sealed has a permanent fault; what others sent or changed may have one.
        let is_work = matches!(body, Ok(Body::Content(Content::Work(_))));
        check(!is_work, || format!("a dead letter without a permanent fault: {}", letter.reason))
    }

    fn check_attempts(&self, letter: &DeadLetter, attempts: &Attempts) -> Checked {
        let survivor = attempts.processes().find(|process| !self.crashed.contains(process));
        check(survivor.is_none() && !attempts.is_none(), || {
            format!(
                "a dead letter although process {survivor:?} of {attempts:?} did not crash: {}",
                letter.reason
            )
        })
    }
}
