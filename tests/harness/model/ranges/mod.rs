//! The allocator of order numbers as a state machine, checked exhaustively.
//!
//! Two processes reserve ranges of two numbers in a register, issue them, return unused numbers, stop
//! cleanly or crash, and start again, until all numbers are used. Requests to the register or their answers
//! are lost, or requests are carried out long after their sender gave up.
//!
//! The model mirrors `shared::order_numbers` above the contract of `ports::sync_store`. A fetch and the
//! stop of a process run concurrently, as in the bank.

pub mod rules;
mod state;
mod steps;

use stateright::{Model, Property};

use rules::{CONFIRMED, ISSUED_ONCE, NEVER_REFUSED, Rules, TWO_LOST};
pub use state::Budget;
use state::{RANGE_LEN, State};
use steps::Step;

/// The allocator under a set of rules, with a budget of faults.
#[derive(Debug, Clone, Copy)]
pub struct Ranges {
    /// The rules.
    pub rules: Rules,
    /// The faults that may happen.
    pub budget: Budget,
}

impl Model for Ranges {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.budget)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        state.steps(&self.rules, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut next = last.clone();
        next.apply(step, &self.rules);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = invariants();
        if self.rules.mutation.is_none() {
            properties.extend(coverage(&self.budget));
        }
        properties
    }
}

fn invariants() -> Vec<Property<Ranges>> {
    vec![
        Property::always(ISSUED_ONCE, |_, state: &State| !state.violations.repeated),
        Property::always(CONFIRMED, |_, state: &State| !state.violations.unconfirmed),
        Property::always(TWO_LOST, |_, state: &State| state.lost() <= state.loss_limit),
        Property::always(NEVER_REFUSED, |_, state: &State| !state.violations.refused),
    ]
}

/// States that must be reachable; otherwise the model proves less than it claims.
fn coverage(budget: &Budget) -> Vec<Property<Ranges>> {
    let all_issued = |_: &Ranges, state: &State| state.issued.count_ones() == u32::from(state.budget.numbers);
    let mut coverage = vec![Property::sometimes("all numbers are issued", all_issued)];
    if budget.crashes > 0 {
        coverage.push(Property::sometimes(
            "two ranges are lost with one crash",
            |ranges: &Ranges, state: &State| {
                let Budget { losses, crashes, closings, numbers: _ } = state.budget;
                let before = ranges.budget;
                let one_crash = crashes.saturating_add(1) == before.crashes;
                let nothing_else = losses == before.losses && closings == before.closings;
                one_crash && nothing_else && state.lost() == RANGE_LEN.saturating_mul(2)
            },
        ));
    }
    if budget.closings > 0 {
        let issued_again = |ranges: &Ranges, state: &State| {
            state.returned_count > 0
                && state.issued.count_ones() == u32::from(state.budget.numbers)
                && state.budget.crashes == ranges.budget.crashes
        };
        coverage.push(Property::sometimes("all numbers are issued after some were returned", issued_again));
    }
    if budget.losses > 0 {
        coverage.push(Property::sometimes(
            "a write is under way that its sender has given up",
            |_, state: &State| !state.late.is_empty(),
        ));
    }
    coverage
}
