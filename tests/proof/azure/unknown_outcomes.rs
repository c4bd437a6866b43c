//! Writes whose response was lost: they are never reported as not done.

use std::time::Duration;

use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

use crate::azure::fixture::{Fixture, account, commit_of, deposit};
use postonce_tests::fake_storage::Fault::{
    ApplyAndAnswer, ApplyAndCut, ApplyAndEmpty, Cut, CutAndApplyLate, Refuse,
};

fn unavailable<T: std::fmt::Debug>(answer: &Result<T, StoreFault>) {
    assert!(
        matches!(answer, Err(StoreFault::Unavailable { .. })),
        "the write may still be applied: {answer:?}"
    );
}

/// "Refused" promises that nothing was written. After an attempt without a response, that is unknown.
#[tokio::test]
async fn a_refusal_after_a_lost_response_leaves_a_single_accept_unknown() {
    let fixture = Fixture::new();
    fixture.fake.fail("insert", &[CutAndApplyLate, Refuse(403)]);
    unavailable(&fixture.ledger.accept(&[deposit(1)], fresh_nonce()).await);
}

#[tokio::test]
async fn a_refusal_after_a_lost_response_leaves_a_group_unknown() {
    let fixture = Fixture::new();
    fixture.fake.fail("batch", &[CutAndApplyLate, Refuse(403)]);
    unavailable(&fixture.ledger.accept(&[deposit(1), deposit(2)], fresh_nonce()).await);
}

#[tokio::test]
async fn a_refusal_after_a_lost_response_leaves_a_mark_unknown() {
    let fixture = Fixture::new();
    let (_, revision) = fixture.accepted(1).await;
    fixture.fake.fail("merge", &[Cut, Refuse(403)]);
    let marks = Marks { dead_letter: true, ..Marks::default() };
    unavailable(&fixture.ledger.mark(&deposit(1).key, &revision, marks).await);
}

#[tokio::test]
async fn a_commit_that_was_written_is_never_reported_as_refused() {
    let fixture = Fixture::new();
    let opened = fixture.open_account().await;
    let (new, revision) = fixture.accepted(1).await;
    fixture.fake.fail("batch", &[ApplyAndCut]);
    fixture.fake.fail("get", &[Refuse(403)]);
    unavailable(&fixture.ledger.commit(&commit_of(&opened, &[(&new, revision)])).await);
}

/// Only the caller knows whether a save may be repeated.
#[tokio::test]
async fn a_record_is_sent_once() {
    let fixture = Fixture::new();
    let records = &fixture.store.records;
    fixture.fake.fail("insert", &[ApplyAndCut]);
    unavailable(&records.save(Collection::Batches, "b-1", "{}", None).await);
    assert_eq!(fixture.fake.requests(), ["insert"]);
    let stored = records.find(Collection::Batches, "b-1").await.unwrap().unwrap();
    assert_eq!(stored.value, "{}", "the save has succeeded");
}

fn dead_letter() -> DeadLetter {
    DeadLetter {
        id: "m".to_owned(),
        queue: QueueName::of_partition("work", 0),
        reason: "x".to_owned(),
        body: b"{}".to_vec(),
        dequeue_count: 1,
        inserted_at: Timestamp::from_unix_ms(1),
        dead_at: Timestamp::from_unix_ms(2),
        resolution: None,
    }
}

/// Without its copy among the open dead letters, resolving must end: it once took 8,799 requests in 8 seconds.
#[tokio::test]
async fn resolving_a_dead_letter_without_its_open_copy_ends() {
    let fixture = Fixture::new();
    fixture.store.dead_letters.add(&dead_letter()).await.unwrap();
    assert_eq!(fixture.fake.remove("open-m"), 1);
    let decided =
        Resolution { kind: ResolutionKind::Replayed, by: "ops".to_owned(), at: Timestamp::from_unix_ms(3) };
    let resolved = fixture.store.dead_letters.resolve("m", &decided);
    assert!(
        tokio::time::timeout(Duration::from_secs(3), resolved).await.is_ok(),
        "resolving repeats requests for ever"
    );
    assert!(fixture.fake.requests().len() < 30, "too many requests");
}

#[tokio::test]
async fn a_refused_read_back_leaves_the_write_unknown() {
    for (kind, fault) in [("insert", ApplyAndCut), ("insert", CutAndApplyLate)] {
        let fixture = Fixture::new();
        fixture.fake.fail(kind, &[fault]);
        fixture.fake.fail("get", &[Refuse(403)]);
        unavailable(&fixture.ledger.accept(&[deposit(1)], fresh_nonce()).await);
    }
    for fault in [ApplyAndCut, ApplyAndEmpty] {
        let fixture = Fixture::new();
        fixture.fake.fail("batch", &[fault]);
        fixture.fake.fail("get", &[Refuse(403)]);
        unavailable(&fixture.ledger.accept(&[deposit(1), deposit(2)], fresh_nonce()).await);
    }
}

#[tokio::test]
async fn an_account_opening_that_was_written_is_never_reported_as_refused() {
    // The insert is the account's entry in the list of its user, and the batch its row with the page.
    let fixture = Fixture::new();
    fixture.fake.fail("insert", &[ApplyAndAnswer(409)]);
    fixture.fake.fail("batch", &[ApplyAndCut]);
    fixture.fake.fail("get", &[Refuse(403)]);
    unavailable(&fixture.store.accounts.open(&opening(account())).await);
    let fixture = Fixture::new();
    fixture.fake.fail("insert", &[ApplyAndAnswer(409)]);
    fixture.fake.fail("batch", &[Cut, Refuse(403)]);
    unavailable(&fixture.store.accounts.open(&opening(account())).await);
}

#[tokio::test]
async fn a_write_that_was_certainly_not_applied_is_refused() {
    let fixture = Fixture::new();
    fixture.fake.fail("insert", &[Refuse(403)]);
    let answer = fixture.ledger.accept(&[deposit(1)], fresh_nonce()).await;
    assert!(matches!(answer, Err(StoreFault::Refused { .. })), "{answer:?}");
    // A read without a response wrote nothing.
    fixture.fake.fail("get", &[Refuse(503), Refuse(403)]);
    let answer = fixture.ledger.account(account().key).await;
    assert!(matches!(answer, Err(StoreFault::Refused { .. })), "{answer:?}");
}
