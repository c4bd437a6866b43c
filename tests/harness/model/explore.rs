//! Runs the checker and reports its result.

use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::time::Duration;

use postonce_shared::testing::prelude::*;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path, Representative};

/// How often the progress of the checker is read.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// How many states were visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// States reached by steps, repetitions included.
    pub states: usize,
    /// Distinct states. States that differ only in the names of processes count once.
    pub unique: usize,
    /// The length of the longest explored path without a repetition, less one.
    pub depth: usize,
    /// The duration.
    pub took: Duration,
}

impl Figures {
    /// The sum of both.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            states: self.states.saturating_add(other.states),
            unique: self.unique.saturating_add(other.unique),
            depth: self.depth.max(other.depth),
            took: self.took.saturating_add(other.took),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, unique, depth, took } = self;
        let (seconds, tenths) = (took.as_secs(), took.subsec_millis().div_euclid(100));
        write!(f, "{states} states, {unique} unique, depth {depth}, {seconds}.{tenths} s")
    }
}

/// Visits every state. `progress` is called regularly with the figures so far.
///
/// # Errors
/// The steps to a state that violates a property, for each violated property, and the states that must be
/// reachable and are not.
pub fn exhaust<M>(model: M, threads: usize, mut progress: impl FnMut(&Figures)) -> Result<Figures, String>
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + Representative + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let world = SystemWorld::new();
    let started = world.uptime();
    let mut checker =
        model.checker().threads(threads).symmetry().finish_when(HasDiscoveries::AnyFailures).spawn_dfs();
    let handles = checker.handles();
    let figures = |checker: &dyn Fn() -> (usize, usize, usize)| {
        let (states, unique, depth) = checker();
        Figures { states, unique, depth, took: world.uptime().saturating_sub(started) }
    };
    let counts = || (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    while handles.iter().any(|handle| !handle.is_finished()) {
        progress(&figures(&counts));
        std::thread::sleep(PROGRESS_INTERVAL);
    }
    for handle in handles {
        handle.join().map_err(|_| "the checker panicked; the message is above".to_owned())?;
    }
    let figures = figures(&counts);
    let discoveries = checker.discoveries();
    let mut findings = String::new();
    for property in checker.model().properties() {
        match (discoveries.get(property.name), property.expectation) {
            (Some(path), Expectation::Always | Expectation::Eventually) => {
                findings.push_str(&counterexample_text(property.name, path));
            }
            (None, Expectation::Sometimes) => {
                findings.push_str(&format!("Never reached: {}.\n", property.name));
            }
            (None, Expectation::Always | Expectation::Eventually) | (Some(_), Expectation::Sometimes) => {}
        }
    }
    if findings.is_empty() { Ok(figures) } else { Err(format!("{findings}({figures})")) }
}

/// Searches for the shortest path that violates one property. Returns the number of steps and a
/// description, or `None` when the property holds.
pub fn counterexample<M>(model: M, property: &'static str) -> Option<(usize, String)>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let (mut depth, mut visited) = (1_usize, 0);
    loop {
        let found = HasDiscoveries::AllOf(BTreeSet::from([property]));
        // A checker reports the last path that it found, so its depth is increased one by one.
        let checker = model.clone().checker().target_max_depth(depth).finish_when(found).spawn_bfs().join();
        if let Some(path) = checker.discovery(property) {
            return Some((path.clone().into_actions().len(), counterexample_text(property, &path)));
        }
        // If one more step leads to no new state, all states have been visited.
        if checker.unique_state_count() == visited {
            return None;
        }
        visited = checker.unique_state_count();
        depth = depth.saturating_add(1);
    }
}

fn counterexample_text<S: Clone, A: Clone + Debug>(property: &str, path: &Path<S, A>) -> String {
    let mut text = format!("Violated: {property}:\n");
    for (number, step) in path.clone().into_actions().into_iter().enumerate() {
        text.push_str(&format!("{:>4}. {step:?}\n", number.saturating_add(1)));
    }
    text
}
