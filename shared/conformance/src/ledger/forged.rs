//! Tests of invalid revisions. Work from a queue contains revisions, and other programs may be able to write to it.

use super::commit::assert_writes_nothing;
use crate::case::{Case, forged_revisions};
use postonce_shared::testing::prelude::*;

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    accepted_work_under_a_forged_revision_is_stale(&case().await).await;
    posted_work_under_a_forged_revision_is_not_posted_again(&case().await).await;
    a_forged_guard_of_the_account_is_stale(&case().await).await;
    a_mark_under_a_forged_revision_is_refused(&case().await).await;
}

async fn accepted_work_under_a_forged_revision_is_stale(case: &Case) {
    let account = case.opened().await;
    let key = account.value.key;
    let work = case.accepted(&[case.deposit(key, 1), case.deposit(key, 2)]).await;
    for revision in forged_revisions() {
        // Alone, and after work that could be posted.
        let forged = Work { row: revision, ..work[1].clone() };
        for work in [vec![forged.clone()], vec![work[0].clone(), forged]] {
            let answer = assert_writes_nothing(case, &case.decided(&account, &work)).await;
            assert_eq!(answer, Committed::Stale, "{:?} is not a revision", work[0].row);
        }
    }
    case.committed(&case.decided(&account, &work)).await;
}

async fn posted_work_under_a_forged_revision_is_not_posted_again(case: &Case) {
    let key = case.opened().await.value.key;
    let group = [case.deposit(key, 5)];
    let work = case.accepted(&group).await.remove(0);
    case.committed(&case.decided(&case.account(key).await, std::slice::from_ref(&work))).await;
    let account = case.account(key).await;
    // The revision with which its final row is read is not valid for a commit either.
    let read = case.store.ledger.transaction(&work.submission.key).await.unwrap().unwrap().revision;
    for revision in forged_revisions().into_iter().chain([read]) {
        let again = case.decided(&account, &[Work { row: revision, ..work.clone() }]);
        let answer = assert_writes_nothing(case, &again).await;
        assert!(!matches!(answer, Committed::Done { .. }), "the transaction is posted once");
    }
    assert_eq!(case.account(key).await, account, "the transaction is posted once");
}

async fn a_forged_guard_of_the_account_is_stale(case: &Case) {
    let account = case.opened().await;
    let work = case.accepted(&[case.deposit(account.value.key, 5)]).await;
    for revision in forged_revisions() {
        let forged = Versioned { value: account.value.clone(), revision };
        for commit in [case.decided(&forged, &work), case.discarded(&forged, &work)] {
            let answer = assert_writes_nothing(case, &commit).await;
            assert_eq!(answer, Committed::Stale, "{:?} is not a revision", commit.guard);
        }
    }
    case.committed(&case.decided(&account, &work)).await;
}

async fn a_mark_under_a_forged_revision_is_refused(case: &Case) {
    let key = case.opened().await.value.key;
    let posted = case.settled(&[case.deposit(key, 5)]).await.decided[0].key().clone();
    let accepted = case.accepted(&[case.deposit(key, 5)]).await.remove(0).submission.key;
    let before = case.all_rows(key).await;
    let marks = Marks { dead_letter: true, ..Marks::default() };
    for revision in forged_revisions() {
        for key in [&accepted, &posted] {
            let answer = case.store.ledger.mark(key, &revision, marks).await.unwrap();
            assert_eq!(answer, None, "{revision:?} is not a revision");
        }
    }
    assert_eq!(case.all_rows(key).await, before, "a refused mark has no effect");
}
