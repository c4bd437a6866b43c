//! The Azure adapter in cases that Azurite cannot produce: it never answers 503 and never loses a response.
//! A fake storage service does both, and each test counts its requests.
#![expect(clippy::unwrap_used, reason = "test code")]
#![expect(clippy::disallowed_methods, reason = "the fake services run beside the tests")]

mod changes;
mod clock;
mod connection;
mod fixture;
mod leases;
mod network;
mod replays;
mod unknown_outcomes;
mod untrusted_text;

use std::time::Duration;

use fixture::{Fixture, commit_of, deposit, inserted, revision_of};
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;
use postonce_tests::fake_storage::Fault::{
    self, ApplyAndAnswer, ApplyAndCut, ApplyAndEmpty, Cut, CutAndApplyLate, Empty, Refuse,
};

#[tokio::test]
async fn a_store_opens_during_an_outage_of_the_storage() {
    let fixture = Fixture::without_storage().await;
    for _ in 0..2 {
        assert!(matches!(fixture.ledger.probe().await, Err(StoreFault::Unavailable { .. })));
    }
    assert!(fixture.world.uptime_so_far() <= Duration::from_secs(20));
}

#[tokio::test]
async fn a_single_accept_is_one_insert() {
    let fixture = Fixture::new();
    let new = deposit(1);
    inserted(&fixture.ledger.accept(std::slice::from_ref(&new), fresh_nonce()).await.unwrap());
    assert_eq!(fixture.fake.requests(), ["insert"]);
    fixture.ledger.probe().await.unwrap();
    assert_eq!(fixture.counts(), [("get", 1), ("insert", 1)]);
}

#[tokio::test]
async fn an_insert_whose_response_is_lost_is_recognized_by_its_nonce() {
    for fault in [ApplyAndCut, ApplyAndAnswer(500), ApplyAndAnswer(503)] {
        let fixture = Fixture::new();
        fixture.fake.fail("insert", &[fault]);
        inserted(&fixture.ledger.accept(&[deposit(1)], fresh_nonce()).await.unwrap());
        assert_eq!(fixture.fake.requests(), ["insert", "get"], "{fault:?}");
    }
}

#[tokio::test]
async fn an_insert_that_is_not_found_is_sent_again() {
    for fault in [Cut, Refuse(500), Refuse(503), Refuse(429)] {
        let fixture = Fixture::new();
        fixture.fake.fail("insert", &[fault]);
        fixture.fake.fail("get", &[Refuse(503)]);
        inserted(&fixture.ledger.accept(&[deposit(1)], fresh_nonce()).await.unwrap());
        assert_eq!(fixture.fake.requests(), ["insert", "get", "get", "insert"], "{fault:?}");
    }
}

#[tokio::test]
async fn an_insert_that_is_applied_late_is_recognized_as_ones_own() {
    let fixture = Fixture::new();
    fixture.fake.fail("insert", &[CutAndApplyLate]);
    inserted(&fixture.ledger.accept(&[deposit(1)], fresh_nonce()).await.unwrap());
    assert_eq!(fixture.fake.requests(), ["insert", "get", "insert", "get"]);
}

#[tokio::test]
async fn a_row_of_another_process_is_not_taken_for_ones_own() {
    let fixture = Fixture::new();
    let first = deposit(1);
    inserted(&fixture.ledger.accept(std::slice::from_ref(&first), fresh_nonce()).await.unwrap());
    fixture.fake.fail("insert", &[Cut]);
    let outcomes = fixture.ledger.accept(std::slice::from_ref(&first), fresh_nonce()).await.unwrap();
    let AcceptOutcome::Existing(existing) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(existing.submission.instruction, first.instruction);
    assert!(first.instruction.matches(&existing.fingerprint));
    assert_eq!(existing.submission.accepted_at, first.accepted_at);
}

#[tokio::test]
async fn ones_own_row_that_is_final_is_not_work() {
    let fixture = Fixture::new();
    let account = fixture.open_account().await;
    let (new, revision) = fixture.accepted(1).await;
    let commit = commit_of(&account, &[(&new, revision)]);
    assert!(matches!(fixture.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
    let outcomes = fixture.ledger.accept(&[new], fresh_nonce()).await.unwrap();
    let AcceptOutcome::Existing(existing) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(existing.status(), TransactionStatus::Posted);
}

#[tokio::test]
async fn a_group_is_one_batch() {
    let fixture = Fixture::new();
    let group: Vec<_> = (1..=100).map(deposit).collect();
    let outcomes = fixture.ledger.accept(&group, fresh_nonce()).await.unwrap();
    inserted(&outcomes);
    assert_eq!(fixture.fake.requests(), ["batch"]);
    let read = fixture.ledger.transaction(&group[7].key).await.unwrap().unwrap();
    assert_eq!(read.revision, revision_of(&outcomes[7]));
}

#[tokio::test]
async fn line_separators_within_texts_are_stored() {
    let fixture = Fixture::new();
    let text = "one\u{2028}two\u{2029}three \\u2028 \u{200b}";
    let group: Vec<_> = (1..=2)
        .map(|message| {
            let mut new = deposit(message);
            let metadata = [("\u{2029}".to_owned(), text.to_owned())].into();
            let details = Details::new(Some(text.to_owned()), metadata, &UnknownMembers::default());
            new.instruction.details = details;
            new
        })
        .collect();
    inserted(&fixture.ledger.accept(&group, fresh_nonce()).await.unwrap());
    inserted(
        &fixture
            .store
            .ledger
            .accept(&[Submission { key: deposit(3).key, ..group[0].clone() }], fresh_nonce())
            .await
            .unwrap(),
    );
    assert_eq!(fixture.fake.requests(), ["batch", "insert"]);
    for message in 1..=3 {
        let stored = fixture.ledger.transaction(&deposit(message).key).await.unwrap().unwrap();
        assert_eq!(stored.submission.instruction.details, group[0].instruction.details);
    }
}

#[tokio::test]
async fn a_batch_whose_response_is_lost_or_empty_is_recognized() {
    for fault in [ApplyAndCut, ApplyAndEmpty, ApplyAndAnswer(500)] {
        let fixture = Fixture::new();
        fixture.fake.fail("batch", &[fault]);
        inserted(&fixture.ledger.accept(&[deposit(1), deposit(2)], fresh_nonce()).await.unwrap());
        assert_eq!(fixture.fake.requests(), ["batch", "get", "get", "get"], "{fault:?}");
    }
}

#[tokio::test]
async fn a_batch_that_was_not_applied_is_sent_again() {
    for fault in [Cut, Empty, Refuse(503)] {
        let fixture = Fixture::new();
        fixture.fake.fail("batch", &[fault]);
        inserted(&fixture.ledger.accept(&[deposit(1), deposit(2)], fresh_nonce()).await.unwrap());
        assert_eq!(fixture.fake.requests(), ["batch", "get", "batch"], "{fault:?}");
    }
}

#[tokio::test]
async fn a_batch_that_is_applied_late_is_recognized_as_ones_own() {
    let fixture = Fixture::new();
    fixture.fake.fail("batch", &[CutAndApplyLate]);
    inserted(&fixture.ledger.accept(&[deposit(1), deposit(2)], fresh_nonce()).await.unwrap());
    assert_eq!(fixture.fake.requests(), ["batch", "get", "batch", "get", "get"]);
}

#[tokio::test]
async fn a_group_with_taken_keys_stores_the_others() {
    // After a clear conflict the batch is cut in two; after an unknown outcome its rows are read.
    let faults: [&[Fault]; 3] = [&[], &[Cut], &[Empty]];
    for faults in faults {
        for size in [2, 3, 30] {
            let fixture = Fixture::new();
            let taken = deposit(1);
            inserted(&fixture.ledger.accept(std::slice::from_ref(&taken), fresh_nonce()).await.unwrap());
            let mut group: Vec<_> = (2..=size).map(deposit).collect();
            group.insert(group.len().div_euclid(2), taken.clone());
            fixture.fake.fail("batch", faults);
            let outcomes = fixture.ledger.accept(&group, fresh_nonce()).await.unwrap();
            for (new, outcome) in group.iter().zip(&outcomes) {
                let expect_existing = new.key == taken.key;
                assert_eq!(matches!(outcome, AcceptOutcome::Existing(_)), expect_existing);
                assert!(fixture.ledger.transaction(&new.key).await.unwrap().is_some());
            }
        }
    }
}

#[tokio::test]
async fn a_commit_is_one_batch_and_returns_the_new_revision() {
    let fixture = Fixture::new();
    let account = fixture.open_account().await;
    let group: Vec<_> = (1..=98).map(deposit).collect();
    let outcomes = fixture.ledger.accept(&group, fresh_nonce()).await.unwrap();
    let work: Vec<_> = group.iter().zip(outcomes.iter().map(revision_of)).collect();
    let commit = commit_of(&account, &work);
    fixture.fake.requests();
    let Committed::Done { revision: Some(revision) } = fixture.ledger.commit(&commit).await.unwrap() else {
        panic!("not done")
    };
    assert_eq!(fixture.fake.requests(), ["batch"]);
    let read = fixture.ledger.account(account.value.key).await.unwrap().unwrap();
    assert_eq!((read.value, read.revision), (commit.after.clone(), revision));
    // The service names the first row whose guard failed.
    let changed = Committed::RowsChanged(vec![group[0].key.clone()]);
    assert_eq!(fixture.ledger.commit(&commit).await.unwrap(), changed);
    assert_eq!(fixture.fake.requests(), ["get", "batch"]);
}

#[tokio::test]
async fn a_commit_whose_response_is_lost_is_recognized_by_its_nonce() {
    let cases: [(&[Fault], &[&str]); 6] = [
        (&[ApplyAndCut], &["batch", "get"]),
        (&[ApplyAndEmpty], &["batch", "get"]),
        (&[ApplyAndAnswer(500)], &["batch", "get"]),
        (&[CutAndApplyLate], &["batch", "get", "batch", "get"]),
        (&[Cut, ApplyAndCut], &["batch", "get", "batch", "get"]),
        (&[Refuse(503), Empty, ApplyAndEmpty], &["batch", "get", "batch", "get", "batch", "get"]),
    ];
    for (faults, requests) in cases {
        let fixture = Fixture::new();
        let account = fixture.open_account().await;
        let (new, revision) = fixture.accepted(5).await;
        let commit = commit_of(&account, &[(&new, revision)]);
        fixture.fake.requests();
        fixture.fake.fail("batch", faults);
        let committed = fixture.ledger.commit(&commit).await.unwrap();
        assert_eq!(committed, Committed::Done { revision: None }, "{faults:?}");
        assert_eq!(fixture.fake.requests(), requests, "{faults:?}");
        let read = fixture.ledger.account(account.value.key).await.unwrap().unwrap();
        assert_eq!(read.value.version, 2, "{faults:?}");
    }
}

#[tokio::test]
async fn a_commit_with_an_unknown_outcome_is_refused_after_a_newer_commit() {
    let fixture = Fixture::new();
    let account = fixture.open_account().await;
    let (new, revision) = fixture.accepted(5).await;
    let work = [(&new, revision)];
    let (ours, theirs) = (commit_of(&account, &work), commit_of(&account, &work));
    assert!(matches!(fixture.ledger.commit(&theirs).await.unwrap(), Committed::Done { .. }));
    fixture.fake.fail("batch", &[Cut]);
    assert_eq!(fixture.ledger.commit(&ours).await.unwrap(), Committed::RowsChanged(vec![new.key.clone()]));
}

#[tokio::test]
async fn requests_during_an_outage_are_repeated_with_growing_pauses_and_then_fail() {
    let fixture = Fixture::new();
    let account = fixture.open_account().await;
    let (new, revision) = fixture.accepted(5).await;
    let commit = commit_of(&account, &[(&new, revision)]);
    fixture.fake.requests();
    fixture.fake.fail("batch", &[Refuse(503); 8]);
    let fault = fixture.ledger.commit(&commit).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Unavailable { .. }), "{fault:?}");
    assert_eq!(fixture.fake.requests().iter().filter(|kind| **kind == "batch").count(), 8);
    let pauses = fixture.world.pauses();
    let longest = [50, 100, 200, 400, 800, 1000, 1000].map(Duration::from_millis);
    assert_eq!(pauses.len(), longest.len());
    assert!(pauses.iter().zip(longest).all(|(pause, longest)| *pause <= longest), "{pauses:?}");
}

#[tokio::test]
async fn an_account_opening_whose_response_is_lost_is_recognized_as_ones_own() {
    let fixture = Fixture::new();
    // The insert is the account's entry in the list of its user, and the batch its row with the page.
    fixture.fake.fail("insert", &[ApplyAndCut]);
    fixture.fake.fail("batch", &[ApplyAndCut]);
    let account = fixture::account();
    let opening = opening(account);
    assert!(matches!(fixture.store.accounts.open(&opening).await.unwrap(), Opened::Created(_)));
    let Opened::Existing(existing) = fixture.store.accounts.open(&opening).await.unwrap() else {
        panic!("opened twice")
    };
    assert_eq!(existing.value, opening.after);
}

#[tokio::test]
async fn a_mark_whose_response_is_lost_is_done() {
    let fixture = Fixture::new();
    let (new, revision) = fixture.accepted(5).await;
    let marks = Marks { dead_letter: true, ..Marks::default() };
    fixture.fake.fail("merge", &[ApplyAndCut]);
    let marked = fixture.ledger.mark(&new.key, &revision, marks).await.unwrap();
    let stored = fixture.ledger.transaction(&new.key).await.unwrap().unwrap();
    assert_eq!((marked, marks), (Some(stored.revision), stored.marks));
    assert_eq!(fixture.ledger.mark(&new.key, &revision, marks).await.unwrap(), None);
}

#[tokio::test]
async fn a_swap_is_never_repeated() {
    let fixture = Fixture::new();
    fixture.fake.fail("insert", &[ApplyAndCut]);
    let swapped = fixture.store.sync.swap("gate", None, "held").await;
    assert!(matches!(swapped, Err(StoreFault::Unavailable { .. })));
    fixture.fake.fail("merge", &[Refuse(503)]);
    let revision = fixture.store.sync.get("gate").await.unwrap().unwrap().revision;
    let swapped = fixture.store.sync.swap("gate", Some(&revision), "open").await;
    assert!(matches!(swapped, Err(StoreFault::Unavailable { .. })));
    assert_eq!(fixture.fake.requests(), ["insert", "get", "merge"]);
}

#[tokio::test]
async fn a_row_is_absent_only_by_the_error_code_of_the_service() {
    let fixture = Fixture::new();
    fixture.fake.fail("get", &[Refuse(404)]);
    let read = fixture.ledger.account(fixture::account().key).await;
    assert!(matches!(read, Err(StoreFault::Refused { .. })), "{read:?}");
    assert_eq!(fixture.ledger.account(fixture::account().key).await.unwrap(), None);
}

#[tokio::test]
async fn a_send_is_repeated_and_a_receive_is_not() {
    let fixture = Fixture::new();
    let queue = QueueName::of_partition("work", 0);
    fixture.fake.fail("send", &[Refuse(503), ApplyAndCut]);
    fixture.store.queue.send(&queue, b"{}", Duration::ZERO).await.unwrap();
    fixture.fake.fail("receive", &[Refuse(500)]);
    let received = fixture.store.queue.receive(&queue, 32, Duration::from_secs(20)).await;
    assert!(matches!(received, Err(StoreFault::Unavailable { .. })));
    assert_eq!(fixture.fake.requests(), ["send", "send", "send", "receive"]);
    assert_eq!(fixture.counts(), [("receive", 1), ("send", 3)]);
}

#[tokio::test]
async fn a_delete_whose_response_is_lost_is_repeated() {
    let fixture = Fixture::new();
    let queue = QueueName::of_partition("work", 0);
    let lease = Lease { message_id: "m".to_owned(), pop_receipt: "r".to_owned() };
    fixture.fake.put_message();
    fixture.fake.fail("delete", &[ApplyAndCut]);
    assert_eq!(fixture.store.queue.delete(&queue, &lease).await.unwrap(), Held::Ours(()));
    assert_eq!(fixture.store.queue.delete(&queue, &lease).await.unwrap(), Held::Lost);
    // A lost response of an extension may hold a new receipt, so an extension is not repeated.
    fixture.fake.requests();
    fixture.fake.fail("update", &[ApplyAndCut]);
    let extended = fixture.store.queue.extend(&queue, &lease, b"{}", Duration::from_secs(20)).await;
    assert!(matches!(extended, Err(StoreFault::Unavailable { .. })));
    assert_eq!(fixture.fake.requests(), ["update"]);
}

/// A direct producer may write 64 KiB of text. A worker that receives it must be able to extend its lease
/// and to send it again, and must get an error if that is not possible.
#[tokio::test]
async fn a_large_message_of_a_direct_producer_can_be_extended_and_refused() {
    let fixture = Fixture::new();
    let queue = QueueName::of_partition("work", 0);
    let lease = Lease { message_id: "m".to_owned(), pop_receipt: "r".to_owned() };
    let text = format!("<x>{}</x>", "y".repeat(60_000));
    fixture.fake.fail("update", &[Refuse(404)]);
    let extended = fixture.store.queue.extend(&queue, &lease, text.as_bytes(), Duration::from_secs(20)).await;
    assert_eq!(extended.unwrap(), Held::Lost);
    fixture.store.queue.send(&queue, text.as_bytes(), Duration::ZERO).await.unwrap();
    assert_eq!(fixture.fake.requests(), ["update", "send"]);
    let bytes = vec![0xff; 60_000];
    let extended = fixture.store.queue.extend(&queue, &lease, &bytes, Duration::from_secs(20)).await;
    assert!(matches!(extended, Err(StoreFault::Refused { .. })), "{extended:?}");
    let sent = fixture.store.queue.send(&queue, &bytes, Duration::ZERO).await;
    assert!(matches!(sent, Err(StoreFault::Refused { .. })), "{sent:?}");
    assert_eq!(fixture.fake.requests(), [""; 0]);
}

#[tokio::test]
async fn a_missing_page_is_detected() {
    let fixture = Fixture::new();
    drop(fixture.open_account().await);
    let mut pages = Vec::new();
    for message in 1..=3 {
        let account = fixture.ledger.account(fixture::account().key).await.unwrap().unwrap();
        let (new, revision) = fixture.accepted(message).await;
        let commit = commit_of(&account, &[(&new, revision)]);
        assert!(matches!(fixture.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
        pages.push(commit.page);
    }
    assert_eq!(fixture.store.log.pages(fixture::account().key, 1, 10).await.unwrap(), pages);
    assert_eq!(fixture.fake.remove("/jrnl-00000000000000000002"), 1);
    let read = fixture.store.log.pages(fixture::account().key, 1, 10).await;
    assert!(matches!(read, Err(StoreFault::Corrupt { .. })), "{read:?}");
}

#[tokio::test]
async fn an_unknown_revision_is_a_conflict() {
    let fixture = Fixture::new();
    let unknown = Revision::new("W/\"datetime'0'\"");
    let swapped = fixture.store.sync.swap("gate", Some(&unknown), "open").await.unwrap();
    assert_eq!(swapped, postonce_shared::ports::sync_store::Swapped::Conflict);
}
