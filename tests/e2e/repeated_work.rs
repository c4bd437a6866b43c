//! The same work in several messages, and work that was stored but not sent.

use std::time::Duration;

use postonce_shared::domain::decision;
use postonce_shared::messaging::envelope::{self, Envelope};
use postonce_shared::testing::fresh_nonce;
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

/// A web process crashed between the insert and the send; its client repeats the request at another one.
#[tokio::test]
async fn a_replay_of_work_that_was_never_sent_sends_it_and_posts_once() {
    let bank = Plan::on(StoreKind::Azurite).processes(1, 1).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    insert_only(&bank.store().await, account, id).await;
    let accepted = client.transaction(account, id).await.expect(200);
    assert_eq!(accepted.transaction_status(), "accepted");
    let replayed = client.submit(account, id, &Submission::deposit("7.00")).await;
    // The worker can post it before the answer is written.
    assert!([200, 202].contains(&replayed.status), "{replayed:?}");
    assert_eq!(replayed.header("idempotent-replayed"), "true");
    assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    assert_eq!(client.balance(account).await, "7.00");
    client.until_drained(wait::TIMEOUT).await;
}

#[tokio::test]
async fn nothing_is_acknowledged_without_a_confirmed_send() {
    let bank = Plan::on(StoreKind::Azurite).processes(2, 1).behind_proxies().start().await;
    let (one, other) = (bank.client(0), bank.client(1));
    let (account, inserted, fresh) = (fresh_account(), fresh_id(), fresh_id());
    one.open(account).await;
    insert_only(&bank.store().await, account, inserted).await;

    bank.proxies().queues.switch(Mode::Refuse);
    let submission = Submission::deposit("7.00");
    for client in [&one, &other, &one] {
        for id in [inserted, fresh] {
            let answer = client.submit(account, id, &submission).await.expect(503);
            assert_eq!(answer.code(), "storage_unavailable");
            assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
        }
    }
    // The log has both: they were stored, but not acknowledged.
    assert_eq!(one.transaction(account, fresh).await.expect(200).transaction_status(), "accepted");
    // Other content is refused although nothing was acknowledged: the id belongs to the stored content.
    let other_content = one.submit(account, fresh, &Submission::deposit("7.01")).await.expect(422);
    assert_eq!(other_content.code(), "idempotency_key_reused");

    bank.proxies().queues.switch(Mode::Forward);
    for id in [inserted, fresh] {
        let answer = other.submit_and_wait(account, id, &submission).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
        assert_eq!(one.until_final(account, id).await.transaction_status(), "posted");
    }
    assert_eq!(one.balance(account).await, "14.00");
    one.until_drained(wait::TIMEOUT).await;
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
    let account = works.first().expect("there is work").submission.key.account;
    let queue = envelope::queue_of(account, QUEUE_COUNT);
    let body = Envelope::of(items).encode(&bank.seal().await);
    bank.store().await.queue.send(&queue, &body, Duration::ZERO).await.expect("a queue takes an envelope");
}

async fn posted_once(client: &Client, works: &[Work]) {
    client.until_drained(wait::TIMEOUT).await;
    let account = works.first().expect("there is work").submission.key.account;
    assert_eq!(client.balance(account).await, "21.00");
    assert_eq!(client.listing(account, None, 100).await.len(), 3);
    assert_eq!(client.listing(account, Some("accepted"), 100).await.len(), 0);
    assert_eq!(client.dead_letters().await, Vec::<serde_json::Value>::new());
}

/// Stores the row of a deposit of 7.00, as a web process does that crashes right afterwards.
async fn insert_only(store: &Store, account: AccountKey, id: MessageId) {
    let euro = Currency::parse("EUR").expect("the euro is a currency");
    let amount = Amount::parse("7.00", euro).expect("7.00 is an amount");
    let details = Details::default();
    let new = decision::Submission {
        key: key(account, id),
        instruction: Instruction { kind: TransactionKind::Deposit, amount, details },
        accepted_at: Timestamp::from_unix_ms(1_795_248_000_000),
        origin: Origin::default(),
        batch_line: None,
    };
    let outcomes = store.ledger.accept(&[new], fresh_nonce()).await.expect("the log can be written");
    assert!(matches!(outcomes.as_slice(), [AcceptOutcome::Inserted { enqueued: false, .. }]), "{outcomes:?}");
}

fn key(account: AccountKey, message: MessageId) -> TransactionKey {
    let partner = PartnerId::parse("bootstrap").expect("the partner of the first key");
    TransactionKey { account, partner, message }
}
