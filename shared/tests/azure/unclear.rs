//! What is told after a write whose answer was lost: never that it did not happen.

use std::time::Duration;

use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::dead_letters::{DeadLetter, Resolution, ResolutionKind};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::Marks;
use postonce_shared::ports::queue::QueueName;

use crate::fake::Fault::{Cut, CutAndLandLate, DoAndAnswer, DoAndCut, DoAndEmpty, Refuse};
use crate::means::{Bench, account, commit_of, deposit, revision_of};

fn unavailable<T: std::fmt::Debug>(answer: &Result<T, StoreFault>) {
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "it may still happen, but: {answer:?}");
}

/// "Refused" promises that the write did not happen. After an attempt without an answer nobody knows.
#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_unclear_for_a_single_accept() {
    let bench = Bench::new().await;
    bench.fake.fail("insert", &[CutAndLandLate, Refuse(403)]);
    unavailable(&bench.store.ledger.accept(&[deposit(1)]).await);
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_unclear_for_a_group() {
    let bench = Bench::new().await;
    bench.fake.fail("batch", &[CutAndLandLate, Refuse(403)]);
    unavailable(&bench.store.ledger.accept(&[deposit(1), deposit(2)]).await);
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_unclear_for_a_mark() {
    let bench = Bench::new().await;
    let revision = revision_of(&bench.store.ledger.accept(&[deposit(1)]).await.unwrap()[0]);
    bench.fake.fail("merge", &[Cut, Refuse(403)]);
    let marks = Marks { dead_letter: true, ..Marks::default() };
    unavailable(&bench.store.ledger.mark(&deposit(1).key, &revision, marks).await);
}

#[tokio::test]
async fn a_commit_that_was_written_is_never_called_refused() {
    let bench = Bench::new().await;
    let opened = bench.open_account().await;
    let new = deposit(1);
    let revision = revision_of(&bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap()[0]);
    bench.fake.fail("batch", &[DoAndCut]);
    bench.fake.fail("get", &[Refuse(403)]);
    unavailable(&bench.store.ledger.commit(&commit_of(&opened, &[(&new, revision)])).await);
}

fn letter() -> DeadLetter {
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

/// Without the copy in the open ones there is no open letter: 8,799 requests in 8 seconds on Azurite.
#[tokio::test]
async fn resolving_a_letter_without_its_copy_ends() {
    let bench = Bench::new().await;
    bench.store.dead_letters.add(&letter()).await.unwrap();
    assert_eq!(bench.fake.remove("open-m"), 1);
    let decided =
        Resolution { kind: ResolutionKind::Replayed, by: "ops".to_owned(), at: Timestamp::from_unix_ms(3) };
    let resolved = bench.store.dead_letters.resolve("m", &decided);
    assert!(tokio::time::timeout(Duration::from_secs(3), resolved).await.is_ok(), "it asks for ever");
    assert!(bench.fake.seen().len() < 30, "and pays for each question");
}

#[tokio::test]
async fn a_read_back_that_is_refused_says_nothing_about_the_write() {
    for (kind, fault) in [("insert", DoAndCut), ("insert", CutAndLandLate)] {
        let bench = Bench::new().await;
        bench.fake.fail(kind, &[fault]);
        bench.fake.fail("get", &[Refuse(403)]);
        unavailable(&bench.store.ledger.accept(&[deposit(1)]).await);
    }
    for fault in [DoAndCut, DoAndEmpty] {
        let bench = Bench::new().await;
        bench.fake.fail("batch", &[fault]);
        bench.fake.fail("get", &[Refuse(403)]);
        unavailable(&bench.store.ledger.accept(&[deposit(1), deposit(2)]).await);
    }
}

#[tokio::test]
async fn an_opening_that_was_written_is_never_called_refused() {
    // The first insert is the name in the user's list.
    let bench = Bench::new().await;
    bench.fake.fail("insert", &[DoAndAnswer(409), DoAndCut]);
    bench.fake.fail("get", &[Refuse(403)]);
    unavailable(&bench.store.accounts.open(&account()).await);
    let bench = Bench::new().await;
    bench.fake.fail("insert", &[DoAndAnswer(409), Cut, Refuse(403)]);
    unavailable(&bench.store.accounts.open(&account()).await);
}

#[tokio::test]
async fn what_surely_did_not_happen_is_refused() {
    let bench = Bench::new().await;
    bench.fake.fail("insert", &[Refuse(403)]);
    let answer = bench.store.ledger.accept(&[deposit(1)]).await;
    assert!(matches!(answer, Err(StoreFault::Refused { .. })), "{answer:?}");
    // A read that had no answer wrote nothing.
    bench.fake.fail("get", &[Refuse(503), Refuse(403)]);
    let answer = bench.store.ledger.account(account().key).await;
    assert!(matches!(answer, Err(StoreFault::Refused { .. })), "{answer:?}");
}
