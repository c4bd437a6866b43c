//! Tests that a key is stored at most once, and that later calls return the stored transaction.

use std::sync::Arc;

use crate::case::{Case, partner};
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    accepts_a_key_once(&case().await).await;
    returns_the_outcomes_of_a_mixed_group_in_order(&case().await).await;
    accepts_a_group_of_one_hundred(&case().await).await;
    a_group_may_have_several_accounts_if_the_ledger_allows_it(&case().await).await;
    keys_that_differ_in_one_part_are_different(&case().await).await;
    a_repeated_attempt_has_no_effect(&case().await).await;
    a_final_transaction_is_returned_with_its_outcome(&case().await).await;
    one_of_concurrent_accepts_stores_the_key(&case().await).await;
    concurrent_groups_that_overlap_store_each_key_once(&case().await).await;
}

async fn accept_one(case: &Case, new: &Submission) -> AcceptOutcome {
    accept_by(case, new, case.world.nonce()).await
}

async fn accept_by(case: &Case, new: &Submission, nonce: Nonce) -> AcceptOutcome {
    let mut outcomes = case.store.ledger.accept(std::slice::from_ref(new), nonce).await.unwrap();
    assert_eq!(outcomes.len(), 1, "accept returns one outcome per transaction");
    outcomes.remove(0)
}

fn existing(outcome: AcceptOutcome) -> StoredTransaction {
    match outcome {
        AcceptOutcome::Existing(stored) => *stored,
        AcceptOutcome::Inserted { .. } => panic!("a taken key was stored again"),
    }
}

fn is_inserted(outcome: &AcceptOutcome) -> bool {
    matches!(outcome, AcceptOutcome::Inserted { .. })
}

/// Asserts that the first instruction is stored.
fn assert_stored(stored: &StoredTransaction, first: &Submission) {
    let expected = StoredTransaction::inserted(first.clone(), stored.revision.clone(), None);
    assert_eq!(
        *stored, expected,
        "the first content and its request are kept; it is not final and has no marks"
    );
}

async fn accepts_a_key_once(case: &Case) {
    // Accept does not check whether the account exists: this one does not.
    let first = case.deposit(case.account_key(), 100);
    let work = case.accepted(std::slice::from_ref(&first)).await.remove(0);
    let stored = case.stored(&first.key).await;
    assert_stored(&stored, &first);
    assert_eq!(stored.revision, work.row, "accept returns the revision of the inserted row");
    assert_eq!(stored.work(), Some(work), "the stored work equals the work from accept");

    let later = Submission { key: first.key.clone(), ..case.withdrawal(first.key.account, 777) };
    assert_eq!(
        existing(accept_one(case, &later).await),
        stored,
        "the second accept returns the stored transaction"
    );
    assert_eq!(existing(accept_one(case, &first).await), stored, "the same content has the same result");
    assert_eq!(case.stored(&first.key).await, stored, "a second accept has no effect");
}

async fn returns_the_outcomes_of_a_mixed_group_in_order(case: &Case) {
    let account = case.opened().await.value.key;
    let group: Vec<Submission> = (1..=7).map(|cents| case.deposit(account, cents)).collect();
    let taken = [1, 2, 5];
    for index in taken {
        case.accepted(&group[index..=index]).await;
    }
    // The second instructions have other contents and times.
    let transactions = group.iter().map(|first| Submission {
        key: first.key.clone(),
        ..case.deposit(account, first.instruction.amount.minor_units() + 100)
    });
    let transactions: Vec<Submission> = transactions.collect();
    let outcomes = case.store.ledger.accept(&transactions, case.world.nonce()).await.unwrap();
    assert_eq!(outcomes.len(), transactions.len(), "accept returns one outcome per transaction");
    for (index, outcome) in outcomes.into_iter().enumerate() {
        if taken.contains(&index) {
            assert_stored(&existing(outcome), &group[index]);
        } else {
            assert!(is_inserted(&outcome), "the key at {index} was free");
            assert_stored(&case.stored(&transactions[index].key).await, &transactions[index]);
        }
    }
}

async fn accepts_a_group_of_one_hundred(case: &Case) {
    let account = case.opened().await.value.key;
    let group: Vec<Submission> = (1..=100).map(|cents| case.deposit(account, cents)).collect();
    let early = [0, 37, 99].map(|index: usize| group[index].clone());
    case.accepted(&early).await;
    for expected in [97, 0] {
        let outcomes = case.store.ledger.accept(&group, case.world.nonce()).await.unwrap();
        assert_eq!(outcomes.len(), 100, "accept returns one outcome per transaction");
        let inserted = outcomes.iter().filter(|outcome| is_inserted(outcome)).count();
        assert_eq!(inserted, expected, "exactly the free keys are stored");
    }
    let stored = case.in_status(account, TransactionStatus::Accepted, 100).await;
    assert_eq!(stored.len(), 100, "each key is stored once");
    for new in &group {
        assert_stored(&case.stored(&new.key).await, new);
    }
}

async fn a_group_may_have_several_accounts_if_the_ledger_allows_it(case: &Case) {
    let reach = case.store.ledger.accept_grouping();
    if reach == AcceptGrouping::OneAccount {
        return;
    }
    let cents = 1..=i64::try_from(reach.group_max()).unwrap();
    let group: Vec<Submission> = cents.map(|cents| case.deposit(case.account_key(), cents)).collect();
    let taken = group.len() / 2;
    case.accepted(&group[taken..=taken]).await;
    let outcomes = case.store.ledger.accept(&group, case.world.nonce()).await.unwrap();
    assert_eq!(outcomes.len(), group.len(), "accept returns one outcome per transaction");
    for (index, (outcome, new_transaction)) in outcomes.into_iter().zip(&group).enumerate() {
        assert_eq!(is_inserted(&outcome), index != taken, "the key at {index}");
        assert_stored(&case.stored(&new_transaction.key).await, new_transaction);
    }
}

async fn keys_that_differ_in_one_part_are_different(case: &Case) {
    let first = case.deposit(case.account_key(), 1);
    let AccountKey { user, account } = first.key.account;
    let mut neighbors = vec![first.clone(); 4];
    neighbors[1].key.partner = partner("shop_2");
    neighbors[2].key.account = AccountKey { user, account: AccountId::from_uuid(case.world.uuid()) };
    neighbors[3].key.account = AccountKey { user: UserId::from_uuid(case.world.uuid()), account };
    for (cents, neighbor) in (1..).zip(&mut neighbors) {
        neighbor.instruction = case.deposit(first.key.account, cents).instruction;
        assert!(is_inserted(&accept_one(case, neighbor).await), "{} was free", neighbor.key);
    }
    for neighbor in &neighbors {
        assert_stored(&case.stored(&neighbor.key).await, neighbor);
    }
}

async fn a_repeated_attempt_has_no_effect(case: &Case) {
    let new = case.deposit(case.opened().await.value.key, 5);
    let nonce = case.world.nonce();
    let work = case.accepted_by(std::slice::from_ref(&new), nonce).await.remove(0);
    let stored = case.stored(&new.key).await;
    // An adapter may recognise its own insert by the nonce; it does not have to.
    match accept_by(case, &new, nonce).await {
        AcceptOutcome::Inserted { revision, .. } => {
            assert_eq!(revision, work.row, "the row is unchanged")
        }
        AcceptOutcome::Existing(found) => assert_eq!(*found, stored, "the row is unchanged"),
    }
    assert_eq!(case.stored(&new.key).await, stored, "a repeated attempt has no effect");
    let all = case.in_status(new.key.account, TransactionStatus::Accepted, 10).await;
    assert_eq!(all, [stored], "the key is stored once");
}

async fn a_final_transaction_is_returned_with_its_outcome(case: &Case) {
    let account = case.opened().await.value.key;
    let group = [case.deposit(account, 100), case.withdrawal(account, 500)];
    let nonce = case.world.nonce();
    let work = case.accepted_by(&group, nonce).await;
    case.committed(&case.decided(&case.account(account).await, &work)).await;
    for new in &group {
        let stored = case.stored(&new.key).await;
        assert!(stored.status().is_final(), "the transaction is final");
        assert_eq!(existing(accept_one(case, new).await), stored, "a replay returns the final transaction");
        // A delayed repetition of the first attempt, with its nonce, has no effect either.
        let answer = accept_by(case, new, nonce).await;
        assert_eq!(existing(answer), stored, "a late attempt returns the final transaction");
        assert_eq!(case.stored(&new.key).await, stored, "a late accept has no effect");
    }
}

async fn one_of_concurrent_accepts_stores_the_key(case: &Case) {
    let account = case.opened().await.value.key;
    for _ in 0..15 {
        let key = case.deposit(account, 1).key;
        let transactions: Vec<Submission> =
            (1..=8).map(|cents| Submission { key: key.clone(), ..case.deposit(account, cents) }).collect();
        let steps = transactions.clone().into_iter().map(|new_transaction| {
            let (ledger, nonce) = (Arc::clone(&case.store.ledger), case.world.nonce());
            async move { ledger.accept(&[new_transaction], nonce).await.unwrap().remove(0) }
        });
        let outcomes = case.concurrently(steps).await;
        let winners: Vec<usize> = (0..8).filter(|index| is_inserted(&outcomes[*index])).collect();
        assert_eq!(winners.len(), 1, "exactly one of several concurrent accepts stores the key");
        let stored = case.stored(&key).await;
        assert_stored(&stored, &transactions[winners[0]]);
        for outcome in outcomes.into_iter().filter(|outcome| !is_inserted(outcome)) {
            assert_eq!(existing(outcome), stored, "the other calls return the stored transaction");
        }
    }
}

async fn concurrent_groups_that_overlap_store_each_key_once(case: &Case) {
    let account = case.opened().await.value.key;
    let keys: Vec<Submission> = (1..=40).map(|cents| case.deposit(account, cents)).collect();
    let groups = (0..4).map(|step: usize| {
        // Each group has three quarters of the keys, in a different order.
        let group: Vec<Submission> = keys.iter().cycle().skip(step * 10).take(30).cloned().collect();
        let (ledger, nonce) = (Arc::clone(&case.store.ledger), case.world.nonce());
        async move {
            let outcomes = ledger.accept(&group, nonce).await.unwrap();
            assert_eq!(outcomes.len(), group.len(), "accept returns one outcome per transaction");
            group.into_iter().map(|new_transaction| new_transaction.key).zip(outcomes).collect::<Vec<_>>()
        }
    });
    let outcomes: Vec<_> = case.concurrently(groups).await.into_iter().flatten().collect();
    for new in &keys {
        let of_key = outcomes.iter().filter(|(key, _)| *key == new.key);
        let inserted = of_key.filter(|(_, outcome)| is_inserted(outcome)).count();
        assert_eq!(inserted, 1, "exactly one of the groups stores the key");
        assert_stored(&case.stored(&new.key).await, new);
    }
}
