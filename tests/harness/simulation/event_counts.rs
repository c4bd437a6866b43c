//! Counts of events by name. A world without an event proves nothing about it.

use std::collections::BTreeMap;

use postonce_shared::testing::prelude::*;

/// Counts of events by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventCounts(BTreeMap<String, u64>);

impl EventCounts {
    /// Adds to the count of an event.
    pub fn add(&mut self, name: &str, more: u64) {
        let count = self.0.entry(name.to_owned()).or_default();
        *count = count.saturating_add(more);
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, count)| self.add(name, *count));
    }

    /// Returns the count of an event.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Returns the name of the response to a commit.
pub const fn answer_name(answer: &Result<Committed, StoreFault>) -> &'static str {
    match answer {
        Ok(Committed::Done { revision: Some(_) }) => "commit: written",
        Ok(Committed::Done { revision: None }) => "commit: repeated",
        Ok(Committed::Stale | Committed::RowsChanged(_)) => "commit: stale",
        Ok(Committed::Taken(_)) => "commit: taken",
        Ok(Committed::Early) => "commit: early",
        Err(_) => "commit: no answer",
    }
}
