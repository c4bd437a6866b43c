//! Groups in which some keys are taken: what is new is stored, what is not is told, and it stays cheap.

use std::collections::BTreeMap;

use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{AcceptOutcome, NewTransaction};

use crate::fake::Fault::Cut;
use crate::fake::Hints;
use crate::means::{Bench, deposit, inserted, with_other_nonce};

/// Stores those that `taken` names, then accepts all hundred as somebody else; gives the requests.
async fn accept_hundred(hints: Hints, taken: &[u32]) -> BTreeMap<&'static str, usize> {
    let bench = Bench::new().await;
    bench.fake.hint(hints);
    let first: Vec<NewTransaction> = taken.iter().map(|message| deposit(*message)).collect();
    inserted(&bench.store.ledger.accept(&first).await.unwrap());
    bench.fake.seen();
    let group: Vec<NewTransaction> = (1..=100).map(|message| with_other_nonce(&deposit(message))).collect();
    let outcomes = bench.store.ledger.accept(&group).await.unwrap();
    let seen = bench.fake.seen();
    let count = |kind: &str| seen.iter().filter(|seen| **seen == kind).count();
    let requests = seen.iter().map(|kind| (*kind, count(kind))).collect();
    assert_eq!(outcomes.len(), 100);
    for (message, (new, outcome)) in (1..).zip(group.iter().zip(&outcomes)) {
        let expect_existing = taken.contains(&message);
        assert_eq!(matches!(outcome, AcceptOutcome::Existing(_)), expect_existing, "{message}");
        let stored = bench.store.ledger.transaction(&new.key).await.unwrap().unwrap();
        if let AcceptOutcome::Inserted { revision, .. } = outcome {
            assert_eq!(stored.revision, *revision);
        }
    }
    requests
}

fn total(requests: &BTreeMap<&str, usize>) -> usize {
    requests.values().sum()
}

#[tokio::test]
async fn few_replays_among_new_ones_cost_two_requests_each() {
    for place in [1, 2, 50, 99, 100] {
        assert_eq!(accept_hundred(Hints::True, &[place]).await, [("batch", 2), ("get", 1)].into());
    }
    for places in [[1, 2], [1, 100], [40, 60], [99, 100]] {
        assert_eq!(accept_hundred(Hints::True, &places).await, [("batch", 3), ("get", 2)].into());
    }
    let scattered: Vec<u32> = (1..=10).map(|index| index * 9).collect();
    assert!(total(&accept_hundred(Hints::True, &scattered).await) <= 21);
}

#[tokio::test]
async fn many_replays_are_read_and_not_guessed_at() {
    let most: Vec<u32> = (2..=98).collect();
    let requests = accept_hundred(Hints::True, &most).await;
    assert!(total(&requests) <= 106 && requests["batch"] <= 4, "{requests:?}");
    let all: Vec<u32> = (1..=100).collect();
    let requests = accept_hundred(Hints::True, &all).await;
    assert!(total(&requests) <= 106, "{requests:?}");
}

#[tokio::test]
async fn hints_that_are_missing_or_wrong_cost_requests_only() {
    for hints in [Hints::None, Hints::Wrong] {
        for taken in [vec![1], vec![2], vec![50], vec![7, 70], (2..=98).collect(), (1..=100).collect()] {
            let requests = accept_hundred(hints, &taken).await;
            assert!(total(&requests) <= 108, "{hints:?} {taken:?}: {requests:?}");
        }
    }
}

#[tokio::test]
async fn a_small_group_is_read_at_once() {
    let bench = Bench::new().await;
    let taken: Vec<NewTransaction> = (1..=11).map(deposit).collect();
    inserted(&bench.store.ledger.accept(&taken).await.unwrap());
    bench.fake.seen();
    let group: Vec<NewTransaction> = (1..=12).map(|message| with_other_nonce(&deposit(message))).collect();
    let outcomes = bench.store.ledger.accept(&group).await.unwrap();
    inserted(&outcomes[11..]);
    let requests: Vec<&str> = ["batch"].into_iter().chain(["get"; 12]).chain(["insert"]).collect();
    assert_eq!(bench.fake.seen(), requests);
}

/// A group of which one answer was lost may be one's own: then no hint is followed.
#[tokio::test]
async fn replays_in_a_batch_without_an_answer_are_sorted_out() {
    for hints in [Hints::True, Hints::Wrong, Hints::None] {
        let bench = Bench::new().await;
        bench.fake.hint(hints);
        inserted(&bench.store.ledger.accept(&[deposit(30)]).await.unwrap());
        bench.fake.fail("batch", &[Cut]);
        let group: Vec<NewTransaction> =
            (1..=40).map(|message| with_other_nonce(&deposit(message))).collect();
        let outcomes = bench.store.ledger.accept(&group).await.unwrap();
        let existing = outcomes.iter().filter(|outcome| matches!(outcome, AcceptOutcome::Existing(_)));
        assert_eq!((existing.count(), outcomes.len()), (1, 40));
    }
}

/// Each round of conflicts takes time; they end with the patience of one operation.
#[tokio::test]
async fn conflicts_end_with_the_time() {
    let bench = Bench::new().await;
    inserted(&bench.store.ledger.accept(&[deposit(1)]).await.unwrap());
    bench.world.pass_at_each_look(std::time::Duration::from_secs(6));
    let group: Vec<NewTransaction> = (1..=40).map(|message| with_other_nonce(&deposit(message))).collect();
    let answer = bench.store.ledger.accept(&group).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}
