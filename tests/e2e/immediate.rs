//! Requests that wait and are posted by the web process that received them.

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;

on_both_stores![a_request_that_waits_is_posted_without_a_worker,];

/// How a web process served requests.
async fn posted_at_once(bank: &Scenario, web: usize) -> u64 {
    ProcessProbe::with_key(bank.webs[web].address(), bank.key()).count("posted_immediately").await
}

/// A request that waits for two seconds.
async fn ask(client: &Client, account: AccountKey, submission: &Submission) -> Answer {
    client.send(client.submission(account, fresh_id(), submission).header("Prefer", "wait=2")).await
}

/// A bank with one web and no worker, whose web has read the gate.
async fn bank_without_worker(store_kind: StoreKind) -> (Scenario, Client, AccountKey) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    wait::until("the web has read the gate", wait::TIMEOUT, async || {
        let warm_up = fresh_account();
        client.open(warm_up).await;
        let answer = ask(&client, warm_up, &Submission::deposit("1.00")).await;
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    (bank, client, account)
}

async fn a_request_that_waits_is_posted_without_a_worker(store_kind: StoreKind) {
    let (bank, client, account) = bank_without_worker(store_kind).await;
    let before = posted_at_once(&bank, 0).await;
    let id = fresh_id();
    let posted = client.submit_and_wait(account, id, &Submission::deposit("10.00")).await.expect(200);
    assert_eq!((posted.transaction_status(), posted.text_at("/balance_after")), ("posted", "10.00"));
    assert_eq!(posted.header("preference-applied"), "wait=30");
    let withdrawn = ask(&client, account, &Submission::withdrawal("4.00")).await.expect(200);
    assert_eq!(withdrawn.text_at("/balance_after"), "6.00");
    assert_eq!(posted_at_once(&bank, 0).await.abs_diff(before), 2);
    // A repetition is a replay, and another content is refused.
    let again = client.submit_and_wait(account, id, &Submission::deposit("10.00")).await.expect(200);
    assert_eq!((&again.body, again.header("idempotent-replayed")), (&posted.body, "true"));
    let other = client.submit_and_wait(account, id, &Submission::deposit("11.00")).await.expect(422);
    assert_eq!(other.code(), "idempotency_key_reused");
    let too_much = ask(&client, account, &Submission::withdrawal("6.01")).await;
    let expected = match store_kind {
        // The ledger checks that no accepted deposit comes first.
        StoreKind::Sqlite => (200, "rejected"),
        StoreKind::Azurite => (202, "accepted"),
    };
    assert_eq!((too_much.status, too_much.transaction_status()), expected);
    assert_eq!(client.balance(account).await, "6.00");
    let costs = client.get("/v1/admin/storage-operations").await.expect(200);
    let immediate = costs.number_at("/immediate_postings");
    assert_eq!(
        (costs.number_at("/postings"), costs.number_at("/processes/0/immediate_postings")),
        (immediate, immediate)
    );
    assert_eq!(immediate, posted_at_once(&bank, 0).await);
}
