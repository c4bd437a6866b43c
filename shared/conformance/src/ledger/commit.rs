//! Tests that a commit is written atomically, once, and only if all of its guards hold.

use std::collections::BTreeSet;

use crate::case::{Case, assert_refused};
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    a_commit_posts(&case().await).await;
    a_commit_of_rejections_increases_the_version_and_writes_a_page_without_entries(&case().await).await;
    a_repeated_commit_has_no_effect(&case().await).await;
    a_stale_account_writes_nothing(&case().await).await;
    a_rejection_makes_earlier_reads_of_the_account_stale(&case().await).await;
    a_changed_transaction_writes_nothing(&case().await).await;
    a_final_transaction_writes_nothing(&case().await).await;
    a_missing_row_writes_nothing(&case().await).await;
    a_full_commit_is_written_completely(&case().await).await;
    the_revision_of_a_commit_is_the_guard_of_the_next(&case().await).await;
}

/// Accepts five deposits, and a withdrawal that exceeds the balance.
async fn mixed_work(case: &Case, account: AccountKey) -> Vec<Work> {
    let mut group: Vec<Submission> = (1..=5).map(|cents| case.deposit(account, cents)).collect();
    group.insert(2, case.withdrawal(account, 1_000_000));
    case.accepted(&group).await
}

/// Asserts that the commit is refused without any effect.
pub(super) async fn assert_writes_nothing(case: &Case, commit: &AccountCommit) -> Committed {
    let before = case.all_rows(commit.account()).await;
    let answer = case.store.ledger.commit(commit).await.unwrap();
    assert_refused(&answer, commit);
    let after = case.all_rows(commit.account()).await;
    assert_eq!(after, before, "a commit whose guards do not hold writes nothing");
    answer
}

async fn assert_written(case: &Case, commit: &AccountCommit) {
    assert_eq!(case.account(commit.account()).await.value, commit.after, "the decided account is stored");
    for finalization in commit.stored() {
        let stored = case.stored(&finalization.pending.submission.key).await;
        assert_eq!(stored.outcome.as_ref(), Some(&finalization.outcome), "the decided outcome is stored");
        assert_eq!(stored.delivered, finalization.pending.delivered, "the delivery is stored");
        assert!(stored.submission.origin.request_id.is_some(), "the request is kept");
        assert_ne!(Some(&stored.revision), finalization.revision(), "a written row has a new revision");
        assert_eq!(stored.work(), None, "a final transaction has no work");
    }
}

async fn a_commit_posts(case: &Case) {
    let account = case.opened().await;
    let key = account.value.key;
    let work = mixed_work(case, key).await;
    let commit = case.decided(&account, &work);
    let before = case.stored(&work[0].submission.key).await;
    case.committed(&commit).await;
    assert_written(case, &commit).await;
    assert_eq!(case.journal(key).await, std::slice::from_ref(&commit.page), "one commit is one page");
    assert_eq!(case.journal(key).await[0].entries.len(), 5, "the page contains posted transactions only");
    assert_ne!(case.account(key).await.revision, account.revision, "the account has a new revision");
    assert!(case.in_status(key, TransactionStatus::Accepted, 10).await.is_empty(), "no transaction is left");
    let stored = case.stored(&work[0].submission.key).await;
    assert_eq!(stored.fingerprint, before.fingerprint, "posting keeps the fingerprint");
    assert_eq!(stored.submission.instruction, before.submission.instruction, "posting keeps the content");
    assert_eq!(
        stored.submission.accepted_at, before.submission.accepted_at,
        "posting keeps the acceptance time"
    );
}

async fn a_commit_of_rejections_increases_the_version_and_writes_a_page_without_entries(case: &Case) {
    let account = case.opened().await;
    let key = account.value.key;
    let group = RejectReason::ALL.map(|_| case.deposit(key, 1));
    let mut commit = case.discarded(&account, &case.accepted(&group).await);
    let page = commit.page.clone();
    let mut decided = page.decided;
    for ((finalization, decided), reason) in
        commit.decided.iter_mut().zip(&mut decided).zip(RejectReason::ALL)
    {
        let Decided::Rejected(rejection) = decided else { panic!("{decided:?}") };
        (rejection.reason, rejection.rejected_at) = (reason, case.world.now());
        let (rejected_at, version) = (rejection.rejected_at, Some(page.version));
        finalization.outcome = Outcome::Rejected { reason, rejected_at, version };
    }
    let place = (page.previous_hash, page.nonce);
    let page = JournalPage::seal(&commit.after, Vec::new(), decided, place);
    commit.after.head = page.hash;
    commit.page = page;
    case.committed(&commit).await;
    assert_written(case, &commit).await;
    let after = case.account(key).await;
    assert_eq!(after.value.version, account.value.version + 1, "a rejection increases the version");
    assert_ne!(after.revision, account.revision, "a rejection has a new revision");
    assert_eq!(after.value.balance, account.value.balance, "a rejection keeps the balance");
    assert!(case.journal(key).await.is_empty(), "a rejection writes no page with entries");
    case.assert_chain(&after.value).await;
    // Later postings are not affected.
    let next = case.settled(&[case.deposit(key, 7)]).await;
    case.assert_chain(&next.after).await;
}

async fn a_repeated_commit_has_no_effect(case: &Case) {
    let key = case.opened().await.value.key;
    case.settled(&[case.deposit(key, 1)]).await;
    let posting = case.settled(&[case.deposit(key, 2), case.deposit(key, 3)]).await;
    assert_repetition_has_no_effect(case, &posting).await;
    let rejection = case.settled(&[case.withdrawal(key, 1_000)]).await;
    assert_repetition_has_no_effect(case, &rejection).await;
    // A repetition after other commits.
    case.settled(&[case.deposit(key, 4)]).await;
    assert_repetition_has_no_effect(case, &posting).await;
    assert_repetition_has_no_effect(case, &rejection).await;
}

/// Repeats a commit, as after a lost response. The adapter may recognise it by its nonce; it has no effect.
pub(super) async fn assert_repetition_has_no_effect(case: &Case, commit: &AccountCommit) {
    for _ in 0..2 {
        let before = case.all_rows(commit.account()).await;
        let answer = case.store.ledger.commit(commit).await.unwrap();
        assert_eq!(case.all_rows(commit.account()).await, before, "a repeated commit has no effect");
        match &answer {
            Committed::Done { revision: Some(revision) } => {
                let current = case.account(commit.account()).await.revision;
                assert_eq!(*revision, current, "the revision of a repeated commit is the current one");
            }
            Committed::Done { revision: None } => {}
            Committed::Stale | Committed::RowsChanged(_) | Committed::Taken(_) | Committed::Early => {
                assert_refused(&answer, commit);
            }
        }
    }
}

async fn a_stale_account_writes_nothing(case: &Case) {
    let old = case.opened().await;
    let work = mixed_work(case, old.value.key).await;
    case.settled(&[case.deposit(old.value.key, 50)]).await;
    let stale = case.decided(&old, &work);
    let answer = assert_writes_nothing(case, &stale).await;
    assert_eq!(answer, Committed::Stale, "only the guard of the account fails");
    // A commit with the right account state but an old guard is refused as well.
    let current = case.account(old.value.key).await;
    let forged = Versioned { value: current.value.clone(), revision: old.revision };
    let answer = assert_writes_nothing(case, &case.decided(&forged, &work)).await;
    assert_eq!(answer, Committed::Stale, "only the guard of the account fails");
    case.committed(&case.decided(&current, &work)).await;
}

async fn a_rejection_makes_earlier_reads_of_the_account_stale(case: &Case) {
    let old = case.opened().await;
    let work = mixed_work(case, old.value.key).await;
    case.settled(&[case.withdrawal(old.value.key, 50)]).await;
    let answer = assert_writes_nothing(case, &case.decided(&old, &work)).await;
    assert_eq!(answer, Committed::Stale, "a rejection changes the version of the account");
}

async fn a_changed_transaction_writes_nothing(case: &Case) {
    let account = case.opened().await;
    let work = mixed_work(case, account.value.key).await;
    for changed in &work {
        // Each of the six transactions in turn, including the rejected one.
        let current = case.stored(&changed.submission.key).await;
        let marks = Marks { repairs: current.marks.repairs + 1, ..current.marks };
        let marked = case.store.ledger.mark(&changed.submission.key, &current.revision, marks).await.unwrap();
        let marked = marked.expect("the transaction is accepted and unchanged");
        let others: Vec<Work> =
            work.iter().filter(|one| one.submission.key != changed.submission.key).cloned().collect();
        let mut batch = case.refreshed(&others).await;
        batch.push(changed.clone());
        let answer = assert_writes_nothing(case, &case.decided(&account, &batch)).await;
        let names_it = answer == Committed::RowsChanged(vec![changed.submission.key.clone()]);
        assert!(names_it || answer == Committed::Stale, "only this transaction changed: {answer:?}");
        assert_eq!(case.stored(&changed.submission.key).await.revision, marked, "the mark is kept");
    }
    case.committed(&case.decided(&account, &case.refreshed(&work).await)).await;
}

async fn a_final_transaction_writes_nothing(case: &Case) {
    let account = case.opened().await;
    let key = account.value.key;
    let work = mixed_work(case, key).await;
    // Posts one transaction and rejects one.
    case.committed(&case.decided(&account, &work[1..=2])).await;
    let current = case.account(key).await;
    for batch in [&work[0..=1], &work[2..=4], &work[..]] {
        let commit = case.decided(&current, batch);
        if let Committed::RowsChanged(keys) = assert_writes_nothing(case, &commit).await {
            let finals = batch.iter().filter(|one| {
                one.submission.key == work[1].submission.key || one.submission.key == work[2].submission.key
            });
            let finals: BTreeSet<_> = finals.map(|one| one.submission.key.clone()).collect();
            let keys: BTreeSet<_> = keys.into_iter().collect();
            assert!(keys.is_subset(&finals), "RowsChanged contains only changed transactions: {keys:?}");
        }
    }
    let open: Vec<Work> = [0, 3, 4, 5].map(|index: usize| work[index].clone()).to_vec();
    case.committed(&case.decided(&current, &open)).await;
}

async fn a_missing_row_writes_nothing(case: &Case) {
    let account = case.opened().await;
    let key = account.value.key;
    let work = mixed_work(case, key).await;
    let mut batch = work.clone();
    // A key that was never accepted, with the revision of another row.
    batch[3].submission.key = case.deposit(key, 1).key;
    let answer = assert_writes_nothing(case, &case.decided(&account, &batch)).await;
    let names_it = answer == Committed::RowsChanged(vec![batch[3].submission.key.clone()]);
    assert!(names_it || answer == Committed::Stale, "only this transaction is missing: {answer:?}");
    let missing = case.store.ledger.transaction(&batch[3].submission.key).await.unwrap();
    assert_eq!(missing, None, "a commit does not create a transaction");

    // An account that was never opened, with the revision of another one.
    let nowhere = case.account_key();
    let work = mixed_work(case, nowhere).await;
    let mut unopened = account.clone();
    unopened.value.key = nowhere;
    let answer = assert_writes_nothing(case, &case.decided(&unopened, &work)).await;
    assert_eq!(answer, Committed::Stale, "no transaction is final");
    let missing = case.store.ledger.account(nowhere).await.unwrap();
    assert_eq!(missing, None, "a commit does not open an account");
}

async fn a_full_commit_is_written_completely(case: &Case) {
    let key = case.opened().await.value.key;
    for _ in 0..2 {
        let group: Vec<Submission> = (0..PAGE_ENTRIES_MAX).map(|_| case.deposit(key, 10)).collect();
        let commit = case.settled(&group).await;
        assert_written(case, &commit).await;
        assert_eq!(case.journal(key).await.last(), Some(&commit.page), "all entries are on one page");
        case.assert_chain(&commit.after).await;
    }
}

async fn the_revision_of_a_commit_is_the_guard_of_the_next(case: &Case) {
    let mut account = case.opened().await;
    let key = account.value.key;
    for round in 0..6 {
        // A rejection between postings changes the revision as well.
        let new = if round == 3 { case.withdrawal(key, 1_000) } else { case.deposit(key, 1) };
        let commit = case.decided(&account, &case.accepted(&[new]).await);
        let answer = case.store.ledger.commit(&commit).await.unwrap();
        let Committed::Done { revision } = answer else {
            panic!("all guards hold, but the result was {answer:?}")
        };
        let current = case.account(key).await;
        if let Some(revision) = &revision {
            assert_eq!(*revision, current.revision, "a commit returns the revision of the account row");
        }
        account = Versioned { value: commit.after, revision: revision.unwrap_or(current.revision) };
    }
    case.assert_chain(&account.value).await;
}

impl Case {
    /// Returns the same work with the current revisions of its rows.
    async fn refreshed(&self, work: &[Work]) -> Vec<Work> {
        let mut fresh = Vec::new();
        for one in work {
            fresh.push(self.stored(&one.submission.key).await.work().expect("the transaction is not final"));
        }
        fresh
    }
}
