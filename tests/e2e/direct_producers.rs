//! Producers with Microsoft's client, which may only add to an ingest queue. Their orders are accepted for the partner of the queue.
//! The partner must exist, must not be suspended, and must have access to the account, as for a request over HTTP.

use postonce_shared::testing::prelude::*;
use postonce_tests::attack_findings::AttackFindings;
use postonce_tests::forger::Forger;
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::json;

/// The partner for whom the orders are accepted, and the name of its ingest queue.
const PARTNER: &str = "feeder";
/// The forms of an order.
const FORMS: [fn(AccountKey, MessageId) -> String; 2] = [delimited, xml];

#[tokio::test]
async fn an_order_for_a_partner_that_does_not_exist_is_refused() {
    let mut bank = plan().start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    refuses_orders(&mut bank, account).await;
    bank.operate(&["partners", "add", PARTNER, "--all-accounts"]);
    posts_when_replayed(&bank, account).await;
}

#[tokio::test]
async fn an_order_for_a_suspended_partner_is_refused() {
    let mut bank = plan().start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    bank.operate(&["partners", "add", PARTNER, "--all-accounts"]);
    bank.operate(&["partners", "suspend", PARTNER]);
    refuses_orders(&mut bank, account).await;
    bank.operate(&["partners", "resume", PARTNER]);
    posts_when_replayed(&bank, account).await;
}

#[tokio::test]
async fn an_order_for_an_account_that_the_partner_cannot_reach_is_refused() {
    let mut bank = plan().start().await;
    let (account, within_reach) = (fresh_account(), fresh_account());
    bank.client(0).open(account).await;
    bank.client(0).open(within_reach).await;
    let reach = format!("{}/{}", within_reach.user, within_reach.account);
    bank.operate(&["partners", "add", PARTNER, "--account", &reach]);
    refuses_orders(&mut bank, account).await;
    producer(&bank).add_texts(&FORMS.map(|form| form(within_reach, fresh_id())));
    until_balance(&bank.client(0), within_reach, "8.00").await;
    bank.operate(&["partners", "change", PARTNER, "--all-accounts"]);
    posts_when_replayed(&bank, account).await;
}

/// The client encodes texts as base64 if its user chooses the policy that the classic .NET client has by default.
#[tokio::test]
async fn orders_in_base64_are_posted_once_and_a_refused_one_is_replayed_as_it_was_sent() {
    let mut bank = plan().start().await;
    let (account, closed) = (fresh_account(), fresh_account());
    bank.client(0).open(account).await;
    bank.operate(&["partners", "add", PARTNER, "--all-accounts"]);
    bank.start_worker();
    let queue = bank.ingest_queue(PARTNER);
    let _is_new = bank.store().await.queue.create(&queue).await.expect("the store answers");
    let ids = [fresh_id(), fresh_id()];
    let orders = [delimited(account, ids[0]), xml(account, ids[1])];
    let producer = producer(&bank);
    producer.add_in_base64(&orders);
    producer.add_in_base64(&[delimited(closed, fresh_id())]);
    producer.add_texts(&orders);
    until_balance(&bank.client(0), account, "8.00").await;
    bank.until_ingested(PARTNER).await;
    let client = bank.client(0);
    assert_eq!(client.listing(account, None, 10).await.len(), 2, "each once");
    let letters = client.dead_letters().await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0]["queue"], queue.as_str());
    client.open(closed).await;
    let path = format!("/v1/admin/dead-letters/{}/replay", letters[0]["id"].as_str().expect("it has an id"));
    drop(client.call(Method::POST, &path, &json!({})).await.expect(200));
    until_balance(&client, closed, "4.00").await;
}

/// A bank without a worker. A test starts the worker after it has configured the partner.
fn plan() -> Plan {
    Plan::on(StoreKind::Azurite)
        .processes(1, 0)
        .polling_often()
        .with("POSTONCE_QUEUE_COUNT", "1")
        .with_ingest(PARTNER, PARTNER)
}

fn producer(bank: &Scenario) -> Forger {
    Forger::producer(bank, &bank.ingest_queue(PARTNER))
}

/// Sends an order of 4.00 in each form, and checks that both become dead letters and move no money.
async fn refuses_orders(bank: &mut Scenario, account: AccountKey) {
    let client = bank.client(0);
    // A SAS for adding cannot create the queue.
    let queue = bank.ingest_queue(PARTNER);
    assert!(bank.store().await.queue.create(&queue).await.expect("the store answers"), "it did not exist");
    producer(bank).add_texts(&FORMS.map(|form| form(account, fresh_id())));
    bank.start_worker();
    bank.until_ingested(PARTNER).await;
    let mut findings = AttackFindings::default();
    findings.compare("balance", &client.balance(account).await, &"0.00".to_owned());
    findings.compare("statement", &client.listing(account, None, 10).await, &Vec::new());
    findings.compare("accepted", &client.listing(account, Some("accepted"), 10).await, &Vec::new());
    findings.compare("dead letters", &client.dead_letters().await.len(), &FORMS.len());
    findings.conclude(bank).await;
}

/// Replays all dead letters until the orders are posted. Replays are repeated, because the worker may still
/// cache the old state of the partner.
async fn posts_when_replayed(bank: &Scenario, account: AccountKey) {
    let client = bank.client(0);
    wait::until("the orders are posted", wait::TIMEOUT, async || {
        for letter in client.dead_letters().await {
            let id = letter["id"].as_str().expect("a letter has an id");
            let path = format!("/v1/admin/dead-letters/{id}/replay");
            drop(client.call(Method::POST, &path, &json!({})).await);
        }
        bank.until_ingested(PARTNER).await;
        match client.balance(account).await {
            balance if balance == "8.00" => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

async fn until_balance(client: &Client, account: AccountKey, expected: &str) {
    wait::until("the orders are posted", wait::TIMEOUT, async || {
        let balance = client.balance(account).await;
        if balance == expected { Ok(()) } else { Err(balance) }
    })
    .await;
}

fn delimited(account: AccountKey, id: MessageId) -> String {
    let AccountKey { user, account } = account;
    format!("{user}|{account}|{id}|4.00")
}

fn xml(account: AccountKey, id: MessageId) -> String {
    let AccountKey { user, account } = account;
    format!(
        "<UserAccountTransaction><UserId>{user}</UserId><AccountId>{account}</AccountId>\
         <TransactionId>{id}</TransactionId><Amount>4.00</Amount></UserAccountTransaction>"
    )
}
