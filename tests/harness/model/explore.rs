//! Runs the checker and says what it saw.

use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::time::Duration;

use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::ports::world::World as _;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path, Representative};

/// How long the checker is left alone before it is asked how far it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How much was visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// States that steps led to, repetitions included.
    pub states: usize,
    /// Different states; of states that differ only in the names of processes, one.
    pub unique: usize,
    /// Steps of the longest path without a repetition that was followed, less one.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
}

impl Figures {
    /// What both have visited.
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

/// Visits every state. `told` hears now and then how far it is.
///
/// # Errors
/// A text for people with the steps to the first state that breaks each broken property, or with what
/// never came up although it has to.
pub fn exhaust<M>(model: M, threads: usize, mut told: impl FnMut(&Figures)) -> Result<Figures, String>
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
    let look = || (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    while handles.iter().any(|handle| !handle.is_finished()) {
        told(&figures(&look));
        std::thread::sleep(LOOK_INTERVAL);
    }
    for handle in handles {
        handle.join().map_err(|_| "the checker fell over a bug; its message stands above".to_owned())?;
    }
    let figures = figures(&look);
    let discoveries = checker.discoveries();
    let mut findings = String::new();
    for property in checker.model().properties() {
        match (discoveries.get(property.name), property.expectation) {
            (Some(path), Expectation::Always | Expectation::Eventually) => {
                findings.push_str(&story(property.name, path));
            }
            (None, Expectation::Sometimes) => {
                findings.push_str(&format!("It never came up: {}.\n", property.name));
            }
            (None, Expectation::Always | Expectation::Eventually) | (Some(_), Expectation::Sometimes) => {}
        }
    }
    if findings.is_empty() { Ok(figures) } else { Err(format!("{findings}({figures})")) }
}

/// Looks for the shortest way to break one property: its steps, and a text for people. `None` when
/// there is none.
pub fn counterexample<M>(model: M, property: &'static str) -> Option<(usize, String)>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let (mut depth, mut visited) = (1_usize, 0);
    loop {
        let found = HasDiscoveries::AllOf(BTreeSet::from([property]));
        // A checker reports what it found last, so it is sent one step further each time.
        let checker = model.clone().checker().target_max_depth(depth).finish_when(found).spawn_bfs().join();
        if let Some(path) = checker.discovery(property) {
            return Some((path.clone().into_actions().len(), story(property, &path)));
        }
        // Nothing new even one step further: that was all.
        if checker.unique_state_count() == visited {
            return None;
        }
        visited = checker.unique_state_count();
        depth = depth.saturating_add(1);
    }
}

fn story<S: Clone, A: Clone + Debug>(property: &str, path: &Path<S, A>) -> String {
    let mut story = format!("It does not hold that {property}:\n");
    for (number, step) in path.clone().into_actions().into_iter().enumerate() {
        story.push_str(&format!("{:>4}. {step:?}\n", number.saturating_add(1)));
    }
    story
}
