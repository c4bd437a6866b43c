//! Visits every state of a protocol in breadth-first order, so that the path to a violation is as short as possible.
//! Nothing is random: an exploration always visits the same states.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use clap::ValueEnum;

/// A protocol as a state machine.
pub trait Protocol {
    /// Everything that determines the possible next steps.
    type State: Clone + Hash + 'static;
    /// An atomic step of one party.
    type Step: Copy + Debug;

    /// Returns the first state.
    fn start(&self) -> Self::State;
    /// Returns the steps that are possible in a state.
    fn steps(&self, state: &Self::State) -> Vec<Self::Step>;
    /// Takes a step.
    fn take(&self, state: &mut Self::State, step: Self::Step);
    /// Returns the property that a state violates.
    fn violated(&self, state: &Self::State) -> Option<&'static str>;
    /// States that must be reached within some budget. Without them, the explorations show less than they claim.
    const GOALS: &[Goal<Self::State>];
}

/// Description of a state, and a predicate for it.
pub type Goal<S> = (&'static str, fn(&S) -> bool);

/// The result of an exploration, which ends at the first violation.
#[derive(Debug, Clone)]
pub struct Explored {
    /// Number of visited states.
    pub states: usize,
    /// The violated property, and the steps that lead to it.
    pub violation: Option<(&'static str, String)>,
    /// Goals, and whether each was reached.
    pub goals: Vec<(&'static str, bool)>,
}

/// Visits every state. Two states with the same 64-bit hash count as one; among ten million states, the probability of such a
/// collision is below 1 in 300,000.
pub fn explore<P: Protocol>(protocol: &P) -> Explored {
    let mut states = 0_usize;
    let mut reached = vec![false; P::GOALS.len()];
    // The step to each state, and the index of the previous state.
    let mut history: Vec<Option<(usize, P::Step)>> = vec![None];
    let start = protocol.start();
    let mut seen = HashSet::from([fingerprint(&start)]);
    let mut next = VecDeque::from([(0_usize, start)]);
    let mut violation = None;
    while let Some((position, state)) = next.pop_front() {
        states = states.saturating_add(1);
        if let Some(property) = protocol.violated(&state) {
            violation = Some((property, steps_to(&history, position)));
            break;
        }
        for (is_reached, (_, is_goal)) in reached.iter_mut().zip(P::GOALS) {
            *is_reached = *is_reached || is_goal(&state);
        }
        for step in protocol.steps(&state) {
            let mut after = state.clone();
            protocol.take(&mut after, step);
            if seen.insert(fingerprint(&after)) {
                next.push_back((history.len(), after));
                history.push(Some((position, step)));
            }
        }
    }
    let goals = P::GOALS.iter().map(|(goal, _)| *goal).zip(reached).collect();
    Explored { states, violation, goals }
}

fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

fn steps_to<S: Debug>(history: &[Option<(usize, S)>], mut position: usize) -> String {
    let mut text = String::new();
    while let Some(Some((before, step))) = history.get(position) {
        text.insert_str(0, &format!("\n{step:?}"));
        position = *before;
    }
    text
}

/// How much is visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Bounds {
    /// The bounds of the tests, which take seconds.
    Small,
    /// Larger bounds: about eight million states.
    Large,
}

/// An exploration to run.
pub struct Run {
    /// What is explored: a protocol within a budget, or a protocol without one of its rules.
    pub description: String,
    /// The property that is violated because a rule is omitted.
    expected: Option<&'static str>,
    explore: Box<dyn Fn() -> Explored>,
}

impl Run {
    pub(super) fn new(name: &str, expected: Option<&'static str>, protocol: impl Protocol + 'static) -> Self {
        Self { description: name.to_owned(), expected, explore: Box::new(move || explore(&protocol)) }
    }

    /// Visits every state, or the states before the expected violation.
    ///
    /// # Errors
    /// An unexpected violation, or the expected violation that was not found.
    pub fn check(&self) -> Result<Explored, String> {
        let explored = (self.explore)();
        match (&explored.violation, self.expected) {
            (None, None) => Ok(explored),
            (Some((violated, _)), Some(property)) if *violated == property => Ok(explored),
            (Some((property, steps)), _) => Err(format!("violated: {property}, by these steps:{steps}")),
            (None, Some(property)) => Err(format!("\"{property}\" still holds")),
        }
    }
}

/// Returns the goals that no exploration has reached.
pub fn unreached(explored: &[Explored]) -> BTreeSet<&'static str> {
    let goals = || explored.iter().flat_map(|explored| &explored.goals);
    let reached: BTreeSet<_> = goals().filter(|(_, is_reached)| *is_reached).map(|(goal, _)| *goal).collect();
    goals().map(|(goal, _)| *goal).filter(|goal| !reached.contains(goal)).collect()
}

/// Declares a protocol with its mutations. Each has a description, the property that it violates, and a sufficient budget.
macro_rules! protocol {
    ($protocol:ident; $($rule:ident: $text:literal => $property:ident, $budget:expr;)+) => {
        /// A rule of the real code that is omitted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Mutation {
            $($rule,)+
        }

        /// The protocol with all of its rules, or without one.
        struct $protocol {
            omits: Option<Mutation>,
            budget: Budget,
        }

        impl $protocol {
            fn omits(&self, rule: Mutation) -> bool {
                self.omits == Some(rule)
            }
        }

        pub(super) fn runs(bounds: crate::model::explore::Bounds) -> Vec<crate::model::explore::Run> {
            let budgets = if bounds == crate::model::explore::Bounds::Small { SMALL } else { LARGE };
            let run = |(name, budget): &(&str, Budget)| {
                crate::model::explore::Run::new(name, None, $protocol { omits: None, budget: *budget })
            };
            budgets.iter().map(run).collect()
        }

        pub(super) fn mutations() -> Vec<crate::model::explore::Run> {
            vec![$({
                let protocol = $protocol { omits: Some(Mutation::$rule), budget: $budget };
                let text = concat!(stringify!($rule), ": ", $text);
                crate::model::explore::Run::new(text, Some($property), protocol)
            },)+]
        }
    };
}

pub(super) use protocol;

/// Outcome of a request to a store: executed with a response; executed, but the response is lost; lost; or without a response, and
/// executed at any later time or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    Answered,
    AnswerLost,
    RequestLost,
    Late,
}

impl RequestOutcome {
    /// Returns the possible outcomes.
    pub(super) fn all(with_losses: bool) -> &'static [Self] {
        let all = &[Self::Answered, Self::AnswerLost, Self::RequestLost, Self::Late];
        if with_losses { all } else { all.split_at(1).0 }
    }

    pub(super) fn is_loss(self) -> bool {
        self != Self::Answered
    }

    pub(super) fn is_carried_out(self) -> bool {
        matches!(self, Self::Answered | Self::AnswerLost)
    }
}
