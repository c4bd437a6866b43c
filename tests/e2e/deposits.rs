//! One partner and one account: the first deposit, a rejection, and the meaning of an id.

use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;

on_both_stores![
    a_first_deposit_is_accepted_and_then_posted,
    an_overdraft_is_rejected_and_the_rejection_is_replayed,
    a_reused_id_with_other_content_is_refused,
    two_partners_may_use_the_same_id;
    on_sqlite:
    the_same_content_in_another_notation_is_a_replay,
];

async fn a_first_deposit_is_accepted_and_then_posted(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;

    let submission = Submission::deposit("125.50").with("reference", "invoice 7");
    let accepted = client.submit(account, id, &submission).await.expect(202);
    assert!(accepted.header("location").ends_with(&format!("{}/transactions/{id}", path_of(account))));
    assert_eq!(accepted.text_at("/message_id"), id.to_string());
    assert_eq!(accepted.text_at("/type"), "deposit");
    assert_eq!(accepted.text_at("/amount"), "125.50");

    let posted = client.until_final(account, id).await.expect(200);
    assert_eq!(posted.transaction_status(), "posted");
    assert_eq!(posted.number_at("/sequence"), 1);
    assert_eq!(posted.text_at("/balance_after"), "125.50");
    assert_eq!(posted.text_at("/reference"), "invoice 7");
    assert!(OrderNumber::parse(posted.text_at("/order_number")).is_ok(), "{posted:?}");
    assert_eq!(client.balance(account).await, "125.50");

    let second = client.submit_and_wait(account, fresh_id(), &Submission::deposit("0.5")).await.expect(200);
    assert_eq!(second.header("preference-applied"), "wait=30");
    assert_eq!(second.text_at("/amount"), "0.50");
    assert_eq!(second.text_at("/balance_after"), "126.00");

    let statement = client.listing(account, None, 1).await;
    assert_eq!(statement, [posted.body, second.body]);
}

async fn an_overdraft_is_rejected_and_the_rejection_is_replayed(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open_with(account, "EUR", "5.00").await;
    drop(client.post(account, fresh_id(), &Submission::deposit("10.00")).await);

    let (id, submission) = (fresh_id(), Submission::withdrawal("15.01"));
    let rejected = client.submit_and_wait(account, id, &submission).await.expect(200);
    assert_eq!(rejected.transaction_status(), "rejected");
    assert_eq!(rejected.text_at("/reason"), "insufficient_funds");

    // The account could pay now, but the rejection is final.
    drop(client.post(account, fresh_id(), &Submission::deposit("100.00")).await);
    let again = client.submit(account, id, &submission).await.expect(200);
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(again.body, rejected.body);
    assert_eq!(client.balance(account).await, "110.00");

    drop(client.post(account, fresh_id(), &Submission::withdrawal("115.00")).await);
    assert_eq!(client.balance(account).await, "-5.00", "the overdraft limit may be used to the end");
    assert_eq!(client.listing(account, Some("rejected"), 100).await, [rejected.body]);
}

async fn a_reused_id_with_other_content_is_refused(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let first = Submission::deposit("10.00").with("reference", "rent").with("metadata", meta("12"));
    let others = [
        Submission::deposit("10.01").with("reference", "rent").with("metadata", meta("12")),
        Submission::deposit("10.00").with("metadata", meta("12")),
        Submission::deposit("10.00").with("reference", "rent").with("metadata", meta("13")),
        Submission::withdrawal("10.00").with("reference", "rent").with("metadata", meta("12")),
        first.clone().with("note", "a member that is not known yet"),
    ];

    let posted = fresh_id();
    drop(client.submit_until_accepted(account, posted, &first).await);
    for other in &others {
        let refused = client.submit(account, posted, other).await.expect(422);
        assert_eq!(refused.code(), "idempotency_key_reused");
    }
    let first = client.until_final(account, posted).await;
    assert_eq!(first.transaction_status(), "posted");
    for other in &others {
        assert_eq!(client.submit(account, posted, other).await.expect(422).code(), "idempotency_key_reused");
    }

    let rejected = fresh_id();
    let first = client.submit_and_wait(account, rejected, &Submission::withdrawal("10.01")).await.expect(200);
    assert_eq!(first.transaction_status(), "rejected");
    let refused = client.submit(account, rejected, &Submission::withdrawal("10.00")).await.expect(422);
    assert_eq!(refused.code(), "idempotency_key_reused");
    assert_eq!(client.balance(account).await, "10.00");
}

async fn the_same_content_in_another_notation_is_a_replay(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    let posted = client.post(account, id, &Submission::deposit("10.00").with("reference", "rent")).await;
    let path = format!("{}/deposits", path_of(account));
    let body = "{\n \"reference\": \"re\\u006et\", \"currency\":\"EUR\" , \"amount\": \"10\" }";
    let request = client
        .request(reqwest::Method::POST, &path)
        .header("Idempotency-Key", id.to_string())
        .header("Content-Type", "application/json; charset=utf-8")
        .body(body);
    let replayed = client.send(request).await.expect(200);
    assert_eq!(replayed.header("idempotent-replayed"), "true");
    assert_eq!(replayed.body, posted.body);
    assert_eq!(client.balance(account).await, "10.00");
}

async fn two_partners_may_use_the_same_id(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    let shop = client.with_key(&bank.add_partner("shop", &[]));
    let ours = client.post(account, id, &Submission::deposit("1.00")).await;
    let theirs = shop.post(account, id, &Submission::deposit("2.00")).await;
    assert_ne!(ours.text_at("/order_number"), theirs.text_at("/order_number"));
    assert_eq!(client.balance(account).await, "3.00");
    assert_eq!(client.transaction(account, id).await.expect(200).body, ours.body);
    assert_eq!(shop.transaction(account, id).await.expect(200).body, theirs.body);
}

fn meta(shop: &str) -> serde_json::Value {
    serde_json::json!({"shop": shop})
}
