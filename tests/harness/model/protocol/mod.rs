//! The protocol of accepting and posting as a state machine, checked exhaustively.
//!
//! Two web processes, two workers, one account, a deposit and a withdrawal that only the deposit can
//! pay, and the id of the deposit once more with other content. Clients ask as often as the budget
//! says, through either web process. Processes crash at any point; requests to the store get lost, or
//! their answers do, or they are carried out long after their sender gave up; leases end under the
//! hands of who works; repair sends work again.
//!
//! It mirrors `shared::accept`, `shared::post`, `worker::posting` and `worker::settle` above the
//! contracts of `ports::ledger` and `ports::queue`: read `web.rs` and `worker.rs` beside them.

mod ledger;
mod progress;
mod queue;
pub mod rules;
mod state;
mod steps;
mod web;
mod worker;

use stateright::{Model, Property};

use rules::{
    BALANCE_IS_SUM, CONTENT_COMPARED, FINAL_AT_REST, FINAL_STAYS, NEARER_TO_REST, NOTHING_LOST, POSTED_ONCE,
    REJECTED_RIGHTLY, Rules, TOLD_RIGHTLY,
};
pub use state::Budget;
use state::{DEPOSIT, KEYS, Late, Lease, Stage, State, Status, WITHDRAWAL, Worker};
use steps::Step;

/// The protocol under some rules, with a budget of requests and faults.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// The rules.
    pub rules: Rules,
    /// What may happen.
    pub budget: Budget,
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.budget)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        state.calm_steps(&self.rules, steps);
        state.other_steps(&self.rules, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut next = last.clone();
        next.take(&step, &self.rules);
        if step.is_calm() {
            next.flaws.no_progress |= next.rank(&self.rules) >= last.rank(&self.rules);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = promises();
        if self.rules.mutation.is_none() {
            properties.extend(sights(self));
        }
        properties
    }
}

type Condition = fn(&Protocol, &State) -> bool;

fn always(name: &'static str, holds: Condition) -> Property<Protocol> {
    Property::always(name, holds)
}

fn sometimes(name: &'static str, is_seen: Condition) -> Property<Protocol> {
    Property::sometimes(name, is_seen)
}

/// The invariants of the design, and progress.
fn promises() -> Vec<Property<Protocol>> {
    vec![
        always(POSTED_ONCE, |_, state| state.entries.iter().all(|entries| *entries <= 1)),
        // Stronger than it must be: not even a request that is still on its way counts.
        always(NOTHING_LOST, |_, state| {
            let waits = |key: usize| state.queue.iter().any(|message| message.items[key].is_some());
            (0..KEYS).all(|key| !state.acknowledged[key] || state.is_final(key) || waits(key))
        }),
        always(FINAL_STAYS, |_, state| !state.flaws.final_changed),
        always(CONTENT_COMPARED, |_, state| !state.flaws.other_content),
        always(BALANCE_IS_SUM, |_, state| {
            state.account.balance == state.entries_sum && state.account.balance >= 0
        }),
        always(REJECTED_RIGHTLY, |_, state| !state.flaws.refused_payable),
        always(TOLD_RIGHTLY, |_, state| !state.flaws.told_wrong),
        always(NEARER_TO_REST, |_, state| !state.flaws.no_progress),
        always(FINAL_AT_REST, |protocol, state| {
            let mut steps = Vec::new();
            let all_final = (0..KEYS).all(|key| !state.acknowledged[key] || state.is_final(key));
            if !all_final {
                state.calm_steps(&protocol.rules, &mut steps);
            }
            all_final || !steps.is_empty()
        }),
    ]
}

/// What has to come up somewhere, or the model would prove less than it says.
fn sights(Protocol { rules, budget }: &Protocol) -> Vec<Property<Protocol>> {
    let mut sights = vec![
        sometimes("the deposit pays the withdrawal", |_, state| {
            [DEPOSIT, WITHDRAWAL].into_iter().all(|key| state.entries[key] == 1)
        }),
        sometimes("the withdrawal is rejected", |_, state| {
            state.rows[WITHDRAWAL].is_some_and(|row| row.status == Status::Rejected)
        }),
    ];
    if budget.losses > 0 {
        sights.push(sometimes("a commit without an answer is found by its nonce", |_, state| {
            let reads = |worker: usize| matches!(state.workers[worker].stage, Stage::ReadingBack { .. });
            state.rows.iter().flatten().any(|row| row.decided_by.is_some_and(reads))
        }));
        sights.push(sometimes("a commit is under way that its sender has given up", |_, state| {
            state.late.iter().any(|late| matches!(late, Late::Commit(_, None)))
        }));
    }
    if budget.expiries > 0 {
        sights.push(sometimes("a lease has ended under the hands of its holder", |_, state| {
            state.queue.iter().any(|message| matches!(message.lease, Lease::Expired(_)))
        }));
        sights.push(sometimes("both workers are about to commit the same work", |_, state| {
            let commits = |worker: &Worker| matches!(worker.stage, Stage::Committing { .. });
            let [one, two] = &state.workers;
            commits(one) && commits(two) && one.work == two.work
        }));
    }
    if budget.repairs > 0 {
        sights.push(sometimes("the same work is on the queue under two revisions", |_, state| {
            let differ = |key: usize, one: Option<u8>| {
                one.is_some() && state.queue.iter().any(|other| other.items[key] > one)
            };
            state.queue.iter().any(|message| (0..KEYS).any(|key| differ(key, message.items[key])))
        }));
    }
    // One that sends with the insert has nothing left to send together.
    if budget.submits[DEPOSIT] > 1 && !rules.sends_with_insert {
        sights.push(sometimes("of a message with both transactions one is final", |_, state| {
            let both = state.queue.iter().any(|message| message.items.iter().all(Option::is_some));
            both && state.is_final(DEPOSIT) != state.is_final(WITHDRAWAL)
        }));
    }
    sights
}
