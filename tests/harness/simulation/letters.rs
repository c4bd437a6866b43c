//! Checks why a message became a dead letter. The reason must be a permanent fault, or processes that each crashed while they
//! tried the work of this message alone.
//!
//! A process tries one message at a time. When it crashes, it was trying the work of the message in which it last recorded an
//! attempt, or none.

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::batches::messages;
use postonce_shared::cluster::attempts::Attempts;
use postonce_shared::ports::process_registry::ProcessId as RegistryId;
use postonce_shared::testing::prelude::*;
use serde_json::Value;

use super::processes::RING_SECRET;
use super::records::{Checked, check};
use super::scheduler::ProcessId;
use super::work_in_flight::WorkInFlight;

/// Part of the reason of a dead letter whose processes ended.
const ENDED: &str = "it may crash the worker";

/// Records about processes and messages for these checks.
#[derive(Debug, Default)]
pub struct LetterAudit {
    registered: BTreeMap<ProcessId, RegistryId>,
    crashed: BTreeSet<RegistryId>,
    /// The attempts in each message that a process received, as it last read or wrote them.
    seen: BTreeMap<(ProcessId, String), Attempts>,
    /// The work of the last attempt that each process began to record.
    tried_last: BTreeMap<RegistryId, String>,
    /// The last body of each message.
    bodies: BTreeMap<String, Vec<u8>>,
}

impl LetterAudit {
    /// Records the id of a process in the process registry.
    pub fn registered(&mut self, process: ProcessId, id: RegistryId) {
        self.registered.insert(process, id);
    }

    /// Records that a process crashed.
    pub fn crashed(&mut self, process: RegistryId) {
        self.crashed.insert(process);
    }

    /// Records that a process received a message.
    pub fn received(&mut self, process: ProcessId, id: &str, body: &[u8]) {
        self.seen.insert((process, id.to_owned()), attempts_in(body));
    }

    /// Records that a process is about to write a message. The result and the time of the write do not matter.
    pub fn writes(&mut self, process: ProcessId, id: &str, body: &[u8], in_flight: &WorkInFlight) {
        let attempts = attempts_in(body);
        let before = self.seen.insert((process, id.to_owned()), attempts.clone());
        let Some(own) = self.registered.get(&process) else { return };
        if before.as_ref() != Some(&attempts) && attempts.processes().any(|process| process == *own) {
            self.tried_last.insert(*own, work_of(body, in_flight));
        }
    }

    /// Records the body of a message.
    pub fn written(&mut self, id: &str, body: &[u8]) {
        self.bodies.insert(id.to_owned(), body.to_vec());
    }

    /// Checks the reason of a new dead letter.
    pub fn set_aside(&self, letter: &DeadLetter, in_flight: &WorkInFlight) -> Checked {
        if letter.reason.contains(ENDED) {
            return self.check_attempts(letter, in_flight);
        }
        // Content that a process of the bank sealed has no permanent fault. Content that others sent or changed may have one.
        let body = Body::decode(&letter.body, &seal_of(RING_SECRET));
        let is_work = matches!(body, Ok(Body::Content(Content::Work(_))));
        check(!is_work, || format!("a dead letter without a permanent fault: {}", letter.reason))
    }

    fn check_attempts(&self, letter: &DeadLetter, in_flight: &WorkInFlight) -> Checked {
        let body = self.bodies.get(&letter.id).map_or(letter.body.as_slice(), Vec::as_slice);
        let (attempts, work) = (attempts_in(body), work_of(body, in_flight));
        let has_ended = |process: &RegistryId| {
            self.crashed.contains(process) && self.tried_last.get(process) == Some(&work)
        };
        let survivor = attempts.processes().find(|process| !has_ended(process));
        check(survivor.is_none() && !attempts.is_empty(), || {
            format!(
                "a dead letter although process {survivor:?} of {attempts:?} did not crash while it tried {work}: {}",
                letter.reason
            )
        })
    }
}

/// Returns the attempts in a message under the seal of the bank.
fn attempts_in(body: &[u8]) -> Attempts {
    let seal = seal_of(RING_SECRET);
    match Body::decode(body, &seal) {
        Ok(Body::Content(Content::Work(envelope))) => envelope.attempts,
        Ok(Body::Claim(claim)) => claim.attempts,
        Ok(Body::Content(Content::Names(_))) | Err(_) => messages::attempts_in(body, &seal),
    }
}

/// Identifies the work in a message, regardless of its counters and of where it is stored.
fn work_of(body: &[u8], in_flight: &WorkInFlight) -> String {
    let keys = in_flight.keys_in(body);
    if !keys.is_empty() {
        return format!("{keys:?}");
    }
    let mut members: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(members) = members.as_object_mut() {
        members.remove("seal");
        members.remove("attempts");
    }
    members.to_string()
}
