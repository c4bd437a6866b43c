//! Requests that wait and are posted by the web process that received them.

use futures::future::join_all;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;

on_both_stores![
    a_request_that_waits_is_posted_without_a_worker,
    accepted_work_comes_first,
    a_held_gate_holds_requests_that_wait,
    two_webs_post_on_one_account,
];

/// Requests of each client.
const REQUESTS: usize = 20;

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

async fn accepted_work_comes_first(store_kind: StoreKind) {
    let (mut bank, client, account) = bank_without_worker(store_kind).await;
    let first = fresh_id();
    drop(client.submit_until_accepted(account, first, &Submission::deposit("5.00")).await);
    let second = fresh_id();
    let waiting = client.submission(account, second, &Submission::deposit("1.00")).header("Prefer", "wait=1");
    assert_eq!(client.send(waiting).await.expect(202).transaction_status(), "accepted");
    bank.start_worker();
    let first = client.until_final(account, first).await.number_at("/sequence");
    let second = client.until_final(account, second).await.number_at("/sequence");
    assert_eq!((first, second), (1, 2));
    // The outcomes were read, so the account has no open work.
    assert_eq!(
        ask(&client, account, &Submission::withdrawal("6.00")).await.expect(200).number_at("/sequence"),
        3
    );
}

async fn a_held_gate_holds_requests_that_wait(store_kind: StoreKind) {
    let (mut bank, client, account) = bank_without_worker(store_kind).await;
    // The web acknowledges: from then on it posts nothing.
    drop(client.hold(1).await);
    let held = ask(&client, account, &Submission::deposit("5.00")).await.expect(202);
    assert_eq!(held.transaction_status(), "accepted");
    assert_eq!(client.balance(account).await, "0.00");
    drop(client.release(1).await);
    bank.start_worker();
    wait::until("it is posted", wait::TIMEOUT, async || match client.balance(account).await.as_str() {
        "5.00" => Ok(()),
        other => Err(other.to_owned()),
    })
    .await;
}

async fn two_webs_post_on_one_account(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 1).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let clients = (0..8).map(|number| {
        let client = bank.client(number % 2).on_own_connections();
        async move {
            for _ in 0..REQUESTS {
                let (id, deposit) = (fresh_id(), Submission::deposit("1.00"));
                let answer = client.submit_and_wait(account, id, &deposit).await.expect(200);
                assert_eq!(answer.transaction_status(), "posted");
            }
        }
    });
    join_all(clients).await;
    assert_eq!(bank.client(0).balance(account).await, "160.00");
    let at_once = posted_at_once(&bank, 0).await.saturating_add(posted_at_once(&bank, 1).await);
    assert!(at_once > 0, "none of 160 requests was posted at once");
    println!("{store_kind:?}: {at_once} of 160 requests were posted at once by two webs");
}
