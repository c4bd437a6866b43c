//! Tests of [`JointSteps`], for the ledgers that have them.

use super::insertions::assert_written;
use crate::case::Case;
use postonce_shared::ports::ledger::{Committed, JointSteps};

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    let case = case().await;
    if let Some(steps) = case.store.ledger.joint_steps() {
        accounts_are_read_in_the_order_of_their_keys(&case, steps).await;
        commits_are_written_together(&case, steps).await;
        a_refused_commit_does_not_prevent_the_others(&case, steps).await;
    }
}

async fn accounts_are_read_in_the_order_of_their_keys(case: &Case, steps: &dyn JointSteps) {
    let (first, second) = (case.opened().await, case.opened().await);
    let unknown = case.account_key();
    let keys = [second.value.key, unknown, first.value.key, second.value.key];
    let found = steps.accounts(&keys).await.unwrap();
    assert_eq!(found, [Some(second.clone()), None, Some(first), Some(second)]);
    assert_eq!(steps.accounts(&[]).await.unwrap(), []);
}

async fn commits_are_written_together(case: &Case, steps: &dyn JointSteps) {
    let mut commits = Vec::new();
    for cents in 0..steps.accounts_max() {
        let account = case.opened().await;
        let key = account.value.key;
        let new = [case.deposit(key, 10), case.withdrawal(key, i64::try_from(cents).unwrap() + 1)];
        let work = case.accepted(&[case.deposit(key, 1)]).await;
        commits.push(case.decided_with_new(&account, &work, &new));
    }
    let answers = steps.commit_all(&commits).await.unwrap();
    assert_eq!(answers.len(), commits.len());
    for (commit, answer) in commits.iter().zip(answers) {
        let revision = case.account(commit.account()).await.revision;
        assert_eq!(answer, Committed::Done { revision: Some(revision) });
        assert_written(case, commit).await;
    }
}

async fn a_refused_commit_does_not_prevent_the_others(case: &Case, steps: &dyn JointSteps) {
    let mut commits = Vec::new();
    for at in 0..6 {
        let mut account = case.opened().await;
        if at == 4 {
            account.value.key = case.account_key();
        }
        commits.push(case.decided_with_new(&account, &[], &[case.deposit(account.value.key, 7)]));
    }
    // Another commit is first, a key is taken, a commit is a repetition, and an account does not exist.
    case.inserted(&[case.deposit(commits[1].account(), 1)]).await;
    let taken = commits[2].inserted()[0].clone();
    let mut other = case.deposit(commits[2].account(), 1);
    other.key = taken.pending.submission.key.clone();
    let _work = case.accepted(&[other]).await;
    case.committed(&commits[3]).await;
    let before = [1, 2, 3].map(|at: usize| commits[at].account());
    let mut rows = Vec::new();
    for account in before {
        rows.push(case.all_rows(account).await);
    }
    let mut answers = Vec::new();
    for group in commits.chunks(steps.accounts_max()) {
        answers.extend(steps.commit_all(group).await.unwrap());
    }
    for at in [0, 5] {
        let revision = case.account(commits[at].account()).await.revision;
        assert_eq!(answers[at], Committed::Done { revision: Some(revision) }, "commit {at}");
        assert_written(case, &commits[at]).await;
    }
    assert_eq!(answers[1], Committed::Stale);
    assert_eq!(answers[2], Committed::Taken(vec![taken.pending.submission.key]));
    assert!(matches!(answers[3], Committed::Done { .. }), "{:?}", answers[3]);
    assert_eq!(answers[4], Committed::Stale);
    for (account, before) in before.into_iter().zip(rows) {
        assert_eq!(case.all_rows(account).await, before, "nothing is written");
    }
}
