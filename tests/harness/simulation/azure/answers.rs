//! Checks of the responses of the adapter. A response arrives some time after the write, so it is compared only with state that
//! can no longer change.

use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;

use crate::simulation::auditor::{Auditor, row};
use crate::simulation::records::{AuditRecords, Checked, check};

impl Auditor {
    /// Checks that every transaction of an accepted group is in the log, regardless of the call that inserted it.
    pub(super) fn accept_answered(&self, group: &[Submission], outcomes: &[AcceptOutcome]) {
        self.check(|records| {
            group.iter().zip(outcomes).try_for_each(|(new, outcome)| {
                check(records.transactions.contains_key(&new.key), || {
                    format!("the accept of {} is answered by {outcome:?}, and the log has no row", new.key)
                })
            })
        });
    }

    /// Checks the response to a commit.
    pub(super) fn commit_answered(
        &self,
        raw: &Store,
        commit: &AccountCommit,
        answer: &Result<Committed, StoreFault>,
    ) {
        self.check(|records| answered(records, raw, commit.outcomes(), answer));
    }

    /// Checks the response to rejections of transactions of an account that does not exist.
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

/// Checks that a commit reported as done has left its outcomes. A commit reported as not written must not be written later, so
/// the order numbers that it would use are recorded.
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
