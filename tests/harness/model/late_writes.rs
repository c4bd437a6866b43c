//! Accept, commit and repair on a store that loses responses, and executes writes long after their sender gave up.
//!
//! Models `shared/src/adapters/azure/{accept,commit,attempt}.rs` (an unclear write is read back, recognised by its nonce,
//! and sent again under the same guards until these refuse it), `shared/src/protocol/accept` (the insert is the
//! idempotency check; a request that waits uses the queue after a refused commit),
//! `shared/src/posting/{writer,queued}.rs` and `shared/src/posting/waiting` (load, decide, commit, and read again after a
//! refusal), and `shared/src/protocol/recover.rs` (a mark under the revision of the row, and the work once more).
//!
//! Assumptions: the queue delivers sent work at any time and any number of times; lost messages are covered by the
//! simulation. Reads always get a response. A party does one thing at a time; when it gives up a write, its nonce is
//! forgotten.

#![expect(clippy::arithmetic_side_effects, reason = "the numbers of a bounded model are small")]

use super::explore::{Goal, Protocol, RequestOutcome, protocol};
use super::ledger::{
    Account, BALANCE_IS_SUM, Commit, DEPOSIT, FINAL_STAYS, Guards, KEYS, Ledger, POSTED_ONCE,
    REJECTED_CORRECTLY, Status, WITHDRAWAL, Write,
};

const PARTIES: usize = 2;

const ANSWERED_CORRECTLY: &str =
    "an answered outcome is the stored outcome, and an acknowledged transaction is stored";
const GETS_AN_OUTCOME: &str = "a worker that nothing disturbs gives every accepted transaction its outcome";

protocol! { LateWrites;
    NoAccountGuard: "a commit does not check the version of the account" => BALANCE_IS_SUM, Budget { funds: 1, ..ONCE };
    NoGuardForRejections: "a commit that rejects does not check the version of the account" => REJECTED_CORRECTLY, ONCE;
    NoRowGuard: "a commit does not check the revision of the row" => POSTED_ONCE, ONCE;
    NoKeyGuard: "a commit that inserts does not check that the key is free"
        => POSTED_ONCE, Budget { submits: [2, 0], ..WAITING };
    MarkReplaces: "a mark replaces the row as it was read, without a check of its revision"
        => FINAL_STAYS, Budget { repairs: 1, losses: 1, ..ONCE };
    UnclearIsDone: "a commit without an answer counts as written" => ANSWERED_CORRECTLY, Budget { losses: 1, ..ONCE };
    UnclearIsFailed: "after a commit without an answer the row is read again only for its revision, and decided again"
        => POSTED_ONCE, Budget { losses: 1, ..ONCE };
    RecognizedByStatus: "a commit without an answer is recognized by the status of the row, instead of its nonce"
        => ANSWERED_CORRECTLY, Budget { losses: 1, ..ONCE };
    FallbackSharesNonce: "an accepted row with the nonce proves a commit, and the insert of its request has the same"
        => ANSWERED_CORRECTLY, Budget { losses: 1, ..WAITING };
    OldAccountKept: "after a refused commit the account is not read again" => GETS_AN_OUTCOME, ONCE;
    OldRevisionKept: "after a refused commit the row is not read again" => GETS_AN_OUTCOME, Budget { repairs: 1, ..ONCE };
}

/// The number of requests for each transaction, of requests that wait for the outcome, and of faults, and the initial balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    submits: [u8; KEYS],
    waits: u8,
    losses: u8,
    crashes: u8,
    repairs: u8,
    funds: i8,
}

const ONCE: Budget = Budget { submits: [1, 1], waits: 0, losses: 0, crashes: 0, repairs: 0, funds: 0 };
const WAITING: Budget = Budget { waits: 2, ..ONCE };

const SMALL: &[(&str, Budget)] = &[
    ("late writes: repeated requests, a crash", Budget { submits: [2, 1], losses: 1, crashes: 1, ..ONCE }),
    ("late writes: two losses, a crash, a repair", Budget { losses: 2, crashes: 1, repairs: 1, ..ONCE }),
    ("late writes: clients wait, two losses, a crash", Budget { losses: 2, crashes: 1, ..WAITING }),
    ("late writes: clients wait, funds, two losses", Budget { losses: 2, funds: 1, ..WAITING }),
];
const LARGE: &[(&str, Budget)] = &[
    ("late writes: three losses, a crash, two repairs", Budget { losses: 3, crashes: 1, repairs: 2, ..ONCE }),
    ("late writes: clients wait and repeat", Budget { submits: [2, 2], losses: 2, crashes: 1, ..WAITING }),
    ("late writes: clients wait, all faults", Budget { losses: 3, crashes: 1, repairs: 1, ..WAITING }),
];

/// The next action of a party with its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// Sends the write, perhaps again after an attempt without a response.
    Sending { again: bool },
    /// Reads whether the write was executed. The guards may have refused it since.
    ReadingBack { refused: bool },
}

/// A web process or a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Party {
    Idle,
    /// Writes an insert or a commit.
    Writes(Write, Stage),
    /// Reads the row and the account again after its commit was refused.
    Reloads(Commit),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    ledger: Ledger,
    parties: [Party; PARTIES],
    /// Writes that their sender gave up, and that may still be executed; sorted.
    late: Vec<Write>,
    /// For each transaction, the revisions with which its work was sent, in order.
    sent: [Vec<u8>; KEYS],
    budget: Budget,
    wrong: Option<&'static str>,
}

/// A step. The first number is the index of the party.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A client sends a request for a transaction.
    Submit(usize, usize),
    /// A client sends a request that waits for the outcome.
    Ask(usize, usize),
    /// The wait ends during the commit, so the request uses the queue.
    WaitEnds(usize),
    /// A worker receives the work of a transaction with a revision, and reads the account.
    Receive(usize, usize, u8),
    Send(usize, RequestOutcome),
    ReadBack(usize),
    Reload(usize),
    /// The time limit of a write without a response is reached.
    GiveUp(usize),
    Crash(usize),
    Repair(usize, RequestOutcome),
    /// A late write is executed.
    Arrive(usize),
}

impl Protocol for LateWrites {
    type State = State;
    type Step = Step;
    const GOALS: &[Goal<State>] = &[
        ("both transactions are posted", |it| it.ledger.entries == [1; KEYS]),
        ("the withdrawal is rejected", |it| {
            it.ledger.rows[WITHDRAWAL].is_some_and(|row| row.status == Status::Rejected)
        }),
        ("both parties commit", |it| {
            it.parties.iter().all(|it| matches!(it, Party::Writes(Write::Commit(_), _)))
        }),
        ("a commit is found by its nonce", |it| {
            let is_of = |party: usize| {
                it.ledger.rows.iter().flatten().any(|row| row.nonce == Some(party) && row.is_final())
            };
            (0..PARTIES).any(is_of)
        }),
        ("a commit is late whose sender has given up", |it| {
            it.late.iter().any(|it| matches!(it, Write::Commit(Commit { nonce: None, .. })))
        }),
        ("a request is inserted while its commit may still be written", |it| {
            it.late.iter().any(is_at_once)
                && it.parties.iter().any(|it| matches!(it, Party::Writes(Write::Insert(..), _)))
        }),
        ("the work of a row is sent with two revisions", |it| {
            it.sent[DEPOSIT].len() > 1 && it.ledger.is_accepted(DEPOSIT)
        }),
    ];

    fn start(&self) -> State {
        State {
            ledger: Ledger::new(self.budget.funds),
            parties: [Party::Idle; PARTIES],
            late: Vec::new(),
            sent: [const { Vec::new() }; KEYS],
            budget: self.budget,
            wrong: None,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let (mut steps, budget) = (Vec::new(), &state.budget);
        let mut add = |is_possible: bool, step: Step| steps.extend(is_possible.then_some(step));
        let outcomes = RequestOutcome::all(budget.losses > 0);
        let idle = state.idle();
        for key in 0..KEYS {
            if let Some(party) = idle {
                add(budget.submits[key] > 0, Step::Submit(party, key));
                add(budget.submits[key] > 0 && budget.waits > 0, Step::Ask(party, key));
                state.sent[key].iter().for_each(|revision| add(true, Step::Receive(party, key, *revision)));
            }
            let is_repaired = budget.repairs > 0 && state.ledger.is_accepted(key);
            outcomes.iter().for_each(|outcome| add(is_repaired, Step::Repair(key, *outcome)));
        }
        for (party, does) in state.parties.iter().enumerate() {
            add(budget.crashes > 0 && *does != Party::Idle, Step::Crash(party));
            add(matches!(does, Party::Reloads(_)), Step::Reload(party));
            let Party::Writes(write, stage) = does else { continue };
            add(idle.is_some() && is_at_once(write), Step::WaitEnds(party));
            let sends = matches!(stage, Stage::Sending { .. });
            outcomes.iter().for_each(|outcome| add(sends, Step::Send(party, *outcome)));
            add(!sends, Step::ReadBack(party));
            add(*stage == Stage::ReadingBack { refused: false }, Step::GiveUp(party));
        }
        (0..state.late.len()).for_each(|place| add(true, Step::Arrive(place)));
        steps
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Submit(party, key) => {
                state.budget.submits[key] -= 1;
                state.write(party, Write::Insert(key, Some(party)));
            }
            Step::Ask(party, key) => {
                state.budget.submits[key] -= 1;
                state.budget.waits -= 1;
                let commit = Commit::decide(state.ledger.account, key, None, Some(party));
                state.write(party, Write::Commit(commit));
            }
            Step::WaitEnds(party) => {
                if let (Some(idle), Party::Writes(Write::Commit(commit), _)) =
                    (state.idle(), state.parties[party])
                {
                    let nonce = if self.omits(Mutation::FallbackSharesNonce) { party } else { idle };
                    state.write(idle, Write::Insert(commit.key, Some(nonce)));
                }
            }
            Step::Receive(party, key, revision) => {
                let commit = Commit::decide(state.ledger.account, key, Some(revision), Some(party));
                state.write(party, Write::Commit(commit));
            }
            Step::Send(party, outcome) => self.send(state, party, outcome),
            Step::ReadBack(party) => self.read_back(state, party),
            Step::Reload(party) => self.reload(state, party),
            Step::GiveUp(party) => state.give_up(party),
            Step::Crash(party) => {
                state.budget.crashes -= 1;
                state.give_up(party);
            }
            Step::Repair(key, outcome) => {
                let revision = state.ledger.rows[key].map_or(0, |row| row.revision);
                state.budget.repairs -= 1;
                let is_marked = state.request(Write::Mark(key, revision), outcome, &self.guards());
                if is_marked && !outcome.is_loss() {
                    state.send_work(key, revision + 1);
                }
            }
            Step::Arrive(place) => {
                let write = state.late.remove(place);
                let _ = state.ledger.apply(&write, &self.guards());
            }
        }
        if self.omits.is_none() {
            // Writes that the guards will always refuse make no difference.
            let State { ledger, late, .. } = state;
            late.retain(|write| ledger.may_hold(write));
        }
    }

    fn violated(&self, state: &State) -> Option<&'static str> {
        let wrong = state.ledger.violated().or(state.wrong);
        wrong.or_else(|| (!self.get_outcomes(state)).then_some(GETS_AN_OUTCOME))
    }
}

/// Returns whether the write is the commit of a request that waits.
fn is_at_once(write: &Write) -> bool {
    matches!(write, Write::Commit(Commit { row: None, .. }))
}

impl State {
    /// Returns the first idle party. Idle parties are interchangeable.
    fn idle(&self) -> Option<usize> {
        self.parties.iter().position(|party| *party == Party::Idle)
    }

    fn write(&mut self, party: usize, write: Write) {
        self.parties[party] = Party::Writes(write, Stage::Sending { again: false });
    }

    /// Ends the write of a party. A forgotten nonce is equal to any other forgotten one.
    fn give_up(&mut self, party: usize) {
        self.parties[party] = Party::Idle;
        let nonces = self.ledger.rows.iter_mut().flatten().map(|row| &mut row.nonce);
        let nonces = nonces.chain(self.late.iter_mut().filter_map(Write::nonce_mut));
        nonces.filter(|nonce| **nonce == Some(party)).for_each(|nonce| *nonce = None);
        self.late.sort_unstable();
    }

    /// Reports the outcome to the client and to requests that wait for the transaction.
    fn answer(&mut self, commit: &Commit) {
        if self.ledger.rows[commit.key].is_none_or(|row| row.status != commit.status) {
            self.wrong = Some(ANSWERED_CORRECTLY);
        }
    }

    /// Sends the work of a stored transaction, and acknowledges the transaction.
    fn acknowledge(&mut self, key: usize) {
        match self.ledger.rows[key] {
            None => self.wrong = Some(ANSWERED_CORRECTLY),
            Some(row) if row.is_final() => {}
            Some(row) => self.send_work(key, row.revision),
        }
    }

    fn send_work(&mut self, key: usize, revision: u8) {
        if !self.sent[key].contains(&revision) {
            self.sent[key].push(revision);
            self.sent[key].sort_unstable();
        }
    }

    /// Sends a write. Returns whether it is executed now.
    fn request(&mut self, write: Write, outcome: RequestOutcome, guards: &Guards) -> bool {
        self.budget.losses -= u8::from(outcome.is_loss());
        if outcome == RequestOutcome::Late {
            self.late.push(write);
            self.late.sort_unstable();
        }
        outcome.is_carried_out() && self.ledger.apply(&write, guards)
    }
}

impl LateWrites {
    fn guards(&self) -> Guards {
        Guards {
            account_in_commit: !self.omits(Mutation::NoAccountGuard),
            account_in_rejection: !self.omits(Mutation::NoGuardForRejections),
            row_in_commit: !self.omits(Mutation::NoRowGuard),
            key_in_commit: !self.omits(Mutation::NoKeyGuard),
            row_in_mark: !self.omits(Mutation::MarkReplaces),
        }
    }

    fn send(&self, state: &mut State, party: usize, outcome: RequestOutcome) {
        let Party::Writes(write, Stage::Sending { again }) = state.parties[party] else { return };
        let is_written = state.request(write, outcome, &self.guards());
        let (is_unclear, is_commit) = (outcome.is_loss(), matches!(write, Write::Commit(_)));
        let ignores = |rule: Mutation| is_unclear && is_commit && self.omits(rule);
        if (is_written && !is_unclear) || ignores(Mutation::UnclearIsDone) {
            self.done(state, party, &write);
        } else if is_unclear && !ignores(Mutation::UnclearIsFailed) {
            state.parties[party] = Party::Writes(write, Stage::ReadingBack { refused: false });
        } else if again {
            state.parties[party] = Party::Writes(write, Stage::ReadingBack { refused: true });
        } else {
            self.refused(state, party, &write);
        }
    }

    fn done(&self, state: &mut State, party: usize, write: &Write) {
        match write {
            Write::Insert(key, _) => state.acknowledge(*key),
            Write::Commit(commit) => state.answer(commit),
            Write::Mark(..) => {}
        }
        state.give_up(party);
    }

    /// Handles a write that the guards refused and that was certainly not executed.
    fn refused(&self, state: &mut State, party: usize, write: &Write) {
        match write {
            Write::Commit(commit) if commit.row.is_some() => state.parties[party] = Party::Reloads(*commit),
            Write::Commit(commit) => {
                state.give_up(party);
                state.write(party, Write::Insert(commit.key, Some(party)));
            }
            // The key exists: a replay.
            Write::Insert(..) | Write::Mark(..) => self.done(state, party, write),
        }
    }

    fn read_back(&self, state: &mut State, party: usize) {
        let Party::Writes(write, Stage::ReadingBack { refused }) = state.parties[party] else { return };
        let is_own = match write {
            // Stored, regardless of the party that inserted it.
            Write::Insert(key, _) => state.ledger.rows[key].is_some(),
            Write::Commit(Commit { key, nonce, .. }) => state.ledger.rows[key].is_some_and(|row| {
                let is_own = row.nonce == nonce || self.omits(Mutation::RecognizedByStatus);
                is_own && (row.is_final() || self.omits(Mutation::FallbackSharesNonce))
            }),
            Write::Mark(..) => false,
        };
        if is_own {
            self.done(state, party, &write);
        } else if refused {
            self.refused(state, party, &write);
        } else {
            // A write that is not found may still be executed later.
            state.parties[party] = Party::Writes(write, Stage::Sending { again: true });
        }
    }

    /// Lets a worker read the row and the account again, and decide again with another nonce.
    fn reload(&self, state: &mut State, party: usize) {
        let Party::Reloads(before) = state.parties[party] else { return };
        state.give_up(party);
        let Some(row) = state.ledger.rows[before.key] else { return };
        if row.is_final() && !self.omits(Mutation::UnclearIsFailed) {
            return;
        }
        let old = Account { version: before.version, balance: before.balance };
        let account = if self.omits(Mutation::OldAccountKept) { old } else { state.ledger.account };
        let revision = if self.omits(Mutation::OldRevisionKept) { before.row } else { Some(row.revision) };
        let commit = Commit::decide(account, before.key, revision, Some(party));
        state.write(party, Write::Commit(commit));
    }

    /// Returns whether an undisturbed worker gives every sent transaction its outcome.
    fn get_outcomes(&self, state: &State) -> bool {
        let [worker, Party::Idle] = state.parties else { return true };
        match worker {
            Party::Idle => (0..KEYS).filter(|key| state.ledger.is_accepted(*key)).all(|key| {
                let Some(oldest) = state.sent[key].first() else { return true };
                let mut alone = state.clone();
                self.take(&mut alone, Step::Receive(0, key, *oldest));
                self.ends_alone(alone, key)
            }),
            Party::Reloads(commit) => self.ends_alone(state.clone(), commit.key),
            Party::Writes(..) => true,
        }
    }

    fn ends_alone(&self, mut state: State, key: usize) -> bool {
        // More steps than needed.
        for _ in 0..12 {
            match state.parties[0] {
                Party::Idle => break,
                Party::Reloads(_) => self.take(&mut state, Step::Reload(0)),
                Party::Writes(_, Stage::ReadingBack { .. }) => self.take(&mut state, Step::ReadBack(0)),
                Party::Writes(_, Stage::Sending { .. }) => {
                    self.take(&mut state, Step::Send(0, RequestOutcome::Answered))
                }
            }
        }
        !state.ledger.is_accepted(key)
    }
}
