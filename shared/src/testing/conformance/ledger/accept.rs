//! A key is stored at most once, and whoever comes later reads what the first one stored.

use std::sync::Arc;

use crate::domain::ids::{AccountId, AccountKey, UserId};
use crate::domain::transaction::{Transaction, TransactionStatus};
use crate::ports::ledger::{AcceptGrouping, AcceptOutcome, Marks, NewTransaction, StoredTransaction};
use crate::ports::world::WorldExt as _;
use crate::testing::conformance::case::{Case, partner};

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    accepts_a_key_once(&case().await).await;
    answers_each_of_a_mixed_group_in_order(&case().await).await;
    accepts_a_group_of_one_hundred(&case().await).await;
    a_group_may_be_of_all_accounts_where_the_ledger_says_so(&case().await).await;
    keys_that_differ_in_one_part_do_not_meet(&case().await).await;
    a_repeated_attempt_stores_nothing_new(&case().await).await;
    a_final_transaction_is_told_with_its_outcome(&case().await).await;
    concurrent_accepts_of_a_key_store_one(&case().await).await;
    concurrent_groups_that_overlap_store_each_key_once(&case().await).await;
}

async fn accept_one(case: &Case, new: &NewTransaction) -> AcceptOutcome {
    let mut outcomes = case.store.ledger.accept(std::slice::from_ref(new)).await.unwrap();
    assert_eq!(outcomes.len(), 1, "accept promises one outcome each");
    outcomes.remove(0)
}

fn existing(outcome: AcceptOutcome) -> StoredTransaction {
    match outcome {
        AcceptOutcome::Existing(stored) => *stored,
        AcceptOutcome::Inserted { .. } => panic!("a key that was taken was stored again"),
    }
}

fn is_inserted(outcome: &AcceptOutcome) -> bool {
    matches!(outcome, AcceptOutcome::Inserted { .. })
}

/// Asserts that what is stored is what was asked for first.
fn assert_is(stored: &StoredTransaction, first: &NewTransaction) {
    let NewTransaction { key, instruction, accepted_at, nonce: _ } = first.clone();
    assert_eq!(stored.fingerprint, instruction.fingerprint(), "the first fingerprint stands");
    let expected = Transaction { key, instruction, accepted_at, outcome: None };
    assert_eq!(stored.transaction, expected, "the first content stands, not decided yet");
    assert_eq!(stored.marks, Marks::default(), "nobody marked it yet");
}

async fn accepts_a_key_once(case: &Case) {
    // Whether the account exists is not checked: this one does not.
    let first = case.deposit(case.account_key(), 100);
    let work = case.accepted(std::slice::from_ref(&first)).await.remove(0);
    let stored = case.stored(&first.key).await;
    assert_is(&stored, &first);
    assert_eq!(stored.revision, work.revision, "accept tells the state of the row that it made");
    assert_eq!(stored.work(), Some(work), "what accept answers is all that posting needs");

    let later = NewTransaction { key: first.key.clone(), ..case.withdrawal(first.key.account, 777) };
    assert_eq!(existing(accept_one(case, &later).await), stored, "the second accept reads the first");
    let again = NewTransaction { nonce: case.world.nonce(), ..first.clone() };
    assert_eq!(existing(accept_one(case, &again).await), stored, "the same content is no exception");
    assert_eq!(case.stored(&first.key).await, stored, "a second accept changes nothing");
}

async fn answers_each_of_a_mixed_group_in_order(case: &Case) {
    let account = case.opened().await.value.key;
    let group: Vec<NewTransaction> = (1..=7).map(|cents| case.deposit(account, cents)).collect();
    let taken = [1, 2, 5];
    for index in taken {
        case.accepted(&group[index..=index]).await;
    }
    // Content, time and attempt of the second wish are all different.
    let wishes = group.iter().map(|first| NewTransaction {
        key: first.key.clone(),
        ..case.deposit(account, first.instruction.amount.minor_units() + 100)
    });
    let wishes: Vec<NewTransaction> = wishes.collect();
    let outcomes = case.store.ledger.accept(&wishes).await.unwrap();
    assert_eq!(outcomes.len(), wishes.len(), "accept promises one outcome each");
    for (index, outcome) in outcomes.into_iter().enumerate() {
        if taken.contains(&index) {
            assert_is(&existing(outcome), &group[index]);
        } else {
            assert!(is_inserted(&outcome), "the key at {index} was free");
            assert_is(&case.stored(&wishes[index].key).await, &wishes[index]);
        }
    }
}

async fn accepts_a_group_of_one_hundred(case: &Case) {
    let account = case.opened().await.value.key;
    let group: Vec<NewTransaction> = (1..=100).map(|cents| case.deposit(account, cents)).collect();
    let early = [0, 37, 99].map(|index: usize| group[index].clone());
    case.accepted(&early).await;
    let second_attempt = |new: &NewTransaction| NewTransaction { nonce: case.world.nonce(), ..new.clone() };
    for expected in [97, 0] {
        let wishes: Vec<NewTransaction> = group.iter().map(second_attempt).collect();
        let outcomes = case.store.ledger.accept(&wishes).await.unwrap();
        assert_eq!(outcomes.len(), 100, "accept promises one outcome each");
        let inserted = outcomes.iter().filter(|outcome| is_inserted(outcome)).count();
        assert_eq!(inserted, expected, "exactly the free keys are stored");
    }
    let stored = case.in_status(account, TransactionStatus::Accepted, 100).await;
    assert_eq!(stored.len(), 100, "each key is stored once");
    for new in &group {
        assert_is(&case.stored(&new.key).await, new);
    }
}

async fn a_group_may_be_of_all_accounts_where_the_ledger_says_so(case: &Case) {
    let reach = case.store.ledger.accept_grouping();
    if reach == AcceptGrouping::OneAccount {
        return;
    }
    let cents = 1..=i64::try_from(reach.group_max()).unwrap();
    let group: Vec<NewTransaction> = cents.map(|cents| case.deposit(case.account_key(), cents)).collect();
    let taken = group.len() / 2;
    case.accepted(&group[taken..=taken]).await;
    let second_attempt = |new: &NewTransaction| NewTransaction { nonce: case.world.nonce(), ..new.clone() };
    let wishes: Vec<NewTransaction> = group.iter().map(second_attempt).collect();
    let outcomes = case.store.ledger.accept(&wishes).await.unwrap();
    assert_eq!(outcomes.len(), group.len(), "accept promises one outcome each");
    for (index, (outcome, wish)) in outcomes.into_iter().zip(&wishes).enumerate() {
        assert_eq!(is_inserted(&outcome), index != taken, "the key at {index}");
        assert_is(&case.stored(&wish.key).await, wish);
    }
}

async fn keys_that_differ_in_one_part_do_not_meet(case: &Case) {
    let first = case.deposit(case.account_key(), 1);
    let AccountKey { user, account } = first.key.account;
    let mut neighbors = vec![first.clone(); 4];
    neighbors[1].key.partner = partner("shop_2");
    neighbors[2].key.account = AccountKey { user, account: AccountId::from_uuid(case.world.uuid()) };
    neighbors[3].key.account = AccountKey { user: UserId::from_uuid(case.world.uuid()), account };
    for (cents, neighbor) in (1..).zip(&mut neighbors) {
        neighbor.nonce = case.world.nonce();
        neighbor.instruction = case.deposit(first.key.account, cents).instruction;
        assert!(is_inserted(&accept_one(case, neighbor).await), "{} was free", neighbor.key);
    }
    for neighbor in &neighbors {
        assert_is(&case.stored(&neighbor.key).await, neighbor);
    }
}

async fn a_repeated_attempt_stores_nothing_new(case: &Case) {
    let new = case.deposit(case.opened().await.value.key, 5);
    let work = case.accepted(std::slice::from_ref(&new)).await.remove(0);
    let stored = case.stored(&new.key).await;
    // The nonce lets an adapter recognize its own insert; it does not have to.
    match accept_one(case, &new).await {
        AcceptOutcome::Inserted { revision, .. } => {
            assert_eq!(revision, work.revision, "the row is as it was")
        }
        AcceptOutcome::Existing(found) => assert_eq!(*found, stored, "the row is as it was"),
    }
    assert_eq!(case.stored(&new.key).await, stored, "a repeated attempt changes nothing");
    let all = case.in_status(new.key.account, TransactionStatus::Accepted, 10).await;
    assert_eq!(all, [stored], "the key stands once");
}

async fn a_final_transaction_is_told_with_its_outcome(case: &Case) {
    let account = case.opened().await.value.key;
    let group = [case.deposit(account, 100), case.withdrawal(account, 500)];
    case.settled(&group).await;
    for new in &group {
        let stored = case.stored(&new.key).await;
        assert!(stored.transaction.status().is_final(), "it was committed");
        let again = NewTransaction { nonce: case.world.nonce(), ..new.clone() };
        assert_eq!(existing(accept_one(case, &again).await), stored, "a replay gives the final answer");
        // An attempt that went astray for a while, with its own nonce, must not revive it either.
        let answer = accept_one(case, new).await;
        assert_eq!(existing(answer), stored, "a late attempt gives the final answer");
        assert_eq!(case.stored(&new.key).await, stored, "a late accept changes nothing");
    }
}

async fn concurrent_accepts_of_a_key_store_one(case: &Case) {
    let account = case.opened().await.value.key;
    for _ in 0..15 {
        let key = case.deposit(account, 1).key;
        let wishes: Vec<NewTransaction> = (1..=8)
            .map(|cents| NewTransaction { key: key.clone(), ..case.deposit(account, cents) })
            .collect();
        let steps = wishes.clone().into_iter().map(|wish| {
            let ledger = Arc::clone(&case.store.ledger);
            async move { ledger.accept(&[wish]).await.unwrap().remove(0) }
        });
        let outcomes = case.at_once(steps).await;
        let winners: Vec<usize> = (0..8).filter(|index| is_inserted(&outcomes[*index])).collect();
        assert_eq!(winners.len(), 1, "of concurrent accepts of one key exactly one stores it");
        let stored = case.stored(&key).await;
        assert_is(&stored, &wishes[winners[0]]);
        for outcome in outcomes.into_iter().filter(|outcome| !is_inserted(outcome)) {
            assert_eq!(existing(outcome), stored, "all others read what the winner stored");
        }
    }
}

async fn concurrent_groups_that_overlap_store_each_key_once(case: &Case) {
    let account = case.opened().await.value.key;
    let keys: Vec<NewTransaction> = (1..=40).map(|cents| case.deposit(account, cents)).collect();
    let groups = (0..4).map(|step: usize| {
        // Each takes three quarters of the keys, in an order of its own.
        let mut group: Vec<NewTransaction> = keys.iter().cycle().skip(step * 10).take(30).cloned().collect();
        for wish in &mut group {
            wish.nonce = case.world.nonce();
        }
        let ledger = Arc::clone(&case.store.ledger);
        async move {
            let outcomes = ledger.accept(&group).await.unwrap();
            assert_eq!(outcomes.len(), group.len(), "accept promises one outcome each");
            group.into_iter().map(|wish| wish.key).zip(outcomes).collect::<Vec<_>>()
        }
    });
    let outcomes: Vec<_> = case.at_once(groups).await.into_iter().flatten().collect();
    for new in &keys {
        let of_key = outcomes.iter().filter(|(key, _)| *key == new.key);
        let inserted = of_key.filter(|(_, outcome)| is_inserted(outcome)).count();
        assert_eq!(inserted, 1, "each key is stored by exactly one of the groups");
        assert_is(&case.stored(&new.key).await, new);
    }
}
