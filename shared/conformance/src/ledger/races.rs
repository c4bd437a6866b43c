//! Tests of concurrent processes: every transaction is posted once.

use std::sync::Arc;

use crate::case::{Case, assert_refused};
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    concurrent_commits_of_the_same_work_post_once(&case().await).await;
    concurrent_commits_that_overlap_post_once(&case().await).await;
    concurrent_copies_of_a_commit_are_written_once(&case().await).await;
    several_workers_post_everything_once(&case().await).await;
    commits_of_different_accounts_do_not_conflict(&case().await).await;
    one_of_concurrent_marks_is_written(&case().await).await;
    a_mark_and_a_commit_exclude_each_other(&case().await).await;
}

/// Commits concurrently; returns the results in order.
async fn race(case: &Case, commits: &[AccountCommit]) -> Vec<Committed> {
    let steps = commits.iter().cloned().map(|commit| {
        let ledger = Arc::clone(&case.store.ledger);
        async move { ledger.commit(&commit).await.unwrap() }
    });
    case.concurrently(steps).await
}

/// Returns the commit that was written; asserts that there is exactly one.
fn winner<'a>(commits: &'a [AccountCommit], answers: &[Committed]) -> &'a AccountCommit {
    let mut winner = None;
    for (commit, answer) in commits.iter().zip(answers) {
        if matches!(answer, Committed::Done { .. }) {
            assert!(winner.is_none(), "two concurrent commits were written");
            winner = Some(commit);
        } else {
            assert_refused(answer, commit);
        }
    }
    winner.expect("one of the concurrent commits is written")
}

async fn concurrent_commits_of_the_same_work_post_once(case: &Case) {
    let key = case.opened().await.value.key;
    for round in 1..=20 {
        let account = case.account(key).await;
        let work = case.accepted(&[case.deposit(key, 5), case.withdrawal(key, 3)]).await;
        let commits: Vec<AccountCommit> = (0..4).map(|_| case.decided(&account, &work)).collect();
        let winner = winner(&commits, &race(case, &commits).await);
        let after = case.account(key).await.value;
        assert_eq!(after, winner.after, "the account is that of the written commit");
        let pages = case.journal(key).await;
        assert_eq!(pages.len(), round, "each round writes one page");
        assert_eq!(pages.last(), Some(&winner.page), "the page is that of the written commit");
        case.assert_chain(&after).await;
        for finalization in winner.stored() {
            let outcome = case.stored(&finalization.pending.submission.key).await.outcome;
            assert_eq!(
                outcome.as_ref(),
                Some(&finalization.outcome),
                "the outcome is that of the written commit"
            );
        }
    }
}

async fn concurrent_commits_that_overlap_post_once(case: &Case) {
    let key = case.opened().await.value.key;
    for _ in 0..10 {
        let account = case.account(key).await;
        let work = case.accepted(&[1, 20, 300].map(|cents| case.deposit(key, cents))).await;
        let commits = [case.decided(&account, &work[..2]), case.decided(&account, &work[1..])];
        let winner = winner(&commits, &race(case, &commits).await);
        assert_eq!(case.account(key).await.value, winner.after, "the account is that of the written commit");
        let left = case.in_status(key, TransactionStatus::Accepted, 10).await;
        let left: Vec<_> =
            left.iter().map(|stored| stored.work().expect("the transaction is accepted")).collect();
        assert_eq!(left.len(), 1, "the work of the refused commit is still accepted");
        case.committed(&case.decided(&case.account(key).await, &left)).await;
    }
    let account = case.account(key).await.value;
    assert_eq!(account.balance.minor_units(), 3_210, "every transaction was posted once");
    case.assert_chain(&account).await;
}

async fn concurrent_copies_of_a_commit_are_written_once(case: &Case) {
    let key = case.opened().await.value.key;
    for round in 1..=10 {
        let account = case.account(key).await;
        let work = case.accepted(&[case.deposit(key, 5)]).await;
        let commit = case.decided(&account, &work);
        let answers = race(case, &vec![commit.clone(); 3]).await;
        let done = answers.iter().filter(|answer| matches!(answer, Committed::Done { .. })).count();
        assert!(done >= 1, "at least one of the copies returns Done");
        assert_eq!(case.account(key).await.value, commit.after, "the decided account is stored");
        let pages = case.journal(key).await;
        assert_eq!(pages.len(), round, "each round writes one page");
        case.assert_chain(&commit.after).await;
    }
}

async fn several_workers_post_everything_once(case: &Case) {
    let key = case.opened().await.value.key;
    let group: Vec<Submission> = (1..=60).map(|cents| case.deposit(key, cents)).collect();
    case.accepted(&group).await;
    let workers = (0..4).map(|_| {
        let case = Case::new(case.store.clone());
        async move {
            // In each iteration some worker makes progress: this limit is far above the number that is needed.
            let mut cursor = None;
            for _ in 0..2_000 {
                let log = &case.store.log;
                let page = log.by_status(key, TransactionStatus::Accepted, None, cursor.as_deref(), 7);
                let page = page.await.unwrap();
                let work: Vec<_> = page.items.iter().filter_map(|stored| stored.work()).collect();
                if work.is_empty() && page.next.is_none() {
                    return;
                }
                // A page can be empty before the end.
                cursor = page.next.filter(|_| work.is_empty());
                if cursor.is_some() {
                    continue;
                }
                let account = case.account(key).await;
                let commit = case.decided(&account, &work);
                match case.store.ledger.commit(&commit).await.unwrap() {
                    Committed::Done { .. } | Committed::Stale | Committed::RowsChanged(_) => {}
                    Committed::Taken(_) | Committed::Early => {
                        panic!("nothing is inserted, and no order is required")
                    }
                }
            }
            panic!("accepted work was still listed after 2000 rounds");
        }
    });
    case.concurrently(workers).await;
    let account = case.account(key).await.value;
    assert_eq!(account.balance.minor_units(), 60 * 61 / 2, "every transaction was posted once");
    let pages = case.journal(key).await;
    case.assert_chain(&account).await;
    let mut posted: Vec<_> = pages.iter().flat_map(|page| &page.entries).map(|one| one.message).collect();
    posted.sort_unstable();
    let mut wanted: Vec<_> = group.iter().map(|new| new.key.message).collect();
    wanted.sort_unstable();
    assert_eq!(posted, wanted, "the journal contains each transaction once");
}

async fn commits_of_different_accounts_do_not_conflict(case: &Case) {
    let mut commits = Vec::new();
    for cents in 1..=8 {
        let account = case.opened().await;
        let work = case.accepted(&[case.deposit(account.value.key, cents)]).await;
        commits.push(case.decided(&account, &work));
    }
    for answer in race(case, &commits).await {
        assert!(matches!(answer, Committed::Done { .. }), "all guards hold, but the result was {answer:?}");
    }
    for commit in &commits {
        assert_eq!(case.account(commit.account()).await.value, commit.after, "the decided account is stored");
        assert_eq!(case.journal(commit.account()).await.len(), 1, "each account has one page");
    }
}

async fn one_of_concurrent_marks_is_written(case: &Case) {
    let new = case.deposit(case.opened().await.value.key, 5);
    case.accepted(std::slice::from_ref(&new)).await;
    for round in 0..10 {
        let revision = case.stored(&new.key).await.revision;
        let steps = (0..4).map(|racer| {
            let (ledger, key, revision) = (Arc::clone(&case.store.ledger), new.key.clone(), revision.clone());
            let marks = Marks { repairs: round * 10 + racer, ..Marks::default() };
            async move { ledger.mark(&key, &revision, marks).await.unwrap().map(|revision| (revision, marks)) }
        });
        let won: Vec<_> = case.concurrently(steps).await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "one of the concurrent marks is written");
        let stored = case.stored(&new.key).await;
        assert_eq!((stored.revision, stored.marks), won[0], "the successful mark is stored");
    }
}

async fn a_mark_and_a_commit_exclude_each_other(case: &Case) {
    let key = case.opened().await.value.key;
    for _ in 0..15 {
        let account = case.account(key).await;
        let work = case.accepted(&[case.deposit(key, 5)]).await;
        let commit = case.decided(&account, &work);
        let marks = Marks { repairs: 1, ..Marks::default() };
        let (ledger, one) = (Arc::clone(&case.store.ledger), work[0].clone());
        let marking = async move { ledger.mark(&one.submission.key, &one.row, marks).await.unwrap() };
        let (marked, answers) =
            futures::join!(case.concurrently([marking]), race(case, std::slice::from_ref(&commit)));
        let is_marked = marked[0].is_some();
        let is_posted = matches!(answers[0], Committed::Done { .. });
        assert!(is_marked != is_posted, "exactly one of mark and commit succeeds");
        let stored = case.stored(&work[0].submission.key).await;
        assert_eq!(stored.status().is_final(), is_posted, "the row has the state of the successful call");
        if let Some(left) = stored.work() {
            case.committed(&case.decided(&account, &[left])).await;
        }
    }
    case.assert_chain(&case.account(key).await.value).await;
}
