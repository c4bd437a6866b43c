//! Groups in which some keys are taken: new rows are stored, existing ones are returned, with few requests.

use std::collections::BTreeMap;

use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

use crate::azure::fixture::{Fixture, deposit, inserted};
use postonce_tests::fake_storage::Fault::Cut;
use postonce_tests::fake_storage::Hints;

/// Stores the transactions in `taken`, then accepts a hundred from another process. Returns the requests of the latter.
async fn accept_hundred(hints: Hints, taken: &[u32]) -> BTreeMap<&'static str, usize> {
    let fixture = Fixture::new();
    fixture.fake.hint(hints);
    let first: Vec<Submission> = taken.iter().map(|message| deposit(*message)).collect();
    inserted(&fixture.ledger.accept(&first, fresh_nonce()).await.unwrap());
    fixture.fake.requests();
    let group: Vec<Submission> = (1..=100).map(deposit).collect();
    let outcomes = fixture.ledger.accept(&group, fresh_nonce()).await.unwrap();
    let seen = fixture.fake.requests();
    let count = |kind: &str| seen.iter().filter(|seen| **seen == kind).count();
    let requests = seen.iter().map(|kind| (*kind, count(kind))).collect();
    assert_eq!(outcomes.len(), 100);
    for (message, (new, outcome)) in (1..).zip(group.iter().zip(&outcomes)) {
        let expect_existing = taken.contains(&message);
        assert_eq!(matches!(outcome, AcceptOutcome::Existing(_)), expect_existing, "{message}");
        let stored = fixture.ledger.transaction(&new.key).await.unwrap().unwrap();
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
async fn each_replay_among_new_transactions_costs_two_requests() {
    for number in [1, 2, 50, 99, 100] {
        assert_eq!(accept_hundred(Hints::True, &[number]).await, [("batch", 2), ("get", 1)].into());
    }
    for numbers in [[1, 2], [1, 100], [40, 60], [99, 100]] {
        assert_eq!(accept_hundred(Hints::True, &numbers).await, [("batch", 3), ("get", 2)].into());
    }
    let scattered: Vec<u32> = (1..=10).map(|index| index * 9).collect();
    assert!(total(&accept_hundred(Hints::True, &scattered).await) <= 21);
}

#[tokio::test]
async fn a_group_with_many_replays_is_read() {
    let most: Vec<u32> = (2..=98).collect();
    let requests = accept_hundred(Hints::True, &most).await;
    assert!(total(&requests) <= 106 && requests["batch"] <= 4, "{requests:?}");
    let all: Vec<u32> = (1..=100).collect();
    let requests = accept_hundred(Hints::True, &all).await;
    assert!(total(&requests) <= 106, "{requests:?}");
}

#[tokio::test]
async fn missing_and_wrong_hints_cost_requests_and_change_no_result() {
    for hints in [Hints::None, Hints::Wrong] {
        for taken in [vec![1], vec![2], vec![50], vec![7, 70], (2..=98).collect(), (1..=100).collect()] {
            let requests = accept_hundred(hints, &taken).await;
            assert!(total(&requests) <= 108, "{hints:?} {taken:?}: {requests:?}");
        }
    }
}

#[tokio::test]
async fn a_small_group_with_many_replays_is_read_at_once() {
    let fixture = Fixture::new();
    let taken: Vec<Submission> = (1..=11).map(deposit).collect();
    inserted(&fixture.ledger.accept(&taken, fresh_nonce()).await.unwrap());
    fixture.fake.requests();
    let group: Vec<Submission> = (1..=12).map(deposit).collect();
    let outcomes = fixture.ledger.accept(&group, fresh_nonce()).await.unwrap();
    inserted(&outcomes[11..]);
    let requests: Vec<&str> = ["batch"].into_iter().chain(["get"; 12]).chain(["insert"]).collect();
    assert_eq!(fixture.fake.requests(), requests);
}

/// A group with a lost response may have been applied, so no hint is followed.
#[tokio::test]
async fn replays_in_a_batch_without_a_response_are_recognized() {
    for hints in [Hints::True, Hints::Wrong, Hints::None] {
        let fixture = Fixture::new();
        fixture.fake.hint(hints);
        inserted(&fixture.ledger.accept(&[deposit(30)], fresh_nonce()).await.unwrap());
        fixture.fake.fail("batch", &[Cut]);
        let group: Vec<Submission> = (1..=40).map(deposit).collect();
        let outcomes = fixture.ledger.accept(&group, fresh_nonce()).await.unwrap();
        let existing = outcomes.iter().filter(|outcome| matches!(outcome, AcceptOutcome::Existing(_)));
        assert_eq!((existing.count(), outcomes.len()), (1, 40));
    }
}

/// Each attempt takes time; they end with the time limit of one operation.
#[tokio::test]
async fn repeated_conflicts_end_at_the_time_limit() {
    let fixture = Fixture::new();
    inserted(&fixture.ledger.accept(&[deposit(1)], fresh_nonce()).await.unwrap());
    fixture.world.advance_at_each_reading(std::time::Duration::from_secs(6));
    let group: Vec<Submission> = (1..=40).map(deposit).collect();
    let answer = fixture.ledger.accept(&group, fresh_nonce()).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}
