//! The current phase of a run, shared by all its tasks.

use std::cell::Cell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Faults are injected, and partners send new requests.
    Faults,
    /// No more faults and no new requests; open requests are completed.
    Recovery,
    /// The run has ended.
    Ended,
}

/// The current phase, which all tasks read.
#[derive(Debug)]
pub struct CurrentPhase(Cell<Phase>);

impl Default for CurrentPhase {
    fn default() -> Self {
        Self(Cell::new(Phase::Faults))
    }
}

impl CurrentPhase {
    /// Returns whether faults are injected.
    pub fn has_faults(&self) -> bool {
        self.0.get() == Phase::Faults
    }

    /// Returns whether the run has ended.
    pub fn has_ended(&self) -> bool {
        self.0.get() == Phase::Ended
    }

    /// Starts the recovery phase.
    pub fn stop_faults(&self) {
        self.0.set(Phase::Recovery);
    }

    /// Ends the run.
    pub fn end(&self) {
        self.0.set(Phase::Ended);
    }
}
