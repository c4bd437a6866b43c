//! The same work in several messages, and work that was stored but not sent.

use std::time::Duration;

use postonce_shared::messaging::envelope::{self, Envelope};
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;

/// Number of queues in these tests.
const QUEUE_COUNT: u16 = 2;

on_both_stores![work_that_is_sent_several_times_posts_once];

async fn work_that_is_sent_several_times_posts_once(store_kind: StoreKind) {
    let (mut bank, client, works) = waiting_work(store_kind).await;
    let doubled: Vec<Work> = works.iter().chain(&works).cloned().collect();
    // Beside the message of the acceptance: twice in one envelope, in two envelopes of one receive, and on every queue.
    for items in [&doubled, &works, &works] {
        send(&bank, &works, items.clone()).await;
    }
    let (store, body) = (bank.store().await, Envelope::of(works.clone()).encode(&bank.seal().await));
    for queue in envelope::queues(QUEUE_COUNT) {
        store.queue.send(&queue, &body, Duration::ZERO).await.expect("a queue takes an envelope");
    }
    bank.start_worker();
    posted_once(&client, &works).await;
    // After it was posted, to a worker with the account in its cache and to one without it.
    send(&bank, &works, works.clone()).await;
    posted_once(&client, &works).await;
    bank.start_worker();
    send(&bank, &works, doubled).await;
    posted_once(&client, &works).await;
}

/// Three accepted deposits on one account, and no running worker.
async fn waiting_work(store_kind: StoreKind) -> (Scenario, Client, Vec<Work>) {
    let plan = Plan::on(store_kind).processes(1, 0).with("POSTONCE_QUEUE_COUNT", &QUEUE_COUNT.to_string());
    let bank = plan.polling_often().receipts(2, 3).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let store = bank.store().await;
    let mut works = Vec::new();
    for _ in 0..3 {
        let id = fresh_id();
        drop(client.submit_until_accepted(account, id, &Submission::deposit("7.00")).await);
        let stored = store.ledger.transaction(&key(account, id)).await.expect("the log can be read");
        works.push(stored.expect("it was accepted").work().expect("no worker runs"));
    }
    (bank, client, works)
}

async fn send(bank: &Scenario, works: &[Work], items: Vec<Work>) {
    let account = works.first().expect("there is work").key.account;
    let queue = envelope::queue_of(account, QUEUE_COUNT);
    let body = Envelope::of(items).encode(&bank.seal().await);
    bank.store().await.queue.send(&queue, &body, Duration::ZERO).await.expect("a queue takes an envelope");
}

async fn posted_once(client: &Client, works: &[Work]) {
    client.until_drained(wait::TIMEOUT).await;
    let account = works.first().expect("there is work").key.account;
    assert_eq!(client.balance(account).await, "21.00");
    assert_eq!(client.listing(account, None, 100).await.len(), 3);
    assert_eq!(client.listing(account, Some("accepted"), 100).await.len(), 0);
    assert_eq!(client.dead_letters().await, Vec::<serde_json::Value>::new());
}

fn key(account: AccountKey, message: MessageId) -> TransactionKey {
    let partner = PartnerId::parse("bootstrap").expect("the partner of the first key");
    TransactionKey { account, partner, message }
}
