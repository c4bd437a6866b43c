//! Requests as large and as strange as they may be travel whole: through the log, many to an
//! envelope, and onto the statement.

use futures::future::join_all;
use postonce_tests::client::Wish;
use postonce_tests::scenario::{Plan, Stand, fresh_account, fresh_id};
use postonce_tests::wait;
use serde_json::{Map, Value, json};

/// Requests at once: several envelopes, and more than one commit.
const REQUESTS: usize = 150;

on_both_stands![
    the_largest_requests_at_once_are_posted_and_come_back_unchanged,
    strange_texts_come_back_unchanged,
];

async fn the_largest_requests_at_once_are_posted_and_come_back_unchanged(stand: Stand) {
    let bank = Plan::on(stand).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    // 20 members and 2048 bytes, of characters that grow when they are escaped.
    let metadata: Map<String, Value> =
        (0..20).map(|index| (format!("{index:02}"), Value::from("\"".repeat(100)))).collect();
    let wish = Wish::deposit("1.00").with("metadata", metadata).with("reference", "🦀".repeat(140));
    let ids: Vec<_> = (0..REQUESTS).map(|_| fresh_id()).collect();
    let answers = join_all(ids.iter().map(|id| client.submit(account, *id, &wish))).await;
    for answer in answers {
        assert_eq!(answer.expect(202).body.get("metadata"), wish.body.get("metadata"));
    }
    client.until_drained(wait::PATIENCE).await;
    let statement = client.listing(account, None, 50).await;
    assert_eq!(statement.len(), REQUESTS);
    for line in &statement {
        assert_eq!(line.get("metadata"), wish.body.get("metadata"));
        assert_eq!(line.get("reference"), wish.body.get("reference"));
    }
}

async fn strange_texts_come_back_unchanged(stand: Stand) {
    let bank = Plan::on(stand).start().await;
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
        let wish = Wish::deposit("1.00").with("reference", text).with("metadata", metadata);
        let id = fresh_id();
        let posted = client.post(account, id, &wish).await;
        assert_eq!(posted.body.get("reference"), wish.body.get("reference"));
        assert_eq!(posted.body.get("metadata"), wish.body.get("metadata"));
        assert_eq!(client.submit(account, id, &wish).await.expect(200).body, posted.body, "it is a replay");
    }
    assert_eq!(client.listing(account, None, 100).await.len(), texts.len());
}
