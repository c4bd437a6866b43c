//! Orders of producers that write to the queue directly are accepted for one partner. The partner must
//! exist, must not be suspended, and must have access to the account, as for a request over HTTP.

use std::time::Duration;

use postonce_shared::messaging::envelope;
use postonce_shared::testing::prelude::*;
use postonce_tests::attack_findings::AttackFindings;
use postonce_tests::forger::Forger;
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::json;

/// The partner for whom orders of direct producers are accepted.
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
    let forger = Forger::of(&bank);
    forger.add_texts(&FORMS.map(|form| form(within_reach, fresh_id())));
    until_balance(&bank.client(0), within_reach, "8.00").await;
    bank.operate(&["partners", "change", PARTNER, "--all-accounts"]);
    posts_when_replayed(&bank, account).await;
}

/// A bank without a worker. A test starts the worker after it has configured the partner.
fn plan() -> Plan {
    Plan::on(StoreKind::Azurite)
        .processes(1, 0)
        .polling_often()
        .with("POSTONCE_QUEUE_COUNT", "1")
        .with("POSTONCE_LEGACY_PARTNER", PARTNER)
}

/// Sends an order of 4.00 in each form, and checks that both become dead letters and move no money.
async fn refuses_orders(bank: &mut Scenario, account: AccountKey) {
    let client = bank.client(0);
    // The first message of the bank creates the queue, which a SAS for adding cannot do.
    let store = bank.store().await;
    let queue = envelope::queues(1).swap_remove(0);
    store.queue.send(&queue, b"not an order", Duration::ZERO).await.expect("a queue takes any body");
    Forger::of(bank).add_texts(&FORMS.map(|form| form(account, fresh_id())));
    bank.start_worker();
    client.until_drained(wait::TIMEOUT).await;
    let mut findings = AttackFindings::default();
    findings.compare("balance", &client.balance(account).await, &"0.00".to_owned());
    findings.compare("statement", &client.listing(account, None, 10).await, &Vec::new());
    findings.compare("accepted", &client.listing(account, Some("accepted"), 10).await, &Vec::new());
    // One more dead letter is the message that created the queue.
    findings.compare("dead letters", &client.dead_letters().await.len(), &FORMS.len().saturating_add(1));
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
        client.until_drained(wait::TIMEOUT).await;
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
