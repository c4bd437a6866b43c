//! Counts of requests that were posted immediately, and of the reasons why others were not. A world without such requests
//! proves nothing about them.

use postonce_shared::posting::waiting::{QueueReason, ServedCounts};
use postonce_shared::testing::prelude::*;

use super::event_counts::{EventCounts, answer_name};

/// Names in [`ImmediateCounts`] of all events that must occur.
pub const EVENTS: [&str; 18] = [
    "posted at once",
    "queued: gate_held",
    "queued: unregistered",
    "queued: open_work",
    "queued: rejection",
    "queued: contended",
    "queued: key_taken",
    "queued: fault",
    "queued: late",
    "a group of requests",
    "a rejection",
    "commit: written",
    "commit: repeated",
    "commit: stale",
    "commit: taken",
    "commit: early",
    "commit: no answer",
    "commit: written after its sender gave up",
];

/// Counts of events by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImmediateCounts(EventCounts);

impl ImmediateCounts {
    fn add(&mut self, name: &str, more: u64) {
        self.0.add(name, more);
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    /// Adds the requests of a process.
    pub fn add_served(&mut self, served: &ServedCounts) {
        self.add("posted at once", served.immediate());
        for reason in QueueReason::ALL {
            self.add(&format!("queued: {}", reason.code()), served.queued(reason));
        }
    }

    /// Counts the response to a commit that inserts transactions.
    pub fn add_answer(&mut self, commit: &AccountCommit, answer: &Result<Committed, StoreFault>) {
        self.add(answer_name(answer), 1);
        if matches!(answer, Ok(Committed::Done { .. })) {
            self.add("a group of requests", u64::from(commit.inserted().len() > 1));
            self.add("a rejection", u64::from(commit.inserted().len() > commit.numbers_used()));
        }
    }

    /// Counts a commit that was written after its sender received an error.
    pub fn add_late(&mut self) {
        self.add("commit: written after its sender gave up", 1);
    }

    /// Returns the count of an event.
    pub fn of(&self, name: &str) -> u64 {
        self.0.of(name)
    }
}
