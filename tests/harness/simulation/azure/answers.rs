//! What the auditor checks about the answers of the adapter. An answer arrives some time after the write, so it is
//! compared with what can no longer change.

use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;

use crate::simulation::auditor::{Auditor, row};
use crate::simulation::records::{AuditRecords, Checked, check};

impl Auditor {
    /// Checks that every transaction of an accepted group is in the log, no matter which call inserted it.
    pub(super) fn accept_answered(&self, group: &[Submission], outcomes: &[AcceptOutcome]) {
        self.check(|records| {
            group.iter().zip(outcomes).try_for_each(|(new, outcome)| {
                check(records.transactions.contains_key(&new.key), || {
                    format!("the accept of {} is answered by {outcome:?}, and the log has no row", new.key)
                })
            })
        });
    }

    /// Checks the answer to a commit.
    pub(super) fn commit_answered(
        &self,
        raw: &Store,
        commit: &AccountCommit,
        answer: &Result<Committed, StoreFault>,
    ) {
        self.check(|records| answered(records, raw, commit.outcomes(), answer));
    }

    /// Checks the answer to rejections of transactions of an account that does not exist.
    pub(super) fn rejection_answered(
        &self,
        raw: &Store,
        commit: &UnknownAccountCommit,
        answer: &Result<Committed, StoreFault>,
    ) {
        let outcomes = commit.decided.iter().map(|one| (one.key(), &one.outcome));
        self.check(|records| answered(records, raw, outcomes, answer));
    }
}

/// A commit that is answered as done has left its outcomes. One that is answered as not written is not written later:
/// the numbers that it would use are remembered.
fn answered<'a>(
    records: &mut AuditRecords,
    raw: &Store,
    mut outcomes: impl Iterator<Item = (&'a TransactionKey, &'a Outcome)>,
    answer: &Result<Committed, StoreFault>,
) -> Checked {
    match answer {
        Ok(Committed::Done { .. }) => {
            outcomes.try_for_each(|(key, outcome)| records.done(key, outcome, row(raw, key).as_ref()))
        }
        Ok(Committed::Stale | Committed::Early | Committed::RowsChanged(_) | Committed::Taken(_)) => {
            let numbers = outcomes.filter_map(|(_, outcome)| outcome.order_number());
            records.refused.extend(numbers.map(|number| number.counter()));
            Ok(())
        }
        Err(_) => Ok(()),
    }
}
