//! The allocator of order numbers as a state machine, checked exhaustively.
//!
//! Two processes reserve ranges of two numbers in a register, issue them, give back what no commit
//! used, end in an orderly way or die, and start again, until all numbers are used up. Requests to the
//! register get lost, or their answers do, or they are carried out long after their sender gave up.
//!
//! It mirrors `shared::order_numbers` above the contract of `ports::sync_store`. A fetch and the end of
//! a process go on side by side, as they do there.

pub mod rules;
mod state;
mod steps;

use stateright::{Model, Property};

use rules::{CONFIRMED, ISSUED_ONCE, NEVER_REFUSED, Rules, TWO_LOST};
pub use state::Budget;
use state::{RANGE_LEN, State};
use steps::Step;

/// The allocator under some rules, with a budget of faults.
#[derive(Debug, Clone, Copy)]
pub struct Ranges {
    /// The rules.
    pub rules: Rules,
    /// What may happen.
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
        next.take(step, &self.rules);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = promises();
        if self.rules.mutation.is_none() {
            properties.extend(sights(&self.budget));
        }
        properties
    }
}

fn promises() -> Vec<Property<Ranges>> {
    vec![
        Property::always(ISSUED_ONCE, |_, state: &State| !state.flaws.repeated),
        Property::always(CONFIRMED, |_, state: &State| !state.flaws.unconfirmed),
        Property::always(TWO_LOST, |_, state: &State| state.lost() <= state.losable),
        Property::always(NEVER_REFUSED, |_, state: &State| !state.flaws.refused),
    ]
}

/// What has to come up somewhere, or the model would prove less than it says.
fn sights(budget: &Budget) -> Vec<Property<Ranges>> {
    let all_issued = |_: &Ranges, state: &State| state.issued.count_ones() == u32::from(state.budget.numbers);
    let mut sights = vec![Property::sometimes("all numbers are issued", all_issued)];
    if budget.crashes > 0 {
        sights.push(Property::sometimes(
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
        let come_again = |ranges: &Ranges, state: &State| {
            state.given_back > 0
                && state.issued.count_ones() == u32::from(state.budget.numbers)
                && state.budget.crashes == ranges.budget.crashes
        };
        sights.push(Property::sometimes("all numbers are issued after some were given back", come_again));
    }
    if budget.losses > 0 {
        sights.push(Property::sometimes(
            "a write is under way that its sender has given up",
            |_, state: &State| !state.late.is_empty(),
        ));
    }
    sights
}
