//! A worker caches accounts, which other processes change meanwhile.

use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::json;

/// Number of deposits and of withdrawals that two workers share.
const ROUNDS: usize = 25;

on_both_stores![
    a_withdrawal_that_the_account_can_pay_is_not_rejected_from_an_old_row,
    a_withdrawal_that_the_account_cannot_pay_is_not_posted_from_an_old_row,
    two_workers_with_old_rows_reject_nothing_that_can_be_paid,
];

async fn a_withdrawal_that_the_account_can_pay_is_not_rejected_from_an_old_row(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    // Now the worker has cached the account: 1.00, no overdraft.
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    let terms = json!({"overdraft_limit": "100.00"});
    drop(client.call(Method::PATCH, &path_of(account), &terms).await.expect(200));
    let answer = client.post(account, fresh_id(), &Submission::withdrawal("51.00")).await;
    assert_eq!(answer.text_at("/balance_after"), "-50.00");
}

async fn a_withdrawal_that_the_account_cannot_pay_is_not_posted_from_an_old_row(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open_with(account, "EUR", "100.00").await;
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    let terms = json!({"overdraft_limit": "0.00"});
    drop(client.call(Method::PATCH, &path_of(account), &terms).await.expect(200));
    drop(client.submit_until_accepted(account, fresh_id(), &Submission::withdrawal("1.01")).await);
    let id = fresh_id();
    drop(client.submit_and_wait(account, id, &Submission::withdrawal("1.01")).await);
    let answer = client.until_final(account, id).await;
    assert_eq!((answer.transaction_status(), answer.text_at("/reason")), ("rejected", "insufficient_funds"));

    // A closed account accepts nothing, whatever the cache contains.
    drop(client.post(account, fresh_id(), &Submission::withdrawal("1.00")).await);
    drop(client.call(Method::PATCH, &path_of(account), &json!({"status": "closed"})).await.expect(200));
    let id = fresh_id();
    drop(client.submit_and_wait(account, id, &Submission::deposit("1.00")).await);
    let answer = client.until_final(account, id).await;
    assert_eq!((answer.transaction_status(), answer.text_at("/reason")), ("rejected", "account_closed"));
}

async fn two_workers_with_old_rows_reject_nothing_that_can_be_paid(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 2).through_the_queue().start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    // Each request waits for the previous one, but either worker may post it, so that the cache of the
    // other one becomes old.
    for _ in 0..ROUNDS {
        drop(client.post(account, fresh_id(), &Submission::deposit("10.00")).await);
        drop(client.post(account, fresh_id(), &Submission::withdrawal("10.00")).await);
    }
    assert_eq!(client.balance(account).await, "0.00");
    assert_eq!(client.listing(account, Some("rejected"), 10).await.len(), 0);
}
