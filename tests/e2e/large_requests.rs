//! Requests of the largest size and with unusual texts are stored completely: in the log, with others in an
//! envelope, and on the statement.

use futures::future::join_all;
use postonce_tests::prelude::*;
use serde_json::{Map, Value, json};

/// Number of concurrent requests: several envelopes, and more than one commit.
const REQUESTS: usize = 150;

on_both_stores![
    many_of_the_largest_requests_are_posted_and_returned_unchanged,
    unusual_texts_are_returned_unchanged,
];

async fn many_of_the_largest_requests_are_posted_and_returned_unchanged(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    // 20 members and 2048 bytes, of characters that are longer when escaped.
    let metadata: Map<String, Value> =
        (0..20).map(|index| (format!("{index:02}"), Value::from("\"".repeat(100)))).collect();
    let submission =
        Submission::deposit("1.00").with("metadata", metadata).with("reference", "🦀".repeat(140));
    let ids: Vec<_> = (0..REQUESTS).map(|_| fresh_id()).collect();
    let answers = join_all(ids.iter().map(|id| client.submit(account, *id, &submission))).await;
    for answer in answers {
        assert_eq!(answer.expect(202).body.get("metadata"), submission.body.get("metadata"));
    }
    client.until_drained(wait::TIMEOUT).await;
    let statement = client.listing(account, None, 50).await;
    assert_eq!(statement.len(), REQUESTS);
    for line in &statement {
        assert_eq!(line.get("metadata"), submission.body.get("metadata"));
        assert_eq!(line.get("reference"), submission.body.get("reference"));
    }
}

async fn unusual_texts_are_returned_unchanged(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let texts = [
        "Grüße & <Søn> \"Ängström\" '; drop table ledger; --",
        "日本語 العربية עברית 👩‍👩‍👧‍👦 \u{10ffff}",
        "\u{feff}\u{200b}\u{202e} line\u{2028}paragraph\u{2029}end",
        "{} {\"a\":1} [] }{ \\ \\\\ \\u0041 %00 $batch --changeset",
        "null",
        "true",
        "0012.50",
        " spaces around ",
    ];
    for text in texts {
        let metadata = json!({"text": text, "__proto__": "x", "PartitionKey": "y", "a.b$c": text});
        let submission = Submission::deposit("1.00").with("reference", text).with("metadata", metadata);
        let id = fresh_id();
        let posted = client.post(account, id, &submission).await;
        assert_eq!(posted.body.get("reference"), submission.body.get("reference"));
        assert_eq!(posted.body.get("metadata"), submission.body.get("metadata"));
        assert_eq!(
            client.submit(account, id, &submission).await.expect(200).body,
            posted.body,
            "it is a replay"
        );
    }
    assert_eq!(client.listing(account, None, 100).await.len(), texts.len());
}
