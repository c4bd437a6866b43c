//! The ledger of the model, with the promises of `ports::ledger`: an insert happens at most once; a commit
//! is written as a whole under its guards, or not at all; the decision is a pure function.

use super::rules::{Mutation, Rules};
use super::state::{
    Account, Attempt, Commit, DEPOSIT, Finalization, Insertion, KEYS, Owner, Row, State, Status, Work,
};

/// The signed amount of a transaction.
pub const fn amount(key: usize, content: u8) -> i8 {
    match (key, content) {
        (DEPOSIT, 0) => 1,
        (DEPOSIT, _) => 2,
        (_, _) => -1,
    }
}

/// Decides a commit from the account and the work, as `domain::decision` does.
pub fn decide(state: &State, account: Account, work: &[Work]) -> Commit {
    let mut balance = account.balance;
    let finalizations = work
        .iter()
        .map(|Work { key, revision }| {
            let content = state.rows[*key].map_or(0, |row| row.content);
            let after = balance.saturating_add(amount(*key, content));
            let status = if after < 0 { Status::Rejected } else { Status::Posted };
            if status == Status::Posted {
                balance = after;
            }
            Finalization { key: *key, revision: *revision, status }
        })
        .collect();
    Commit { guard: account.version, balance, finalizations, insertion: None }
}

/// Decides a commit at once.
pub fn decide_at_once(attempt: &Attempt) -> Commit {
    let Attempt { key, request, account, stage: _ } = attempt;
    let (key, content) = (*key, request.content);
    let after = account.balance.saturating_add(amount(key, content));
    let status = if after < 0 { Status::Rejected } else { Status::Posted };
    let balance = if status == Status::Posted { after } else { account.balance };
    let insertion = Some(Insertion { key, content, status });
    Commit { guard: account.version, balance, finalizations: Vec::new(), insertion }
}

impl State {
    /// Stores a transaction under its key, at most once. Returns whether this call stored it. `nonce` is set only if
    /// the insert has the nonce of a commit.
    pub fn insert(&mut self, key: usize, content: u8, nonce: Option<Owner>, rules: &Rules) -> bool {
        let revision = match self.rows[key] {
            None => 1,
            Some(row) if rules.breaks(Mutation::InsertReplaces) => {
                self.violations.final_changed |= row.status != Status::Accepted;
                row.revision.saturating_add(1)
            }
            Some(_) => return false,
        };
        self.rows[key] = Some(Row { content, revision, status: Status::Accepted, decided_by: nonce });
        if rules.sends_with_insert {
            let mut items = [None; KEYS];
            items[key] = Some(revision);
            self.send(items);
        }
        true
    }

    /// Writes a commit if its guards hold. `owner` is the process that still knows the nonce. Returns
    /// whether the commit was written.
    pub fn commit(&mut self, commit: &Commit, owner: Option<Owner>, rules: &Rules) -> bool {
        if let Some(insertion) = &commit.insertion {
            return self.commit_at_once(commit, insertion, owner, rules);
        }
        let unguarded_rejections = rules.breaks(Mutation::NoGuardForRejections);
        let rejects_only = commit.finalizations.iter().all(|last| last.status == Status::Rejected);
        let unguarded = rules.breaks(Mutation::NoAccountGuard) || (unguarded_rejections && rejects_only);
        let account_holds = unguarded || self.account.version == commit.guard;
        let row_holds =
            |last: &Finalization| self.rows[last.key].is_some_and(|row| row.revision == last.revision);
        let rows_hold = rules.breaks(Mutation::NoRowGuard) || commit.finalizations.iter().all(row_holds);
        if !account_holds || !rows_hold {
            return false;
        }
        let mut balance = self.account.balance;
        for last in &commit.finalizations {
            balance = self.finalize(last, balance, owner);
        }
        if !(unguarded_rejections && rejects_only) {
            let version = self.account.version.saturating_add(1);
            self.account = Account { balance: commit.balance, version };
        }
        true
    }

    /// Writes a commit that inserts its transaction, if its guards hold.
    fn commit_at_once(
        &mut self,
        commit: &Commit,
        insertion: &Insertion,
        owner: Option<Owner>,
        rules: &Rules,
    ) -> bool {
        let Insertion { key, content, status } = *insertion;
        let rejects = status == Status::Rejected;
        let unguarded = rules.breaks(Mutation::NoAccountGuardForInsertions)
            || (rejects && rules.breaks(Mutation::OldCacheRejects));
        let account_holds = unguarded || self.account.version == commit.guard;
        let key_holds = self.rows[key].is_none() || rules.breaks(Mutation::NoKeyGuard);
        let others_wait = (0..KEYS).any(|other| other != key && self.is_accepted(other));
        let checks_order = rules.sends_with_insert && !rules.breaks(Mutation::NoOrderCheck);
        if !account_holds || !key_holds || (checks_order && others_wait) {
            return false;
        }
        self.violations.order_broken |= rules.sends_with_insert && others_wait;
        self.violations.refused_early |= rejects && others_wait;
        self.violations.final_changed |= self.is_final(key);
        let (moved, before) = (amount(key, content), self.account.balance);
        let version = self.account.version.saturating_add(1);
        let balance = if rejects { before } else { commit.balance };
        self.account = Account { balance, version };
        if rejects {
            self.violations.refused_payable |= before.saturating_add(moved) >= 0;
        } else {
            self.entries[key] = self.entries[key].saturating_add(1);
            self.entries_sum = self.entries_sum.saturating_add(moved);
        }
        let revision = self.rows[key].map_or(1, |row| row.revision.saturating_add(1));
        self.rows[key] = Some(Row { content, revision, status, decided_by: owner });
        true
    }

    /// Makes one row final. Returns the balance afterwards.
    fn finalize(&mut self, last: &Finalization, before: i8, owner: Option<Owner>) -> i8 {
        let Finalization { key, revision: _, status } = *last;
        let Some(row) = &mut self.rows[key] else { return before };
        let moved = amount(key, row.content);
        let after = before.saturating_add(moved);
        self.violations.final_changed |= row.status != Status::Accepted && row.status != status;
        row.status = status;
        row.revision = row.revision.saturating_add(1);
        row.decided_by = owner;
        if status == Status::Posted {
            self.entries[key] = self.entries[key].saturating_add(1);
            self.entries_sum = self.entries_sum.saturating_add(moved);
            return after;
        }
        self.violations.refused_payable |= after >= 0;
        before
    }
}
