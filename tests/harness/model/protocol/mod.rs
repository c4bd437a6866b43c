//! The protocol of accepting and posting as a state machine, checked exhaustively.
//!
//! The model has two web processes, two workers, one account, a deposit, a withdrawal that only the deposit
//! can pay, and a request with the id of the deposit and other content. Clients send as many requests as
//! the budget allows, through either web process. Processes crash at any point. Requests to the store or
//! their answers are lost, or requests are carried out long after their sender gave up. Leases end while
//! their holder works. Repair sends work again.
//!
//! The model mirrors `shared::accept`, `shared::post`, `worker::posting` and `worker::settle` above the
//! contracts of `ports::ledger` and `ports::queue`; `web.rs` and `worker.rs` are best read beside them.

mod immediate;
mod ledger;
mod progress;
mod queue;
pub mod rules;
mod state;
mod steps;
mod symmetry;
mod web;
mod worker;

use stateright::{Model, Property};

use rules::{
    ANNOUNCED_CORRECTLY, BALANCE_IS_SUM, CONTENT_COMPARED, FINAL_STAYS, FINAL_WHEN_QUIESCENT, GATE_OBEYED,
    NOTHING_LOST, NOTHING_REFUSED_EARLY, ORDER_KEPT, POSTED_ONCE, RANK_FALLS, REJECTED_CORRECTLY, Rules,
};
pub use state::Budget;
use state::{
    DEPOSIT, KEYS, KnownGate, Late, Lease, Owner, Slot, Stage, State, Status, WITHDRAWAL, Web, Worker,
};
use steps::Step;

/// The protocol under a set of rules, with a budget of requests and faults.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// The rules.
    pub rules: Rules,
    /// The requests and faults that may happen.
    pub budget: Budget,
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.budget)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        state.fault_free_steps(&self.rules, steps);
        state.other_steps(&self.rules, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut next = last.clone();
        next.apply(&step, &self.rules);
        if step.is_fault_free() {
            next.violations.no_progress |= next.rank(&self.rules) >= last.rank(&self.rules);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = invariants();
        if self.rules.mutation.is_none() {
            properties.extend(coverage(self));
        }
        properties
    }
}

type Condition = fn(&Protocol, &State) -> bool;

fn always(name: &'static str, holds: Condition) -> Property<Protocol> {
    Property::always(name, holds)
}

fn sometimes(name: &'static str, is_reached: Condition) -> Property<Protocol> {
    Property::sometimes(name, is_reached)
}

/// The invariants of the design, and progress.
fn invariants() -> Vec<Property<Protocol>> {
    vec![
        always(POSTED_ONCE, |_, state| state.entries.iter().all(|entries| *entries <= 1)),
        // Stronger than necessary: a send that is still under way does not count.
        always(NOTHING_LOST, |_, state| {
            let waits = |key: usize| state.queue.iter().any(|message| message.items[key].is_some());
            (0..KEYS).all(|key| !state.acknowledged[key] || state.is_final(key) || waits(key))
        }),
        always(FINAL_STAYS, |_, state| !state.violations.final_changed),
        always(CONTENT_COMPARED, |_, state| !state.violations.other_content),
        always(BALANCE_IS_SUM, |_, state| {
            state.account.balance == state.entries_sum && state.account.balance >= 0
        }),
        always(REJECTED_CORRECTLY, |_, state| !state.violations.refused_payable),
        always(NOTHING_REFUSED_EARLY, |_, state| !state.violations.refused_early),
        always(ORDER_KEPT, |_, state| !state.violations.order_broken),
        always(GATE_OBEYED, |_, state| !state.violations.gate_ignored),
        always(ANNOUNCED_CORRECTLY, |_, state| !state.violations.wrong_announcement),
        always(RANK_FALLS, |_, state| !state.violations.no_progress),
        always(FINAL_WHEN_QUIESCENT, |protocol, state| {
            let mut steps = Vec::new();
            let all_final = (0..KEYS).all(|key| !state.acknowledged[key] || state.is_final(key));
            if !all_final {
                state.fault_free_steps(&protocol.rules, &mut steps);
            }
            all_final || !steps.is_empty()
        }),
    ]
}

/// States that must be reachable; otherwise the model proves less than it claims.
fn coverage(Protocol { rules, budget }: &Protocol) -> Vec<Property<Protocol>> {
    let mut coverage = Vec::new();
    let withdraws = budget.submits[WITHDRAWAL] > 0;
    if withdraws {
        coverage.push(sometimes("the deposit and the withdrawal are posted", |_, state| {
            [DEPOSIT, WITHDRAWAL].into_iter().all(|key| state.entries[key] == 1)
        }));
    }
    if withdraws && budget.funds == 0 {
        coverage.push(sometimes("the withdrawal is rejected", |_, state| {
            state.rows[WITHDRAWAL].is_some_and(|row| row.status == Status::Rejected)
        }));
    }
    if budget.losses > 0 {
        coverage.push(sometimes("a commit without an answer is found by its nonce", |_, state| {
            let reads = |owner: Owner| match owner {
                Owner::Worker(worker) => matches!(state.workers[worker].stage, Stage::ReadingBack { .. }),
                Owner::Web(_) => false,
            };
            state.rows.iter().flatten().any(|row| row.decided_by.is_some_and(reads))
        }));
        coverage.push(sometimes("a commit is under way that its sender has given up", |_, state| {
            state.late.iter().any(|late| matches!(late, Late::Commit(_, None)))
        }));
    }
    if budget.waits > 0 {
        coverage.extend(coverage_at_once(rules, budget));
    }
    if budget.expiries > 0 {
        coverage.push(sometimes("a lease has ended while its holder works", |_, state| {
            state.queue.iter().any(|message| matches!(message.lease, Lease::Expired(_)))
        }));
        coverage.push(sometimes("both workers are about to commit the same work", |_, state| {
            let commits = |worker: &Worker| matches!(worker.stage, Stage::Committing { .. });
            let [one, two] = &state.workers;
            commits(one) && commits(two) && one.work == two.work
        }));
    }
    if budget.repairs > 0 {
        coverage.push(sometimes("the same work is on the queue under two revisions", |_, state| {
            let differ = |key: usize, one: Option<u8>| {
                one.is_some() && state.queue.iter().any(|other| other.items[key] > one)
            };
            state.queue.iter().any(|message| (0..KEYS).any(|key| differ(key, message.items[key])))
        }));
    }
    // A store that sends with the insert cannot send two transactions together.
    if withdraws && budget.submits[DEPOSIT] > 1 && !rules.sends_with_insert {
        coverage.push(sometimes("one of the two transactions in a message is final", |_, state| {
            let both = state.queue.iter().any(|message| message.items.iter().all(Option::is_some));
            both && state.is_final(DEPOSIT) != state.is_final(WITHDRAWAL)
        }));
    }
    coverage
}

/// States with requests that are posted at once.
fn coverage_at_once(rules: &Rules, budget: &Budget) -> Vec<Property<Protocol>> {
    let mut coverage = vec![
        sometimes("both processes commit on the account at the same time", |_, state| {
            state.webs.iter().all(|web| web.attempt.is_some())
        }),
        sometimes("the row of the fallback is there while the commit is under way", |_, state| {
            let falls_back = |web: &Web| web.attempt.is_some_and(|attempt| state.is_accepted(attempt.key));
            state.webs.iter().any(falls_back)
        }),
        sometimes("a request is posted that was never on the queue", |_, state| {
            let never_sent = |web: &Web| web.confirmed == [false; KEYS] && web.slots == [Slot::Idle; KEYS];
            state.entries[DEPOSIT] == 1 && state.queue.is_empty() && state.webs.iter().all(never_sent)
        }),
    ];
    if budget.losses > 0 {
        coverage.push(sometimes("a commit at once without an answer is found by its nonce", |_, state| {
            let has_nonce = |owner: Owner| matches!(owner, Owner::Web(_));
            state.rows.iter().flatten().any(|row| row.decided_by.is_some_and(has_nonce))
        }));
        coverage.push(sometimes("a commit at once may arrive after the fallback's insert", |_, state| {
            let is_late = |late: &Late| matches!(late, Late::Commit(commit, _) if commit.insertion.is_some());
            let falls_back = |slot: &Slot| matches!(slot, Slot::Inserting(_));
            state.late.iter().any(is_late) && state.webs.iter().any(|web| web.slots.iter().any(falls_back))
        }));
    }
    if budget.holds > 0 {
        coverage.push(sometimes("the gate is held during a commit", |_, state| {
            let commits = |web: &Web| web.attempt.is_some() && web.gate == KnownGate::Held;
            state.webs.iter().any(commits)
        }));
    }
    if rules.sends_with_insert && budget.submits[WITHDRAWAL] > 0 && budget.funds == 0 {
        coverage.push(sometimes("the withdrawal is rejected at once", |_, state| {
            state.is_final(WITHDRAWAL)
                && state.entries == [0; KEYS]
                && state.rows[DEPOSIT].is_none()
                && state.queue.is_empty()
        }));
    }
    coverage
}
