//! The events of a run as lines. The last lines are kept for reports. All lines are hashed, so that two runs of a seed can be
//! compared.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// Number of lines that are kept for the report of a failure.
const TAIL_LINES: usize = 60;

/// The events of a run.
#[derive(Debug)]
pub struct Trace {
    print: bool,
    lines: u64,
    sum: DefaultHasher,
    tail: VecDeque<String>,
}

impl Trace {
    /// Creates an empty trace. With `print`, each line is also printed.
    pub fn new(print: bool) -> Self {
        Self { print, lines: 0, sum: DefaultHasher::new(), tail: VecDeque::new() }
    }

    /// Adds an event.
    pub fn note(&mut self, steps: u64, at: Duration, event: &str) {
        self.lines = self.lines.saturating_add(1);
        (steps, at, event).hash(&mut self.sum);
        let line = format!("{steps:>7} {:>12}s {event}", Seconds(at));
        if self.print {
            println!("{line}");
        }
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    /// Returns a hash of all lines, which is equal for equal traces.
    pub fn sum(&self) -> u64 {
        self.sum.finish()
    }

    /// Returns the last lines.
    pub fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }
}

/// Formats seconds with six decimals, without floats.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{}.{:06}", self.0.as_secs(), self.0.subsec_micros()))
    }
}
