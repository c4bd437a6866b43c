//! The Azure adapter where no Azurite can go: Azurite never answers 503 and never loses an answer.
//! A storage service of our own does both, and each test counts the requests that it took.
#![expect(clippy::unwrap_used, reason = "test code")]
#![expect(clippy::disallowed_methods, reason = "the fake service runs beside the test")]

mod changes;
mod fake;
mod foreign_text;
mod means;
mod replays;
mod unclear;

use std::time::Duration;

use fake::Fault::{self, Cut, CutAndLandLate, DoAndAnswer, DoAndCut, DoAndEmpty, Empty, Refuse};
use means::{Bench, commit_of, deposit, inserted, revision_of, with_other_nonce};
use postonce_shared::adapters::azure::{AzureConnection, InvalidConnection};
use postonce_shared::domain::account::Revision;
use postonce_shared::domain::instruction::{Details, UnknownMembers};
use postonce_shared::domain::transaction::TransactionStatus;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{AcceptOutcome, Committed, Marks, NewTransaction, Opened};
use postonce_shared::ports::queue::{Held, Lease, QueueName};

#[test]
fn connection_strings_are_read_in_all_three_forms() {
    let emulator = AzureConnection::parse("UseDevelopmentStorage=true").unwrap();
    assert_eq!(emulator.table_endpoint(), "http://127.0.0.1:10002/devstoreaccount1");

    let cloud = AzureConnection::parse(
        "DefaultEndpointsProtocol=https;AccountName=bank1;AccountKey=a2V5;EndpointSuffix=core.example",
    )
    .unwrap();
    assert_eq!(cloud.blob_endpoint(), "https://bank1.blob.core.example");
    assert_eq!(cloud.account(), "bank1");

    let short = AzureConnection::parse("AccountName=bank1;AccountKey=a2V5").unwrap();
    assert_eq!(short.queue_endpoint(), "https://bank1.queue.core.windows.net");

    let explicit = AzureConnection::parse(
        "accountname=dev; AccountKey=a2V5; BlobEndpoint=http://h:1/dev/; QueueEndpoint=http://h:2/dev;TableEndpoint=http://h:3/dev;",
    )
    .unwrap();
    assert_eq!(explicit.blob_endpoint(), "http://h:1/dev");
    assert_eq!(explicit.table_endpoint(), "http://h:3/dev");
}

#[test]
fn a_wrong_connection_string_is_told_without_its_values() {
    let check = |text: &str, expected: InvalidConnection| {
        let error = AzureConnection::parse(text).unwrap_err();
        assert_eq!(error, expected, "{text}");
        assert!(!error.to_string().contains("c2VjcmV0"), "{error}");
    };
    check("", InvalidConnection::Missing("AccountName"));
    check("AccountName=a", InvalidConnection::Missing("AccountKey"));
    check("AccountName=a;c2VjcmV0", InvalidConnection::Malformed(2));
    check("AccountName=a;AccountName=b", InvalidConnection::Repeated("AccountName".to_owned()));
    check("AccountName=a;AccountKey=c2VjcmV0!", InvalidConnection::Invalid("AccountKey", "is not base64"));
    check("SharedAccessSignature=sv;AccountName=a", InvalidConnection::SharedAccessSignature);
    for endpoint in ["h:1", "ftp://h", "http://h?sig=c2VjcmV0"] {
        let text = format!("AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint={endpoint}");
        assert!(AzureConnection::parse(&text).is_err(), "{endpoint}");
    }
}

#[test]
fn the_key_is_not_shown() {
    let connection = AzureConnection::parse("AccountName=a;AccountKey=c2VjcmV0").unwrap();
    assert!(!format!("{connection:?}").contains("c2VjcmV0"));
}

#[tokio::test]
async fn a_store_opens_while_the_storage_is_away() {
    let bench = Bench::without_storage().await;
    for _ in 0..2 {
        assert!(matches!(bench.store.ledger.probe().await, Err(StoreFault::Unavailable { .. })));
    }
    assert!(bench.world.uptime_so_far() <= Duration::from_secs(20));
}

#[tokio::test]
async fn a_single_accept_is_one_insert() {
    let bench = Bench::new().await;
    let new = deposit(1);
    inserted(&bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap());
    assert_eq!(bench.fake.seen(), ["insert"]);
    bench.store.ledger.probe().await.unwrap();
    assert_eq!(bench.counts(), [("get", 1), ("insert", 1)]);
}

#[tokio::test]
async fn an_insert_whose_answer_is_lost_is_recognized_by_its_nonce() {
    for fault in [DoAndCut, DoAndAnswer(500), DoAndAnswer(503)] {
        let bench = Bench::new().await;
        bench.fake.fail("insert", &[fault]);
        inserted(&bench.store.ledger.accept(&[deposit(1)]).await.unwrap());
        assert_eq!(bench.fake.seen(), ["insert", "get"], "{fault:?}");
    }
}

#[tokio::test]
async fn an_insert_that_is_not_found_is_sent_again() {
    for fault in [Cut, Refuse(500), Refuse(503), Refuse(429)] {
        let bench = Bench::new().await;
        bench.fake.fail("insert", &[fault]);
        bench.fake.fail("get", &[Refuse(503)]);
        inserted(&bench.store.ledger.accept(&[deposit(1)]).await.unwrap());
        assert_eq!(bench.fake.seen(), ["insert", "get", "get", "insert"], "{fault:?}");
    }
}

#[tokio::test]
async fn an_insert_that_lands_late_is_still_ones_own() {
    let bench = Bench::new().await;
    bench.fake.fail("insert", &[CutAndLandLate]);
    inserted(&bench.store.ledger.accept(&[deposit(1)]).await.unwrap());
    assert_eq!(bench.fake.seen(), ["insert", "get", "insert", "get"]);
}

#[tokio::test]
async fn somebody_elses_row_is_not_taken_for_ones_own() {
    let bench = Bench::new().await;
    let first = deposit(1);
    inserted(&bench.store.ledger.accept(std::slice::from_ref(&first)).await.unwrap());
    bench.fake.fail("insert", &[Cut]);
    let outcomes = bench.store.ledger.accept(&[with_other_nonce(&first)]).await.unwrap();
    let AcceptOutcome::Existing(existing) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(existing.transaction.instruction, first.instruction);
    assert!(first.instruction.matches(&existing.fingerprint));
    assert_eq!(existing.transaction.accepted_at, first.accepted_at);
}

#[tokio::test]
async fn ones_own_row_that_is_final_is_no_work() {
    let bench = Bench::new().await;
    let account = bench.open_account().await;
    let new = deposit(1);
    let outcomes = bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap();
    let commit = commit_of(&account, &[(&new, revision_of(&outcomes[0]))]);
    assert!(matches!(bench.store.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
    let outcomes = bench.store.ledger.accept(&[new]).await.unwrap();
    let AcceptOutcome::Existing(existing) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(existing.transaction.status(), TransactionStatus::Posted);
}

#[tokio::test]
async fn a_group_is_one_batch() {
    let bench = Bench::new().await;
    let group: Vec<_> = (1..=100).map(deposit).collect();
    let outcomes = bench.store.ledger.accept(&group).await.unwrap();
    inserted(&outcomes);
    assert_eq!(bench.fake.seen(), ["batch"]);
    let read = bench.store.ledger.transaction(&group[7].key).await.unwrap().unwrap();
    assert_eq!(read.revision, revision_of(&outcomes[7]));
}

#[tokio::test]
async fn line_separators_within_texts_are_stored() {
    let bench = Bench::new().await;
    let text = "one\u{2028}two\u{2029}three \\u2028 \u{200b}";
    let group: Vec<_> = (1..=2)
        .map(|message| {
            let mut new = deposit(message);
            let metadata = [("\u{2029}".to_owned(), text.to_owned())].into();
            let details = Details::try_new(Some(text.to_owned()), metadata, &UnknownMembers::default());
            new.instruction.details = details.unwrap();
            new
        })
        .collect();
    inserted(&bench.store.ledger.accept(&group).await.unwrap());
    inserted(
        &bench
            .store
            .ledger
            .accept(&[NewTransaction { key: deposit(3).key, ..group[0].clone() }])
            .await
            .unwrap(),
    );
    assert_eq!(bench.fake.seen(), ["batch", "insert"]);
    for message in 1..=3 {
        let stored = bench.store.ledger.transaction(&deposit(message).key).await.unwrap().unwrap();
        assert_eq!(stored.transaction.instruction.details, group[0].instruction.details);
    }
}

#[tokio::test]
async fn a_batch_whose_answer_is_lost_or_empty_is_recognized() {
    for fault in [DoAndCut, DoAndEmpty, DoAndAnswer(500)] {
        let bench = Bench::new().await;
        bench.fake.fail("batch", &[fault]);
        inserted(&bench.store.ledger.accept(&[deposit(1), deposit(2)]).await.unwrap());
        assert_eq!(bench.fake.seen(), ["batch", "get", "get", "get"], "{fault:?}");
    }
}

#[tokio::test]
async fn a_batch_that_was_not_done_is_sent_again() {
    for fault in [Cut, Empty, Refuse(503)] {
        let bench = Bench::new().await;
        bench.fake.fail("batch", &[fault]);
        inserted(&bench.store.ledger.accept(&[deposit(1), deposit(2)]).await.unwrap());
        assert_eq!(bench.fake.seen(), ["batch", "get", "batch"], "{fault:?}");
    }
}

#[tokio::test]
async fn a_batch_that_lands_late_is_still_ones_own() {
    let bench = Bench::new().await;
    bench.fake.fail("batch", &[CutAndLandLate]);
    inserted(&bench.store.ledger.accept(&[deposit(1), deposit(2)]).await.unwrap());
    assert_eq!(bench.fake.seen(), ["batch", "get", "batch", "get", "get"]);
}

#[tokio::test]
async fn a_group_with_taken_keys_stores_the_others() {
    // Cut in two after a clear conflict; sorted out by reading after an unclear one.
    let faults: [&[Fault]; 3] = [&[], &[Cut], &[Empty]];
    for faults in faults {
        for size in [2, 3, 30] {
            let bench = Bench::new().await;
            let taken = deposit(1);
            inserted(&bench.store.ledger.accept(std::slice::from_ref(&taken)).await.unwrap());
            let mut group: Vec<_> = (2..=size).map(deposit).collect();
            group.insert(group.len().div_euclid(2), with_other_nonce(&taken));
            bench.fake.fail("batch", faults);
            let outcomes = bench.store.ledger.accept(&group).await.unwrap();
            for (new, outcome) in group.iter().zip(&outcomes) {
                let expect_existing = new.key == taken.key;
                assert_eq!(matches!(outcome, AcceptOutcome::Existing(_)), expect_existing);
                assert!(bench.store.ledger.transaction(&new.key).await.unwrap().is_some());
            }
        }
    }
}

#[tokio::test]
async fn a_commit_is_one_batch_and_gives_the_new_revision() {
    let bench = Bench::new().await;
    let account = bench.open_account().await;
    let group: Vec<_> = (1..=98).map(deposit).collect();
    let outcomes = bench.store.ledger.accept(&group).await.unwrap();
    let work: Vec<_> = group.iter().zip(outcomes.iter().map(revision_of)).collect();
    let commit = commit_of(&account, &work);
    bench.fake.seen();
    let Committed::Done { revision: Some(revision) } = bench.store.ledger.commit(&commit).await.unwrap()
    else {
        panic!("not done")
    };
    assert_eq!(bench.fake.seen(), ["batch"]);
    let read = bench.store.ledger.account(account.value.key).await.unwrap().unwrap();
    assert_eq!((read.value, read.revision), (commit.after.clone(), revision));
    assert_eq!(bench.store.ledger.commit(&commit).await.unwrap(), Committed::Stale);
    assert_eq!(bench.fake.seen(), ["get", "batch"]);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_recognized_by_its_nonce() {
    let cases: [(&[Fault], &[&str]); 6] = [
        (&[DoAndCut], &["batch", "get"]),
        (&[DoAndEmpty], &["batch", "get"]),
        (&[DoAndAnswer(500)], &["batch", "get"]),
        (&[CutAndLandLate], &["batch", "get", "batch", "get"]),
        (&[Cut, DoAndCut], &["batch", "get", "batch", "get"]),
        (&[Refuse(503), Empty, DoAndEmpty], &["batch", "get", "batch", "get", "batch", "get"]),
    ];
    for (faults, requests) in cases {
        let bench = Bench::new().await;
        let account = bench.open_account().await;
        let new = deposit(5);
        let outcomes = bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap();
        let commit = commit_of(&account, &[(&new, revision_of(&outcomes[0]))]);
        bench.fake.seen();
        bench.fake.fail("batch", faults);
        let committed = bench.store.ledger.commit(&commit).await.unwrap();
        assert_eq!(committed, Committed::Done { revision: None }, "{faults:?}");
        assert_eq!(bench.fake.seen(), requests, "{faults:?}");
        let read = bench.store.ledger.account(account.value.key).await.unwrap().unwrap();
        assert_eq!(read.value.version, 2, "{faults:?}");
    }
}

#[tokio::test]
async fn an_unclear_commit_that_somebody_overtook_is_stale() {
    let bench = Bench::new().await;
    let account = bench.open_account().await;
    let new = deposit(5);
    let outcomes = bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap();
    let work = [(&new, revision_of(&outcomes[0]))];
    let (ours, theirs) = (commit_of(&account, &work), commit_of(&account, &work));
    assert!(matches!(bench.store.ledger.commit(&theirs).await.unwrap(), Committed::Done { .. }));
    bench.fake.fail("batch", &[Cut]);
    assert_eq!(bench.store.ledger.commit(&ours).await.unwrap(), Committed::Stale);
}

#[tokio::test]
async fn what_stays_away_is_given_up_with_growing_pauses() {
    let bench = Bench::new().await;
    let account = bench.open_account().await;
    let new = deposit(5);
    let outcomes = bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap();
    let commit = commit_of(&account, &[(&new, revision_of(&outcomes[0]))]);
    bench.fake.seen();
    bench.fake.fail("batch", &[Refuse(503); 8]);
    let fault = bench.store.ledger.commit(&commit).await.unwrap_err();
    assert!(matches!(fault, StoreFault::Unavailable { .. }), "{fault:?}");
    assert_eq!(bench.fake.seen().iter().filter(|kind| **kind == "batch").count(), 8);
    let pauses = bench.world.pauses();
    let longest = [50, 100, 200, 400, 800, 1000, 1000].map(Duration::from_millis);
    assert_eq!(pauses.len(), longest.len());
    assert!(pauses.iter().zip(longest).all(|(pause, longest)| *pause <= longest), "{pauses:?}");
}

#[tokio::test]
async fn an_opening_whose_answer_is_lost_is_still_ones_own() {
    let bench = Bench::new().await;
    // The first insert is the name in the user's list.
    bench.fake.fail("insert", &[DoAndCut, DoAndCut]);
    let account = means::account();
    assert!(matches!(bench.store.accounts.open(&account).await.unwrap(), Opened::Created(_)));
    let Opened::Existing(existing) = bench.store.accounts.open(&account).await.unwrap() else {
        panic!("opened twice")
    };
    assert_eq!(existing.value, account);
}

#[tokio::test]
async fn a_mark_whose_answer_is_lost_is_done() {
    let bench = Bench::new().await;
    let new = deposit(5);
    let outcomes = bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap();
    let revision = revision_of(&outcomes[0]);
    let marks = Marks { dead_letter: true, ..Marks::default() };
    bench.fake.fail("merge", &[DoAndCut]);
    let marked = bench.store.ledger.mark(&new.key, &revision, marks).await.unwrap();
    let stored = bench.store.ledger.transaction(&new.key).await.unwrap().unwrap();
    assert_eq!((marked, marks), (Some(stored.revision), stored.marks));
    assert_eq!(bench.store.ledger.mark(&new.key, &revision, marks).await.unwrap(), None);
}

#[tokio::test]
async fn a_swap_is_never_repeated() {
    let bench = Bench::new().await;
    bench.fake.fail("insert", &[DoAndCut]);
    let swapped = bench.store.sync.swap("gate", None, "held").await;
    assert!(matches!(swapped, Err(StoreFault::Unavailable { .. })));
    bench.fake.fail("merge", &[Refuse(503)]);
    let revision = bench.store.sync.get("gate").await.unwrap().unwrap().revision;
    let swapped = bench.store.sync.swap("gate", Some(&revision), "open").await;
    assert!(matches!(swapped, Err(StoreFault::Unavailable { .. })));
    assert_eq!(bench.fake.seen(), ["insert", "get", "merge"]);
}

#[tokio::test]
async fn only_the_services_own_word_makes_a_row_absent() {
    let bench = Bench::new().await;
    bench.fake.fail("get", &[Refuse(404)]);
    let read = bench.store.ledger.account(means::account().key).await;
    assert!(matches!(read, Err(StoreFault::Refused { .. })), "{read:?}");
    assert_eq!(bench.store.ledger.account(means::account().key).await.unwrap(), None);
}

#[tokio::test]
async fn sending_is_repeated_and_receiving_is_not() {
    let bench = Bench::new().await;
    let queue = QueueName::of_partition("work", 0);
    bench.fake.fail("send", &[Refuse(503), DoAndCut]);
    bench.store.queue.send(&queue, b"{}", Duration::ZERO).await.unwrap();
    bench.fake.fail("receive", &[Refuse(500)]);
    let received = bench.store.queue.receive(&queue, 32, Duration::from_secs(20)).await;
    assert!(matches!(received, Err(StoreFault::Unavailable { .. })));
    assert_eq!(bench.fake.seen(), ["send", "send", "send", "receive"]);
    assert_eq!(bench.counts(), [("receive", 1), ("send", 3)]);
}

#[tokio::test]
async fn a_message_is_deleted_even_when_the_answer_is_lost() {
    let bench = Bench::new().await;
    let queue = QueueName::of_partition("work", 0);
    let lease = Lease { message_id: "m".to_owned(), pop_receipt: "r".to_owned() };
    bench.fake.put_message();
    bench.fake.fail("delete", &[DoAndCut]);
    assert_eq!(bench.store.queue.delete(&queue, &lease).await.unwrap(), Held::Ours(()));
    assert_eq!(bench.store.queue.delete(&queue, &lease).await.unwrap(), Held::Lost);
    // An extension may have given a new receipt that nobody knows: not repeated.
    bench.fake.seen();
    bench.fake.fail("update", &[DoAndCut]);
    let extended = bench.store.queue.extend(&queue, &lease, b"{}", Duration::from_secs(20)).await;
    assert!(matches!(extended, Err(StoreFault::Unavailable { .. })));
    assert_eq!(bench.fake.seen(), ["update"]);
}

/// A direct producer may write 64 KiB of text. Whoever received it must be able to prolong its lease,
/// to send it again, and to hear of it when that is not possible.
#[tokio::test]
async fn a_large_message_of_a_direct_producer_is_no_bug_of_ours() {
    let bench = Bench::new().await;
    let queue = QueueName::of_partition("work", 0);
    let lease = Lease { message_id: "m".to_owned(), pop_receipt: "r".to_owned() };
    let text = format!("<x>{}</x>", "y".repeat(60_000));
    bench.fake.fail("update", &[Refuse(404)]);
    let extended = bench.store.queue.extend(&queue, &lease, text.as_bytes(), Duration::from_secs(20)).await;
    assert_eq!(extended.unwrap(), Held::Lost);
    bench.store.queue.send(&queue, text.as_bytes(), Duration::ZERO).await.unwrap();
    assert_eq!(bench.fake.seen(), ["update", "send"]);
    let bytes = vec![0xff; 60_000];
    let extended = bench.store.queue.extend(&queue, &lease, &bytes, Duration::from_secs(20)).await;
    assert!(matches!(extended, Err(StoreFault::Refused { .. })), "{extended:?}");
    let sent = bench.store.queue.send(&queue, &bytes, Duration::ZERO).await;
    assert!(matches!(sent, Err(StoreFault::Refused { .. })), "{sent:?}");
    assert_eq!(bench.fake.seen(), [""; 0]);
}

#[tokio::test]
async fn a_page_that_was_removed_is_noticed() {
    let bench = Bench::new().await;
    drop(bench.open_account().await);
    let mut pages = Vec::new();
    for message in 1..=3 {
        let account = bench.store.ledger.account(means::account().key).await.unwrap().unwrap();
        let new = deposit(message);
        let revision = revision_of(&bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap()[0]);
        let commit = commit_of(&account, &[(&new, revision)]);
        assert!(matches!(bench.store.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
        pages.extend(commit.page);
    }
    assert_eq!(bench.store.log.pages(means::account().key, 1, 10).await.unwrap(), pages);
    assert_eq!(bench.fake.remove("/jrnl-00000000000000000002"), 1);
    let read = bench.store.log.pages(means::account().key, 1, 10).await;
    assert!(matches!(read, Err(StoreFault::Corrupt { .. })), "{read:?}");
}

#[tokio::test]
async fn a_wrong_revision_is_a_conflict() {
    let bench = Bench::new().await;
    let unknown = Revision::new("W/\"datetime'0'\"");
    let swapped = bench.store.sync.swap("gate", Some(&unknown), "open").await.unwrap();
    assert_eq!(swapped, postonce_shared::ports::sync_store::Swapped::Conflict);
}
