//! One partner and one account: the first deposit, a rejection, and the meaning of an id.

use postonce_shared::domain::ids::OrderNumber;
use postonce_tests::prelude::*;

on_both_stores![
    a_first_deposit_is_accepted_and_then_posted,
    an_overdraft_is_rejected_and_the_rejection_is_replayed,
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
