//! Which part of a run it is. Everybody looks at it.

use std::cell::Cell;

/// The parts of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Faults happen, and clients ask for new things.
    Rough,
    /// No more faults and no new wishes: what is open comes to its end.
    Calm,
    /// Everybody goes home.
    Over,
}

/// The part of the run that it is now.
#[derive(Debug)]
pub struct Watch(Cell<Phase>);

impl Default for Watch {
    fn default() -> Self {
        Self(Cell::new(Phase::Rough))
    }
}

impl Watch {
    /// Whether faults happen.
    pub fn is_rough(&self) -> bool {
        self.0.get() == Phase::Rough
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.0.get() == Phase::Over
    }

    /// No more faults.
    pub fn calm(&self) {
        self.0.set(Phase::Calm);
    }

    /// The end.
    pub fn end(&self) {
        self.0.set(Phase::Over);
    }
}
