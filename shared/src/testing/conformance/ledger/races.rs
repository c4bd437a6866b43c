//! Several processes at once: whoever wins, everything is posted once.

use std::sync::Arc;

use crate::domain::decision::AccountCommit;
use crate::domain::transaction::TransactionStatus;
use crate::ports::ledger::{Committed, Marks, NewTransaction};
use crate::testing::conformance::case::{Case, assert_chain, assert_refused};

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    racing_commits_of_the_same_work_leave_one_posting(&case().await).await;
    racing_commits_that_overlap_leave_one_posting(&case().await).await;
    a_commit_that_is_sent_twice_at_once_is_written_once(&case().await).await;
    several_workers_post_everything_once(&case().await).await;
    commits_of_different_accounts_do_not_meet(&case().await).await;
    racing_marks_leave_one(&case().await).await;
    of_a_mark_and_a_commit_one_wins(&case().await).await;
}

/// Commits all of them at once; the answers in their order.
async fn race(case: &Case, commits: &[AccountCommit]) -> Vec<Committed> {
    let steps = commits.iter().cloned().map(|commit| {
        let ledger = Arc::clone(&case.store.ledger);
        async move { ledger.commit(&commit).await.unwrap() }
    });
    case.at_once(steps).await
}

/// The only commit that was written; asserts that it is the only one.
fn winner<'a>(commits: &'a [AccountCommit], answers: &[Committed]) -> &'a AccountCommit {
    let mut winner = None;
    for (commit, answer) in commits.iter().zip(answers) {
        if matches!(answer, Committed::Done { .. }) {
            assert!(winner.is_none(), "of racing commits one is written, not two");
            winner = Some(commit);
        } else {
            assert_refused(answer, commit);
        }
    }
    winner.expect("of racing commits under the same guards one is written")
}

async fn racing_commits_of_the_same_work_leave_one_posting(case: &Case) {
    let key = case.opened().await.value.key;
    for round in 1..=20 {
        let account = case.account(key).await;
        let work = case.accepted(&[case.deposit(key, 5), case.withdrawal(key, 3)]).await;
        let commits: Vec<AccountCommit> = (0..4).map(|_| case.decided(&account, &work)).collect();
        let winner = winner(&commits, &race(case, &commits).await);
        let after = case.account(key).await.value;
        assert_eq!(after, winner.after, "the account is as the winner decided");
        let pages = case.journal(key).await;
        assert_eq!(pages.len(), round, "each round leaves one page");
        assert_eq!(pages.last(), winner.page.as_ref(), "the page is the winner's");
        assert_chain(&pages, &after);
        for finalization in &winner.finalizations {
            let outcome = case.stored(&finalization.key).await.transaction.outcome;
            assert_eq!(outcome.as_ref(), Some(&finalization.outcome), "the outcome is the winner's");
        }
    }
}

async fn racing_commits_that_overlap_leave_one_posting(case: &Case) {
    let key = case.opened().await.value.key;
    for _ in 0..10 {
        let account = case.account(key).await;
        let work = case.accepted(&[1, 20, 300].map(|cents| case.deposit(key, cents))).await;
        let commits = [case.decided(&account, &work[..2]), case.decided(&account, &work[1..])];
        let winner = winner(&commits, &race(case, &commits).await);
        assert_eq!(case.account(key).await.value, winner.after, "the account is as the winner decided");
        let left = case.in_status(key, TransactionStatus::Accepted, 10).await;
        let left: Vec<_> = left.iter().map(|stored| stored.work().expect("it is accepted")).collect();
        assert_eq!(left.len(), 1, "the work that only the loser had is still to be done");
        case.committed(&case.decided(&case.account(key).await, &left)).await;
    }
    let account = case.account(key).await.value;
    assert_eq!(account.balance.minor_units(), 3_210, "everything was posted once");
    assert_chain(&case.journal(key).await, &account);
}

async fn a_commit_that_is_sent_twice_at_once_is_written_once(case: &Case) {
    let key = case.opened().await.value.key;
    for round in 1..=10 {
        let account = case.account(key).await;
        let work = case.accepted(&[case.deposit(key, 5)]).await;
        let commit = case.decided(&account, &work);
        let answers = race(case, &vec![commit.clone(); 3]).await;
        let done = answers.iter().filter(|answer| matches!(answer, Committed::Done { .. })).count();
        assert!(done >= 1, "one of the copies was written, and knows it");
        assert_eq!(case.account(key).await.value, commit.after, "the account is as decided");
        let pages = case.journal(key).await;
        assert_eq!(pages.len(), round, "each round leaves one page");
        assert_chain(&pages, &commit.after);
    }
}

async fn several_workers_post_everything_once(case: &Case) {
    let key = case.opened().await.value.key;
    let group: Vec<NewTransaction> = (1..=60).map(|cents| case.deposit(key, cents)).collect();
    case.accepted(&group).await;
    let workers = (0..4).map(|_| {
        let case = Case::new(case.store.clone());
        async move {
            // Each round some worker gets on: this bound is far above what is needed.
            for _ in 0..2_000 {
                let log = &case.store.log;
                let page = log.by_status(key, TransactionStatus::Accepted, None, None, 7).await.unwrap();
                let work: Vec<_> = page.items.iter().filter_map(|stored| stored.work()).collect();
                if work.is_empty() && page.next.is_none() {
                    return;
                }
                let account = case.account(key).await;
                let commit = case.decided(&account, &work);
                match case.store.ledger.commit(&commit).await.unwrap() {
                    Committed::Done { .. } | Committed::Stale | Committed::AlreadyFinal(_) => {}
                }
            }
            panic!("accepted work was still listed after 2000 rounds");
        }
    });
    case.at_once(workers).await;
    let account = case.account(key).await.value;
    assert_eq!(account.balance.minor_units(), 60 * 61 / 2, "everything was posted once");
    let pages = case.journal(key).await;
    assert_chain(&pages, &account);
    let mut posted: Vec<_> = pages.iter().flat_map(|page| &page.entries).map(|one| one.message).collect();
    posted.sort_unstable();
    let mut wanted: Vec<_> = group.iter().map(|new| new.key.message).collect();
    wanted.sort_unstable();
    assert_eq!(posted, wanted, "the journal has each transaction once");
}

async fn commits_of_different_accounts_do_not_meet(case: &Case) {
    let mut commits = Vec::new();
    for cents in 1..=8 {
        let account = case.opened().await;
        let work = case.accepted(&[case.deposit(account.value.key, cents)]).await;
        commits.push(case.decided(&account, &work));
    }
    for answer in race(case, &commits).await {
        assert!(matches!(answer, Committed::Done { .. }), "nothing was in the way, but: {answer:?}");
    }
    for commit in &commits {
        assert_eq!(case.account(commit.account()).await.value, commit.after, "each account has its own");
        assert_eq!(case.journal(commit.account()).await.len(), 1, "and a journal of its own");
    }
}

async fn racing_marks_leave_one(case: &Case) {
    let new = case.deposit(case.opened().await.value.key, 5);
    case.accepted(std::slice::from_ref(&new)).await;
    for round in 0..10 {
        let revision = case.stored(&new.key).await.revision;
        let steps = (0..4).map(|racer| {
            let (ledger, key, revision) = (Arc::clone(&case.store.ledger), new.key.clone(), revision.clone());
            let marks = Marks { repairs: round * 10 + racer, ..Marks::default() };
            async move { ledger.mark(&key, &revision, marks).await.unwrap().map(|revision| (revision, marks)) }
        });
        let won: Vec<_> = case.at_once(steps).await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "of racing marks under one revision one is written");
        let stored = case.stored(&new.key).await;
        assert_eq!((stored.revision, stored.marks), won[0], "and it is the one that was told so");
    }
}

async fn of_a_mark_and_a_commit_one_wins(case: &Case) {
    let key = case.opened().await.value.key;
    for _ in 0..15 {
        let account = case.account(key).await;
        let work = case.accepted(&[case.deposit(key, 5)]).await;
        let commit = case.decided(&account, &work);
        let marks = Marks { repairs: 1, ..Marks::default() };
        let (ledger, one) = (Arc::clone(&case.store.ledger), work[0].clone());
        let marking = async move { ledger.mark(&one.key, &one.revision, marks).await.unwrap() };
        let (marked, answers) =
            futures::join!(case.at_once([marking]), race(case, std::slice::from_ref(&commit)));
        let is_marked = marked[0].is_some();
        let is_posted = matches!(answers[0], Committed::Done { .. });
        assert!(is_marked != is_posted, "either the mark or the commit finds the row as it was");
        let stored = case.stored(&work[0].key).await;
        assert_eq!(stored.transaction.status().is_final(), is_posted, "the row is as the winner left it");
        if let Some(left) = stored.work() {
            case.committed(&case.decided(&account, &[left])).await;
        }
    }
    assert_chain(&case.journal(key).await, &case.account(key).await.value);
}
