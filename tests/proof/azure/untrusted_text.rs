//! Texts from outside: from queues, clients and damaged responses. None of them becomes another header, another
//! address or another element of a request.

use std::time::Duration;

use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::captured_output::Written;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;
use reqwest::Url;

use crate::azure::fixture::{Fixture, account, commit_of, deposit};
use postonce_tests::fake_storage::Fault::{ApplyAndCut, Refuse};

const FORGED: [&str; 8] =
    ["*", " *", "* ", "\nif-match: *", "x\r\nif-match: *", "W/\"*\"", "", "W/\"datetime'1'\"\nif-match: *"];

fn work_queue() -> QueueName {
    QueueName::of_partition("work", 0)
}

fn queries(target: &str) -> Vec<(String, String)> {
    let url = Url::parse(&format!("http://h{target}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

#[tokio::test]
async fn a_forged_revision_matches_no_row_and_sends_no_request() {
    let fixture = Fixture::new();
    let opened = fixture.open_account().await;
    let (new, revision) = fixture.accepted(1).await;
    drop(fixture.fake.requests());
    for forged in FORGED.map(Revision::new) {
        let guarded = Versioned { value: opened.value.clone(), revision: forged.clone() };
        let commits =
            [commit_of(&opened, &[(&new, forged.clone())]), commit_of(&guarded, &[(&new, revision.clone())])];
        for commit in commits {
            assert_eq!(fixture.ledger.commit(&commit).await.unwrap(), Committed::Stale, "{forged:?}");
        }
        let change = change_of_terms(&opened.value, opened.value.overdraft_limit, AccountStatus::Open);
        assert_eq!(fixture.store.accounts.change(&forged, &change).await.unwrap(), None, "{forged:?}");
        let swapped = fixture.store.sync.swap("value", Some(&forged), "x").await.unwrap();
        assert_eq!(swapped, Swapped::Conflict, "{forged:?}");
    }
    assert!(fixture.fake.requests().is_empty(), "a precondition that cannot hold is not sent");
    assert_eq!(fixture.ledger.mark(&new.key, &Revision::new("*"), Marks::default()).await.unwrap(), None);
    assert_eq!(fixture.fake.requests(), ["get"], "a mark reads the row first");
    let commit = commit_of(&opened, &[(&new, revision)]);
    assert!(matches!(fixture.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
}

#[tokio::test]
async fn a_response_with_an_invalid_etag_is_a_fault_of_the_service() {
    let fixture = Fixture::new();
    fixture.open_account().await;
    drop(fixture.ledger.accept(&[deposit(1)], fresh_nonce()).await.unwrap());
    fixture.fake.damage_etags();
    let faults = [
        fixture.ledger.account(account().key).await.err(),
        fixture.ledger.transaction(&deposit(1).key).await.err(),
        fixture.ledger.accept(&[deposit(2)], fresh_nonce()).await.err(),
        fixture.ledger.accept(&[deposit(3), deposit(4)], fresh_nonce()).await.err(),
        fixture.store.sync.swap("value", None, "x").await.err(),
    ];
    for (index, fault) in faults.iter().enumerate() {
        assert!(matches!(fault, Some(StoreFault::Unavailable { .. })), "{index}: {fault:?}");
    }
}

/// Captures the log until the guard is dropped.
fn logged() -> (Written, tracing::subscriber::DefaultGuard) {
    let written = Written::default();
    let writer = written.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    (written, tracing::subscriber::set_default(log))
}

#[tokio::test]
async fn a_commit_whose_content_differs_from_its_row_is_logged_as_an_error() {
    for (cents, is_logged) in [(1, false), (2, true)] {
        let fixture = Fixture::new();
        let opened = fixture.open_account().await;
        let (new, revision) = fixture.accepted(1).await;
        let amount = Amount::try_new(cents, Currency::parse("EUR").unwrap()).unwrap();
        let instruction = Instruction { amount, ..new.instruction.clone() };
        let committed = Submission { instruction, ..new.clone() };
        fixture.fake.fail("batch", &[ApplyAndCut]);
        let (written, guard) = logged();
        let answer = fixture.ledger.commit(&commit_of(&opened, &[(&committed, revision)])).await;
        drop(guard);
        assert_eq!(answer.unwrap(), Committed::Done { revision: None }, "the commit itself succeeds");
        let lines = written.lines().join("\n");
        assert_eq!(lines.contains("ERROR") && lines.contains("contradicts the row"), is_logged, "{lines}");
        assert!(!is_logged || lines.contains(r#"stored=("deposit", "1", "EUR")"#), "{lines}");
        assert!(!is_logged || lines.contains(r#"committed=("deposit", "2", "EUR")"#), "{lines}");
    }
}

#[tokio::test]
async fn a_message_text_stays_one_element() {
    let fixture = Fixture::new();
    // Too long for base64, so the message is written back as text.
    let text = format!("</MessageText></QueueMessage>&amp;<![CDATA[x]]>\"'{}", "y".repeat(50_000));
    fixture.store.queue.send(&work_queue(), text.as_bytes(), Duration::ZERO).await.unwrap();
    let lease = Lease { message_id: "m".to_owned(), pop_receipt: "r".to_owned() };
    // The fake does not answer as the service does; the test checks the request.
    drop(fixture.store.queue.extend(&work_queue(), &lease, text.as_bytes(), Duration::from_secs(1)).await);
    let asked = fixture.fake.targets();
    assert_eq!(asked.len(), 2);
    for (_, body) in asked {
        let inside = body.strip_prefix("<QueueMessage><MessageText>").unwrap();
        let inside = inside.strip_suffix("</MessageText></QueueMessage>").unwrap();
        assert!(!inside.contains(['<', '>']), "{inside:.100}");
        assert_eq!(quick_xml::escape::unescape(inside).unwrap(), text);
    }
}

#[tokio::test]
async fn receipts_are_escaped_and_a_message_id_addresses_one_message() {
    let fixture = Fixture::new();
    let receipt = "r&visibilitytimeout=0#/../x?%00 +\r\nx-ms: 1";
    let lease = Lease { message_id: "m-1".to_owned(), pop_receipt: receipt.to_owned() };
    drop(fixture.store.queue.delete(&work_queue(), &lease).await.unwrap());
    let asked = fixture.fake.targets();
    let (target, _) = &asked[0];
    assert!(target.starts_with("/bank/test-work-0/messages/m-1?popreceipt="), "{target}");
    assert_eq!(queries(target), [("popreceipt".to_owned(), receipt.to_owned())]);
    // An address without its last part is that of all messages of the queue.
    for id in ["", ".", "..", "%2e%2e", "a/b", "../../other/messages/m", "m?x=1", "m#", "m\n", "\u{fc}"] {
        let lease = Lease { message_id: id.to_owned(), pop_receipt: "r".to_owned() };
        assert_eq!(fixture.store.queue.delete(&work_queue(), &lease).await.unwrap(), Held::Lost, "{id:?}");
        let extended = fixture.store.queue.extend(&work_queue(), &lease, b"{}", Duration::from_secs(1)).await;
        assert!(matches!(extended.unwrap(), Held::Lost), "{id:?}");
    }
    assert!(fixture.fake.targets().is_empty(), "no request is sent for such an id");
}

fn cursor(listing: &str, partition: &str, row: &str) -> String {
    hex::encode(serde_json::json!({ "l": listing, "p": partition, "r": row }).to_string())
}

#[tokio::test]
async fn a_forged_cursor_stays_within_its_listing() {
    let fixture = Fixture::new();
    let key = account().key;
    let listing = format!("{}-{}/accepted", key.user.simple(), key.account.simple());
    let (partition, row) = ("x'&$filter=true#", "y?$top=9/..%0d%0aa:b");
    let list = async |cursor: &str| {
        let partner: Option<&PartnerId> = None;
        fixture.store.log.by_status(key, TransactionStatus::Accepted, partner, Some(cursor), 5).await
    };
    assert!(list(&cursor(&listing, partition, row)).await.unwrap().items.is_empty());
    let asked = fixture.fake.targets();
    let queries_of = |name: &str| {
        let found = queries(&asked[0].0).into_iter().filter(|(found, _)| found == name);
        found.map(|(_, value)| value).collect::<Vec<_>>()
    };
    let own = format!("PartitionKey eq '{}-{}' and ", key.user.simple(), key.account.simple());
    assert!(matches!(&*queries_of("$filter"), [filter] if filter.starts_with(&own)), "{asked:?}");
    assert_eq!(queries_of("$top"), ["5"]);
    assert_eq!(queries_of("NextPartitionKey"), [partition]);
    assert_eq!(queries_of("NextRowKey"), [row]);
    for bad in ["x\ny", "x y", "\u{fc}", "\0"] {
        for cursor in [cursor(&listing, bad, "r"), cursor(&listing, "p", bad), cursor("other", "p", "r")] {
            assert!(matches!(list(&cursor).await, Err(StoreFault::ForeignCursor { .. })), "{bad:?}");
        }
    }
    assert!(fixture.fake.targets().is_empty());

    fixture.fake.fail("get", &[Refuse(403)]);
    let forged = cursor("payloads.p", "m&prefix=&comp=x#", "");
    drop(fixture.store.payloads.list("p", Some(&forged), 5).await.unwrap_err());
    let asked = fixture.fake.targets();
    let found = queries(&asked[0].0);
    assert!(found.contains(&("marker".to_owned(), "m&prefix=&comp=x#".to_owned())), "{asked:?}");
    assert_eq!(found.iter().filter(|(name, _)| name == "prefix").count(), 1, "{asked:?}");
}

#[tokio::test]
async fn an_invalid_row_name_sends_no_request() {
    let fixture = Fixture::new();
    let decided =
        Resolution { kind: ResolutionKind::Replayed, by: "ops".to_owned(), at: Timestamp::from_unix_ms(3) };
    for id in ["", "x')", "x',RowKey='y", "../x", "x\n", "x y", "%27", "\u{fc}", &"x".repeat(600)] {
        assert!(fixture.store.api_keys.find(id).await.unwrap().is_none());
        assert!(!fixture.store.api_keys.revoke(id, Timestamp::from_unix_ms(1)).await.unwrap());
        if !id.is_empty() {
            assert!(fixture.store.dead_letters.find(id).await.unwrap().is_none());
            assert!(!fixture.store.dead_letters.resolve(id, &decided).await.unwrap());
        }
    }
    assert!(fixture.fake.targets().is_empty());
}
