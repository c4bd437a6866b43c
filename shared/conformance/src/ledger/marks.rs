//! Tests of marks: notes on accepted transactions, written under their revisions.

use crate::case::{Case, assert_refused, moment};
use postonce_shared::testing::prelude::*;

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    a_mark_is_stored_and_changes_the_revision(&case().await).await;
    a_mark_under_an_old_revision_is_refused(&case().await).await;
    a_mark_makes_earlier_work_stale(&case().await).await;
    a_final_transaction_cannot_be_marked(&case().await).await;
    an_unknown_transaction_cannot_be_marked(&case().await).await;
}

const MARKED: Marks = Marks { dead_letter: true, repairs: 3, repaired_at: None };

async fn mark(case: &Case, key: &TransactionKey, revision: &Revision, marks: Marks) -> Option<Revision> {
    case.store.ledger.mark(key, revision, marks).await.unwrap()
}

async fn a_mark_is_stored_and_changes_the_revision(case: &Case) {
    let new = case.deposit(case.opened().await.value.key, 5);
    case.accepted(std::slice::from_ref(&new)).await;
    let all = [
        MARKED,
        Marks { dead_letter: false, repairs: u32::MAX, repaired_at: Some(moment(0)) },
        Marks::default(),
        // The same marks again: the row is written nevertheless.
        Marks::default(),
    ];
    for marks in all {
        let before = case.stored(&new.key).await;
        let revision = mark(case, &new.key, &before.revision, marks).await;
        let revision = revision.expect("an accepted transaction can be marked under its revision");
        assert_ne!(revision, before.revision, "a mark changes the revision");
        let expected = StoredTransaction { marks, revision, ..before };
        assert_eq!(case.stored(&new.key).await, expected, "a mark replaces the marks and nothing else");
    }
}

async fn a_mark_under_an_old_revision_is_refused(case: &Case) {
    let new = case.deposit(case.opened().await.value.key, 5);
    let first = case.accepted(std::slice::from_ref(&new)).await.remove(0).row;
    let second = mark(case, &new.key, &first, MARKED).await.expect("the revision is current");
    // Back to the original marks: the row still has another revision.
    let third = mark(case, &new.key, &second, Marks::default()).await.expect("the revision is current");
    let before = case.stored(&new.key).await;
    for old in [&first, &second] {
        assert_eq!(mark(case, &new.key, old, MARKED).await, None, "an old revision is refused");
    }
    assert_eq!(case.stored(&new.key).await, before, "a refused mark has no effect");
    assert_eq!(before.revision, third, "the row has the revision of the last mark");
}

async fn a_mark_makes_earlier_work_stale(case: &Case) {
    let account = case.opened().await;
    let new = case.deposit(account.value.key, 5);
    let work = case.accepted(std::slice::from_ref(&new)).await;
    let marked = mark(case, &new.key, &work[0].row, MARKED).await;
    mark(case, &new.key, &marked.unwrap(), Marks::default()).await.expect("the revision is current");
    let before = case.all_rows(account.value.key).await;
    let commit = case.decided(&account, &work);
    assert_refused(&case.store.ledger.commit(&commit).await.unwrap(), &commit);
    let after = case.all_rows(account.value.key).await;
    assert_eq!(after, before, "a commit with the revision before the mark writes nothing");
    let fresh = case.stored(&new.key).await.work().expect("the transaction is accepted");
    case.committed(&case.decided(&account, &[fresh])).await;
}

async fn a_final_transaction_cannot_be_marked(case: &Case) {
    let account = case.opened().await.value.key;
    let group = [case.deposit(account, 5), case.withdrawal(account, 500)];
    let commit = case.settled(&group).await;
    let before = case.all_rows(account).await;
    for finalization in commit.stored() {
        let current = case.stored(&finalization.pending.submission.key).await.revision;
        for revision in [finalization.revision().unwrap(), &current] {
            let answer = mark(case, &finalization.pending.submission.key, revision, MARKED).await;
            assert_eq!(answer, None, "a final transaction cannot be marked");
        }
    }
    assert_eq!(case.all_rows(account).await, before, "a refused mark has no effect");
}

async fn an_unknown_transaction_cannot_be_marked(case: &Case) {
    let account = case.opened().await.value.key;
    let real = case.accepted(&[case.deposit(account, 5)]).await.remove(0);
    let never = case.deposit(account, 5).key;
    assert_eq!(mark(case, &never, &real.row, MARKED).await, None, "the transaction does not exist");
    let missing = case.store.ledger.transaction(&never).await.unwrap();
    assert_eq!(missing, None, "a mark does not create a transaction");
}
