//! Pending transactions for tests.

use crate::domain::decision::{Pending, Submission, Work};

/// Returns accepted work followed by submissions, as a commit decides them.
pub fn pending(work: &[Work], submissions: &[Submission]) -> Vec<Pending> {
    let work = work.iter().cloned().map(Pending::from);
    work.chain(submissions.iter().cloned().map(Pending::from)).collect()
}
