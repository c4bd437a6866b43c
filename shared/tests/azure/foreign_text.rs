//! Texts that come from outside: from queues, clients and damaged answers. None of them ever becomes another
//! header, another address or another element of a request.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::domain::account::{Revision, Versioned};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::domain::money::{Amount, Currency};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::TransactionStatus;
use postonce_shared::ports::dead_letters::{Resolution, ResolutionKind};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Marks, NewTransaction};
use postonce_shared::ports::queue::{Held, Lease, QueueName};
use postonce_shared::ports::sync_store::Swapped;
use reqwest::Url;

use crate::fake::Fault::{DoAndCut, Refuse};
use crate::means::{Bench, account, commit_of, deposit, revision_of};

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
async fn a_forged_revision_is_no_state_of_a_row_and_sends_no_request() {
    let bench = Bench::new().await;
    let opened = bench.open_account().await;
    let new = deposit(1);
    let revision = revision_of(&bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap()[0]);
    drop(bench.fake.seen());
    for forged in FORGED.map(Revision::new) {
        let guarded = Versioned { value: opened.value.clone(), revision: forged.clone() };
        let commits =
            [commit_of(&opened, &[(&new, forged.clone())]), commit_of(&guarded, &[(&new, revision.clone())])];
        for commit in commits {
            assert_eq!(bench.store.ledger.commit(&commit).await.unwrap(), Committed::Stale, "{forged:?}");
        }
        assert_eq!(bench.store.accounts.change(&forged, &opened.value).await.unwrap(), None, "{forged:?}");
        let swapped = bench.store.sync.swap("value", Some(&forged), "x").await.unwrap();
        assert_eq!(swapped, Swapped::Conflict, "{forged:?}");
    }
    assert!(bench.fake.seen().is_empty(), "a guard that cannot hold is not sent");
    assert_eq!(bench.store.ledger.mark(&new.key, &Revision::new("*"), Marks::default()).await.unwrap(), None);
    assert_eq!(bench.fake.seen(), ["get"], "a mark looks at the row first");
    let commit = commit_of(&opened, &[(&new, revision)]);
    assert!(matches!(bench.store.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
}

#[tokio::test]
async fn an_answer_with_another_etag_is_a_fault_of_the_service() {
    let bench = Bench::new().await;
    bench.open_account().await;
    drop(bench.store.ledger.accept(&[deposit(1)]).await.unwrap());
    bench.fake.damage_etags();
    let faults = [
        bench.store.ledger.account(account().key).await.err(),
        bench.store.ledger.transaction(&deposit(1).key).await.err(),
        bench.store.ledger.accept(&[deposit(2)]).await.err(),
        bench.store.ledger.accept(&[deposit(3), deposit(4)]).await.err(),
        bench.store.sync.swap("value", None, "x").await.err(),
    ];
    for (index, fault) in faults.iter().enumerate() {
        assert!(matches!(fault, Some(StoreFault::Unavailable { .. })), "{index}: {fault:?}");
    }
}

/// What is logged until the guard is dropped.
fn logged() -> (Arc<Mutex<Vec<u8>>>, tracing::subscriber::DefaultGuard) {
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Arc::new(Mutex::default());
    let written = Arc::clone(&lines);
    let log = tracing_subscriber::fmt().with_ansi(false);
    let log = log.with_writer(move || Lines(Arc::clone(&written))).finish();
    (lines, tracing::subscriber::set_default(log))
}

#[tokio::test]
async fn a_commit_of_other_content_than_its_row_alarms() {
    for (cents, alarms) in [(1, false), (2, true)] {
        let bench = Bench::new().await;
        let opened = bench.open_account().await;
        let new = deposit(1);
        let revision = revision_of(&bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap()[0]);
        let amount = Amount::try_new(cents, Currency::parse("EUR").unwrap()).unwrap();
        let instruction = Instruction { amount, ..new.instruction.clone() };
        let committed = NewTransaction { instruction, ..new.clone() };
        bench.fake.fail("batch", &[DoAndCut]);
        let (lines, guard) = logged();
        let answer = bench.store.ledger.commit(&commit_of(&opened, &[(&committed, revision)])).await;
        drop(guard);
        assert_eq!(answer.unwrap(), Committed::Done { revision: None }, "the answer stays as it is");
        let lines = String::from_utf8(lines.lock().clone()).unwrap();
        assert_eq!(lines.contains("ERROR") && lines.contains("contradicts the row"), alarms, "{lines}");
        assert!(!alarms || lines.contains(r#"stored=("deposit", "1", "EUR")"#), "{lines}");
        assert!(!alarms || lines.contains(r#"committed=("deposit", "2", "EUR")"#), "{lines}");
    }
}

#[tokio::test]
async fn a_text_of_a_message_stays_one_text() {
    let bench = Bench::new().await;
    // Too long for base64, so that it goes back as the text that it came as.
    let text = format!("</MessageText></QueueMessage>&amp;<![CDATA[x]]>\"'{}", "y".repeat(50_000));
    bench.store.queue.send(&work_queue(), text.as_bytes(), Duration::ZERO).await.unwrap();
    let lease = Lease { message_id: "m".to_owned(), pop_receipt: "r".to_owned() };
    // The fake does not answer it as the service does; what was sent counts.
    drop(bench.store.queue.extend(&work_queue(), &lease, text.as_bytes(), Duration::from_secs(1)).await);
    let asked = bench.fake.asked();
    assert_eq!(asked.len(), 2);
    for (_, body) in asked {
        let inside = body.strip_prefix("<QueueMessage><MessageText>").unwrap();
        let inside = inside.strip_suffix("</MessageText></QueueMessage>").unwrap();
        assert!(!inside.contains(['<', '>']), "{inside:.100}");
        assert_eq!(quick_xml::escape::unescape(inside).unwrap(), text);
    }
}

#[tokio::test]
async fn receipts_are_quoted_and_ids_of_messages_name_one_message() {
    let bench = Bench::new().await;
    let receipt = "r&visibilitytimeout=0#/../x?%00 +\r\nx-ms: 1";
    let lease = Lease { message_id: "m-1".to_owned(), pop_receipt: receipt.to_owned() };
    drop(bench.store.queue.delete(&work_queue(), &lease).await.unwrap());
    let asked = bench.fake.asked();
    let (target, _) = &asked[0];
    assert!(target.starts_with("/bank/test-work-0/messages/m-1?popreceipt="), "{target}");
    assert_eq!(queries(target), [("popreceipt".to_owned(), receipt.to_owned())]);
    // An address whose last part is left out is that of all messages of the queue.
    for id in ["", ".", "..", "%2e%2e", "a/b", "../../other/messages/m", "m?x=1", "m#", "m\n", "\u{fc}"] {
        let lease = Lease { message_id: id.to_owned(), pop_receipt: "r".to_owned() };
        assert_eq!(bench.store.queue.delete(&work_queue(), &lease).await.unwrap(), Held::Lost, "{id:?}");
        let extended = bench.store.queue.extend(&work_queue(), &lease, b"{}", Duration::from_secs(1)).await;
        assert!(matches!(extended.unwrap(), Held::Lost), "{id:?}");
    }
    assert!(bench.fake.asked().is_empty(), "no such message is asked for");
}

fn cursor(listing: &str, partition: &str, row: &str) -> String {
    hex::encode(serde_json::json!({ "l": listing, "p": partition, "r": row }).to_string())
}

#[tokio::test]
async fn a_forged_cursor_stays_within_its_listing() {
    let bench = Bench::new().await;
    let key = account().key;
    let listing = format!("{}-{}/accepted", key.user.simple(), key.account.simple());
    let (partition, row) = ("x'&$filter=true#", "y?$top=9/..%0d%0aa:b");
    let list = async |cursor: &str| {
        let partner: Option<&PartnerId> = None;
        bench.store.log.by_status(key, TransactionStatus::Accepted, partner, Some(cursor), 5).await
    };
    assert!(list(&cursor(&listing, partition, row)).await.unwrap().items.is_empty());
    let asked = bench.fake.asked();
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
    assert!(bench.fake.asked().is_empty());

    bench.fake.fail("get", &[Refuse(403)]);
    let forged = cursor("payloads.p", "m&prefix=&comp=x#", "");
    drop(bench.store.payloads.list("p", Some(&forged), 5).await.unwrap_err());
    let asked = bench.fake.asked();
    let found = queries(&asked[0].0);
    assert!(found.contains(&("marker".to_owned(), "m&prefix=&comp=x#".to_owned())), "{asked:?}");
    assert_eq!(found.iter().filter(|(name, _)| name == "prefix").count(), 1, "{asked:?}");
}

#[tokio::test]
async fn a_name_that_no_row_can_have_is_not_asked_for() {
    let bench = Bench::new().await;
    let decided =
        Resolution { kind: ResolutionKind::Replayed, by: "ops".to_owned(), at: Timestamp::from_unix_ms(3) };
    for id in ["", "x')", "x',RowKey='y", "../x", "x\n", "x y", "%27", "\u{fc}", &"x".repeat(600)] {
        assert!(bench.store.api_keys.find(id).await.unwrap().is_none());
        assert!(!bench.store.api_keys.revoke(id, Timestamp::from_unix_ms(1)).await.unwrap());
        if !id.is_empty() {
            assert!(bench.store.dead_letters.find(id).await.unwrap().is_none());
            assert!(!bench.store.dead_letters.resolve(id, &decided).await.unwrap());
        }
    }
    assert!(bench.fake.asked().is_empty());
}
