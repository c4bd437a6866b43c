//! A worker remembers accounts, and others change them meanwhile.

use postonce_tests::client::{Wish, path_of};
use postonce_tests::scenario::{Plan, Stand, fresh_account, fresh_id};
use reqwest::Method;
use serde_json::json;

/// Deposits and withdrawals that two workers share.
const ROUNDS: usize = 25;

on_both_stands![
    a_withdrawal_that_the_account_can_pay_is_not_refused_from_an_old_row,
    a_withdrawal_that_the_account_cannot_pay_is_not_posted_from_an_old_row,
    two_workers_with_old_rows_refuse_nothing_that_can_be_paid,
];

async fn a_withdrawal_that_the_account_can_pay_is_not_refused_from_an_old_row(stand: Stand) {
    let bank = Plan::on(stand).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    // Now the worker remembers the account: 1.00, no overdraft.
    drop(client.post(account, fresh_id(), &Wish::deposit("1.00")).await);
    let terms = json!({"overdraft_limit": "100.00"});
    drop(client.call(Method::PATCH, &path_of(account), &terms).await.expect(200));
    let answer = client.post(account, fresh_id(), &Wish::withdrawal("51.00")).await;
    assert_eq!(answer.text_at("/balance_after"), "-50.00");
}

async fn a_withdrawal_that_the_account_cannot_pay_is_not_posted_from_an_old_row(stand: Stand) {
    let bank = Plan::on(stand).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open_with(account, "EUR", "100.00").await;
    drop(client.post(account, fresh_id(), &Wish::deposit("1.00")).await);
    let terms = json!({"overdraft_limit": "0.00"});
    drop(client.call(Method::PATCH, &path_of(account), &terms).await.expect(200));
    drop(client.submit(account, fresh_id(), &Wish::withdrawal("1.01")).await.expect(202));
    let id = fresh_id();
    drop(client.submit_and_wait(account, id, &Wish::withdrawal("1.01")).await);
    let answer = client.until_final(account, id).await;
    assert_eq!((answer.transaction_status(), answer.text_at("/reason")), ("rejected", "insufficient_funds"));

    // A closed account takes nothing, whatever the worker remembers.
    drop(client.post(account, fresh_id(), &Wish::withdrawal("1.00")).await);
    drop(client.call(Method::PATCH, &path_of(account), &json!({"status": "closed"})).await.expect(200));
    let id = fresh_id();
    drop(client.submit_and_wait(account, id, &Wish::deposit("1.00")).await);
    let answer = client.until_final(account, id).await;
    assert_eq!((answer.transaction_status(), answer.text_at("/reason")), ("rejected", "account_closed"));
}

async fn two_workers_with_old_rows_refuse_nothing_that_can_be_paid(stand: Stand) {
    let bank = Plan::on(stand).processes(1, 2).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    // Each waits for the one before, but either worker may get it; the other's row is old then.
    for _ in 0..ROUNDS {
        drop(client.post(account, fresh_id(), &Wish::deposit("10.00")).await);
        drop(client.post(account, fresh_id(), &Wish::withdrawal("10.00")).await);
    }
    assert_eq!(client.balance(account).await, "0.00");
    assert_eq!(client.listing(account, Some("rejected"), 10).await.len(), 0);
}
