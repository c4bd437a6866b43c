//! Tests of commits that insert transactions as final: the insert is the idempotency check of the same atomic step.

use crate::case::{Case, partner};
use crate::ledger::commit::{assert_repetition_has_no_effect, assert_writes_nothing};
use postonce_shared::domain::decision::{
    AccountCommit, Submission, UnknownAccountCommit, Work, reject_unknown,
};
use postonce_shared::testing::prelude::*;

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    inserted_transactions_are_final(&case().await).await;
    an_inserted_key_is_found_by_a_later_accept(&case().await).await;
    a_taken_key_writes_nothing(&case().await).await;
    all_taken_keys_of_a_commit_can_be_found(&case().await).await;
    a_repeated_commit_inserts_nothing_again(&case().await).await;
    a_commit_finalizes_and_inserts_in_one_step(&case().await).await;
    a_guard_that_fails_inserts_nothing(&case().await).await;
    a_full_commit_of_insertions_is_written_completely(&case().await).await;
    partners_do_not_take_keys_of_each_other(&case().await).await;
    concurrent_commits_insert_a_key_once(&case().await).await;
    accept_and_commit_insert_a_key_once(&case().await).await;
    a_commit_comes_after_accepted_transactions(&case().await).await;
    rejections_of_an_unknown_account_are_inserted(&case().await).await;
}

pub(super) async fn assert_written(case: &Case, commit: &AccountCommit) {
    let key = commit.account();
    assert_eq!(case.account(key).await.value, commit.after, "the decided account is stored");
    assert_eq!(case.journal(key).await.last(), Some(&commit.page), "the page is stored");
    for insertion in commit.inserted() {
        let stored = case.stored(&insertion.pending.submission.key).await;
        assert_eq!(stored.outcome.as_ref(), Some(&insertion.outcome), "the outcome is stored");
        assert_eq!(
            stored.submission.instruction, insertion.pending.submission.instruction,
            "the instruction is stored"
        );
        assert_eq!(
            stored.submission.accepted_at, insertion.pending.submission.accepted_at,
            "the time of the request is stored"
        );
        assert_eq!(
            stored.fingerprint,
            insertion.pending.submission.instruction.fingerprint(),
            "the fingerprint is stored"
        );
        assert_eq!(
            stored.submission.batch_line, insertion.pending.submission.batch_line,
            "the line of its batch is stored"
        );
        assert_eq!(
            (&stored.submission.origin.request_id, stored.delivered),
            (&insertion.pending.submission.origin.request_id, None),
            "the request is stored"
        );
        assert_eq!(stored.work(), None, "a final transaction has no work");
        let listed = case.in_status(key, insertion.outcome.status(), 7).await;
        assert!(listed.contains(&stored), "the transaction is listed under its status");
    }
    assert!(case.in_status(key, TransactionStatus::Accepted, 10).await.is_empty(), "nothing is left to post");
}

async fn inserted_transactions_are_final(case: &Case) {
    let account = case.opened().await;
    let key = account.value.key;
    // The third one is rejected.
    let group =
        [case.deposit(key, 700), case.withdrawal(key, 200), case.withdrawal(key, 501), case.deposit(key, 1)];
    let commit = case.decided_with_new(&account, &[], &group);
    let answer = case.store.ledger.commit(&commit).await.unwrap();
    let Committed::Done { revision } = answer else {
        panic!("all guards hold, but the result was {answer:?}")
    };
    assert_written(case, &commit).await;
    assert_eq!(commit.after.balance.minor_units(), 501);
    let current = case.account(key).await;
    if let Some(revision) = revision {
        assert_eq!(revision, current.revision, "a commit returns the revision of the account row");
    }
    // Rejections only: no page.
    let rejected = case.decided_with_new(&current, &[], &[case.withdrawal(key, 10_000)]);
    case.committed(&rejected).await;
    assert_eq!(case.account(key).await.value, rejected.after, "a rejection increases the version");
    case.assert_chain(&rejected.after).await;
    let next = case.settled(&[case.deposit(key, 3)]).await;
    case.assert_chain(&next.after).await;
}

async fn an_inserted_key_is_found_by_a_later_accept(case: &Case) {
    let key = case.opened().await.value.key;
    let (posted, rejected) = (case.deposit(key, 5), case.withdrawal(key, 500));
    let group = [posted, rejected];
    let commit = case.inserted(&group).await;
    for first in group {
        // An accept with the nonce of the commit is no repetition of it.
        for nonce in [case.world.nonce(), commit.nonce] {
            let outcomes = case.store.ledger.accept(std::slice::from_ref(&first), nonce).await.unwrap();
            let [AcceptOutcome::Existing(stored)] = outcomes.as_slice() else {
                panic!("the key is taken, but the result was {outcomes:?}")
            };
            assert!(first.instruction.matches(&stored.fingerprint), "the content can be compared");
            assert!(stored.status().is_final(), "the outcome is returned");
        }
    }
}

async fn a_taken_key_writes_nothing(case: &Case) {
    let account = case.opened().await;
    let key = account.value.key;
    let (accepted, posted, rejected) =
        (case.deposit(key, 1), case.deposit(key, 2), case.withdrawal(key, 900));
    let _work = case.accepted(std::slice::from_ref(&accepted)).await;
    case.inserted(&[posted.clone(), rejected.clone()]).await;
    let current = case.account(key).await;
    for taken in [accepted, posted, rejected] {
        let mut other = taken.clone();
        other.instruction = case.deposit(key, 77).instruction;
        for taken in [taken, other] {
            let free = [case.deposit(key, 10), case.deposit(key, 20)];
            for place in 0..3 {
                let mut group = free.to_vec();
                group.insert(place, taken.clone());
                let answer = assert_writes_nothing(case, &case.decided_with_new(&current, &[], &group)).await;
                assert_eq!(answer, Committed::Taken(vec![taken.key.clone()]), "the taken key is named");
            }
        }
    }
    case.committed(&case.decided_with_new(&current, &[], &[case.deposit(key, 10)])).await;
}

async fn all_taken_keys_of_a_commit_can_be_found(case: &Case) {
    let key = case.opened().await.value.key;
    let old: Vec<Submission> = (1..=30).map(|cents| case.deposit(key, cents)).collect();
    case.inserted(&old).await;
    let mut group: Vec<Submission> = (1..=30).map(|cents| case.deposit(key, cents)).collect();
    for (index, taken) in old.iter().enumerate() {
        group.insert(2 * index, taken.clone());
    }
    let account = case.account(key).await;
    // An adapter may name some of the taken keys at a time; without them, the rest is written at last.
    for _ in 0..old.len() {
        let commit = case.decided_with_new(&account, &[], &group);
        let Committed::Taken(keys) = assert_writes_nothing(case, &commit).await else {
            panic!("the account did not change")
        };
        assert!(keys.iter().all(|key| old.iter().any(|one| one.key == *key)), "only taken keys are named");
        group.retain(|new| !keys.contains(&new.key));
        if group.len() == 30 {
            break;
        }
    }
    let commit = case.decided_with_new(&account, &[], &group);
    case.committed(&commit).await;
    assert_written(case, &commit).await;
}

async fn a_repeated_commit_inserts_nothing_again(case: &Case) {
    let key = case.opened().await.value.key;
    let posting = case.inserted(&[case.deposit(key, 2), case.withdrawal(key, 100)]).await;
    assert_repetition_has_no_effect(case, &posting).await;
    let rejection = case.inserted(&[case.withdrawal(key, 1_000)]).await;
    assert_repetition_has_no_effect(case, &rejection).await;
    let account = case.account(key).await;
    let work = case.accepted(&[case.deposit(key, 4)]).await;
    let mixed = case.decided_with_new(&account, &work, &[case.deposit(key, 5)]);
    case.committed(&mixed).await;
    assert_repetition_has_no_effect(case, &mixed).await;
    // A repetition after another commit.
    case.settled(&[case.deposit(key, 6)]).await;
    for earlier in [&posting, &rejection, &mixed] {
        assert_repetition_has_no_effect(case, earlier).await;
    }
}

async fn a_commit_finalizes_and_inserts_in_one_step(case: &Case) {
    let account = case.opened().await;
    let key = account.value.key;
    let work: Vec<Work> = case.accepted(&[case.deposit(key, 100), case.withdrawal(key, 500)]).await;
    // The withdrawal is covered by the deposit that was accepted before it.
    let commit = case.decided_with_new(&account, &work, &[case.withdrawal(key, 100), case.deposit(key, 9)]);
    assert_eq!(commit.page.entries.len(), 3);
    case.committed(&commit).await;
    assert_written(case, &commit).await;
    for finalization in commit.stored() {
        let stored = case.stored(&finalization.pending.submission.key).await;
        assert_eq!(stored.outcome.as_ref(), Some(&finalization.outcome), "the outcome is stored");
    }
    case.assert_chain(&commit.after).await;
}

async fn a_guard_that_fails_inserts_nothing(case: &Case) {
    let old = case.opened().await;
    let key = old.value.key;
    let work = case.accepted(&[case.deposit(key, 1), case.deposit(key, 2)]).await;
    case.committed(&case.decided(&old, &work[..1])).await;
    let current = case.account(key).await;
    let new = [case.deposit(key, 3)];
    let answer = assert_writes_nothing(case, &case.decided_with_new(&old, &[], &new)).await;
    assert_eq!(answer, Committed::Stale, "only the guard of the account fails");
    // A final row among the finalizations.
    let answer = assert_writes_nothing(case, &case.decided_with_new(&current, &work, &new)).await;
    assert!(!matches!(answer, Committed::Taken(_)), "no key of an insertion is taken");
    // A finalization that is possible, and a taken key.
    let taken = case.inserted(&[case.deposit(key, 5)]).await;
    let (current, accepted) = (case.account(key).await, &work[1..]);
    let again =
        Submission { key: taken.inserted()[0].pending.submission.key.clone(), ..case.deposit(key, 5) };
    let answer = assert_writes_nothing(case, &case.decided_with_new(&current, accepted, &[again])).await;
    assert_eq!(
        answer,
        Committed::Taken(vec![taken.inserted()[0].pending.submission.key.clone()]),
        "the taken key is named"
    );
    assert_eq!(case.store.ledger.transaction(&new[0].key).await.unwrap(), None, "no row was inserted");

    // An account that was never opened, with the revision of another one.
    let nowhere = case.account_key();
    let mut unopened = current.clone();
    unopened.value.key = nowhere;
    let new = case.deposit(nowhere, 1);
    let commit = case.decided_with_new(&unopened, &[], std::slice::from_ref(&new));
    let answer = assert_writes_nothing(case, &commit).await;
    assert_eq!(answer, Committed::Stale, "the account does not exist");
    assert_eq!(case.store.ledger.transaction(&new.key).await.unwrap(), None, "no row was inserted");
}

async fn a_full_commit_of_insertions_is_written_completely(case: &Case) {
    let key = case.opened().await.value.key;
    let group: Vec<Submission> = (0..PAGE_ENTRIES_MAX).map(|_| case.deposit(key, 10)).collect();
    let commit = case.inserted(&group).await;
    assert_written(case, &commit).await;
    // The last of them is taken.
    let mut next: Vec<Submission> = (1..PAGE_ENTRIES_MAX).map(|_| case.deposit(key, 10)).collect();
    next.push(group[PAGE_ENTRIES_MAX - 1].clone());
    let account = case.account(key).await;
    let answer = assert_writes_nothing(case, &case.decided_with_new(&account, &[], &next)).await;
    assert_eq!(
        answer,
        Committed::Taken(vec![next[PAGE_ENTRIES_MAX - 1].key.clone()]),
        "the taken key is named"
    );
}

async fn partners_do_not_take_keys_of_each_other(case: &Case) {
    let key = case.opened().await.value.key;
    let first = case.deposit(key, 10);
    case.inserted(std::slice::from_ref(&first)).await;
    let mut other = first.clone();
    other.key.partner = partner("othershop");
    let commit = case.inserted(&[other]).await;
    assert_written(case, &commit).await;
    assert_eq!(commit.after.balance.minor_units(), 20);
}

async fn concurrent_commits_insert_a_key_once(case: &Case) {
    let key = case.opened().await.value.key;
    let new = case.deposit(key, 7);
    let attempts = (0..6).map(|_| {
        let (case, new) = (Case::new(case.store.clone()), new.clone());
        async move {
            for _ in 0..100 {
                let account = case.account(key).await;
                let commit = case.decided_with_new(&account, &[], std::slice::from_ref(&new));
                match case.store.ledger.commit(&commit).await.unwrap() {
                    Committed::Done { .. } => return true,
                    Committed::Taken(keys) => {
                        assert_eq!(keys, std::slice::from_ref(&new.key));
                        return false;
                    }
                    Committed::Stale => {}
                    Committed::RowsChanged(_) | Committed::Early => {
                        panic!("nothing is finalized, and no order is required")
                    }
                }
            }
            panic!("neither done nor taken after 100 attempts");
        }
    });
    let done = case.concurrently(attempts).await.into_iter().filter(|done| *done).count();
    assert_eq!(done, 1, "one commit inserts the key");
    let account = case.account(key).await.value;
    assert_eq!(account.balance.minor_units(), 7, "the transaction is posted once");
    case.assert_chain(&account).await;
}

async fn accept_and_commit_insert_a_key_once(case: &Case) {
    for _ in 0..8 {
        let account = case.opened().await;
        let key = account.value.key;
        let new = case.deposit(key, 7);
        let (commit, ledger) =
            (case.decided_with_new(&account, &[], std::slice::from_ref(&new)), &case.store.ledger);
        let group = [new.clone()];
        let (committed, accepted) =
            futures::join!(ledger.commit(&commit), ledger.accept(&group, case.world.nonce()));
        let (committed, accepted) = (committed.unwrap(), accepted.unwrap());
        let is_inserted = matches!(accepted.as_slice(), [AcceptOutcome::Inserted { .. }]);
        match committed {
            Committed::Done { .. } => assert!(!is_inserted, "the key is inserted twice"),
            Committed::Taken(_) => assert!(is_inserted, "the key is taken by nothing"),
            Committed::Stale | Committed::RowsChanged(_) | Committed::Early => {
                panic!("{committed:?} of an unchanged account")
            }
        }
        let expected = if is_inserted { TransactionStatus::Accepted } else { TransactionStatus::Posted };
        assert_eq!(case.stored(&new.key).await.status(), expected);
        case.assert_chain(&case.account(key).await.value).await;
    }
}

async fn a_commit_comes_after_accepted_transactions(case: &Case) {
    let ledger = &case.store.ledger;
    let account = case.opened().await;
    let key = account.value.key;
    let accepted = case.deposit(key, 100);
    let work = case.accepted(std::slice::from_ref(&accepted)).await;
    let after_accepted = |account: &Versioned<Account>, new: &[Submission]| AccountCommit {
        after_accepted: true,
        ..case.decided_with_new(account, &[], new)
    };
    let early = after_accepted(&account, &[case.deposit(key, 1)]);
    if !ledger.checks_order() {
        case.committed(&early).await;
        return;
    }
    assert_eq!(assert_writes_nothing(case, &early).await, Committed::Early, "a transaction is accepted");
    // The order is not required of other commits, and other accounts do not count.
    case.inserted(&[case.deposit(key, 1)]).await;
    let other = case.opened().await;
    case.committed(&after_accepted(&other, &[case.deposit(other.value.key, 1)])).await;
    // Dead letters are left to an operator.
    let marks = Marks { dead_letter: true, ..Marks::default() };
    let marked = ledger.mark(&accepted.key, &work[0].row, marks).await.unwrap();
    let marked = marked.expect("the transaction is accepted and unchanged");
    case.committed(&after_accepted(&case.account(key).await, &[case.deposit(key, 1)])).await;
    let again = ledger.mark(&accepted.key, &marked, Marks::default()).await.unwrap();
    assert!(again.is_some(), "the transaction is accepted and unchanged");
    let early = after_accepted(&case.account(key).await, &[case.deposit(key, 1)]);
    assert_eq!(assert_writes_nothing(case, &early).await, Committed::Early, "it was put back");
    // A final transaction does not count; a repetition of the commit has no effect, whatever was accepted since.
    let work = case.stored(&accepted.key).await.work().expect("the transaction is not final");
    case.committed(&case.decided(&case.account(key).await, &[work])).await;
    let commit = after_accepted(&case.account(key).await, &[case.deposit(key, 1)]);
    case.committed(&commit).await;
    let _work = case.accepted(&[case.deposit(key, 1)]).await;
    assert_repetition_has_no_effect(case, &commit).await;
}

async fn rejections_of_an_unknown_account_are_inserted(case: &Case) {
    let key = case.account_key();
    let rejected =
        |new: &[Submission]| reject_unknown(key, case.new_work(new), (case.world.nonce(), case.world.now()));
    let reject =
        async |commit: UnknownAccountCommit| case.store.ledger.reject_unknown(&commit).await.unwrap();
    let first = rejected(&[case.deposit(key, 5), case.withdrawal(key, 6), case.deposit(key, 7)]);
    let done = Committed::Done { revision: None };
    for is_repetition in [false, true] {
        let answer = reject(first.clone()).await;
        let is_taken = matches!(answer, Committed::Taken(_));
        assert!(answer == done || is_repetition && is_taken, "{answer:?}");
        for rejected in &first.decided {
            let stored = case.stored(rejected.key()).await;
            assert_eq!(stored.outcome.as_ref(), Some(&rejected.outcome));
            assert_eq!(
                (stored.submission.batch_line, stored.work()),
                (rejected.submission().batch_line, None)
            );
        }
    }
    assert!(case.store.ledger.account(key).await.unwrap().is_none(), "no account is opened");
    let mut group = vec![case.deposit(key, 8), case.deposit(key, 9)];
    let free: Vec<_> = group.iter().map(|new| new.key.clone()).collect();
    let taken = first.decided.first().unwrap().submission();
    group.insert(1, Submission { key: taken.key.clone(), ..case.deposit(key, 5) });
    assert_eq!(reject(rejected(&group)).await, Committed::Taken(vec![taken.key.clone()]));
    for free in &free {
        assert_eq!(case.store.ledger.transaction(free).await.unwrap(), None, "nothing is written");
    }
    let full: Vec<_> = (1..=i64::try_from(PAGE_ENTRIES_MAX).unwrap()).map(|n| case.deposit(key, n)).collect();
    assert_eq!(reject(rejected(&full)).await, done);
    // Accepted later, they are replays.
    let repeated = Submission { key: taken.key.clone(), ..case.deposit(key, 5) };
    let outcomes = case.store.ledger.accept(&[repeated], case.world.nonce()).await.unwrap();
    assert!(matches!(outcomes.as_slice(), [AcceptOutcome::Existing(_)]));
}
