//! Producers that write to an ingest queue, in the two legacy forms. Their orders are accepted for the partner of the queue, and are
//! then processed like any other work.

use std::time::Duration;

use postonce_shared::messaging::envelope;
use postonce_shared::testing::prelude::*;
use postonce_tests::faults::CrashPoint;
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::{Value, json};

/// The partner for whom the orders are accepted, and the name of its ingest queue.
const PARTNER: &str = "feeder";

on_both_stores![
    repeated_orders_in_both_forms_are_posted_once,
    an_order_for_an_unknown_account_becomes_a_dead_letter,
    the_dead_letter_of_an_invalid_order_names_the_error,
    a_crash_during_an_order_neither_repeats_nor_loses_it,
    an_order_is_a_dead_letter_until_its_partner_exists,
    orders_of_a_suspended_partner_move_no_money_until_it_is_resumed,
    an_order_outside_of_the_reach_or_the_scopes_of_its_partner_moves_no_money,
    a_rung_order_is_posted_at_once,
];

async fn repeated_orders_in_both_forms_are_posted_once(store_kind: StoreKind) {
    let bank = plan(store_kind).start().await;
    let client = feeder(&bank);
    let account = fresh_account();
    client.open(account).await;
    let (deposit, withdrawal) = (fresh_id(), fresh_id());
    for _ in 0..2 {
        put(&bank, &xml(account, deposit, "12.50")).await;
    }
    assert_eq!(client.until_final(account, deposit).await.transaction_status(), "posted");
    for _ in 0..2 {
        put(&bank, &delimited(account, withdrawal, "-2.25")).await;
    }
    assert_eq!(client.until_final(account, withdrawal).await.transaction_status(), "posted");
    put(&bank, &xml(account, deposit, "12.5")).await;
    put(&bank, &xml(account, withdrawal, "-2.25")).await;
    bank.until_ingested(PARTNER).await;

    assert_eq!(client.balance(account).await, "10.25");
    let statement = client.listing(account, None, 100).await;
    let ids: Vec<&str> = statement.iter().filter_map(|entry| entry["message_id"].as_str()).collect();
    assert_eq!(ids, [deposit.to_string(), withdrawal.to_string()], "each once");
    assert_eq!(statement[1]["type"], "withdrawal");
    // The API has the same transaction: the same content is a replay.
    let again = client.submit(account, deposit, &Submission::deposit("12.50")).await.expect(200);
    assert_eq!(again.header("Idempotent-Replayed"), "true");
    assert_eq!(client.balance(account).await, "10.25");
    assert_eq!(bank.client(0).dead_letters().await, Vec::<Value>::new());
}

async fn an_order_for_an_unknown_account_becomes_a_dead_letter(store_kind: StoreKind) {
    let bank = plan(store_kind).start().await;
    let (operator, client) = (bank.client(0), feeder(&bank));
    let (account, id) = (fresh_account(), fresh_id());
    put(&bank, &delimited(account, id, "4.00")).await;
    let letter = one_letter(&operator).await;
    let reason = text(&letter, "reason");
    assert!(reason.contains("does not exist") && reason.contains(&account.account.to_string()), "{reason}");

    client.open(account).await;
    replay(&operator, &letter).await;
    assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    assert_eq!(client.balance(account).await, "4.00");
    bank.until_ingested(PARTNER).await;
    assert_eq!(operator.dead_letters().await, Vec::<Value>::new());
}

async fn the_dead_letter_of_an_invalid_order_names_the_error(store_kind: StoreKind) {
    let mut bank = plan(store_kind).processes(1, 0).start().await;
    let (operator, client) = (bank.client(0), feeder(&bank));
    let account = fresh_account();
    client.open(account).await;
    bank.start_worker();
    let id = fresh_id();
    put(&bank, &xml(account, id, "1.00")).await;
    assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    let bodies = [
        (xml(account, fresh_id(), "1,00"), "Amount must use a point"),
        (xml(account, fresh_id(), "1.005"), "more decimals than EUR has (2)"),
        (xml(account, fresh_id(), "1").replace("AccountId", "Account"), "AccountId is missing"),
        (delimited(account, fresh_id(), "0"), "amount must not be zero"),
        (delimited(account, id, "2.00"), "used before with another content"),
        ("a|b".to_owned(), "has 2 fields"),
    ];
    for (body, words) in &bodies {
        put(&bank, body).await;
        let letter = one_letter(&operator).await;
        assert!(text(&letter, "reason").contains(words), "{words}: {letter}");
        assert_eq!(text(&letter, "body"), body, "the letter contains the unchanged body");
        decide(&operator, Method::DELETE, &format!("/{}", text(&letter, "id"))).await;
    }
    assert_eq!(client.balance(account).await, "1.00");
    assert_eq!(
        client.transaction(account, id).await.transaction_status(),
        "posted",
        "the first order is still posted"
    );
}

#[tokio::test]
async fn an_order_in_a_work_queue_is_set_aside_and_its_dead_letter_names_the_right_one() {
    let bank = plan(StoreKind::Sqlite).start().await;
    let client = feeder(&bank);
    let account = fresh_account();
    client.open(account).await;
    let work = envelope::queues(1).swap_remove(0);
    let body = delimited(account, fresh_id(), "4.00");
    let store = bank.store().await;
    store.queue.send(&work, body.as_bytes(), Duration::ZERO).await.expect("a queue takes any body");
    let letter = refused(&bank.client(0), "direct producers belong into an ingest queue").await;
    assert_eq!(text(&letter, "body"), body);
    assert_eq!(client.balance(account).await, "0.00");
}

#[tokio::test]
async fn an_order_is_accepted_while_the_gate_is_held_and_posted_after_its_release() {
    let bank = plan(StoreKind::Sqlite).start().await;
    let client = feeder(&bank);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    bank.operate(&["gate", "hold", "--reason", "a test"]);
    put(&bank, &delimited(account, id, "4.00")).await;
    wait::until("the order is accepted", wait::TIMEOUT, async || {
        match client.listing(account, Some("accepted"), 10).await.as_slice() {
            [_] => Ok(()),
            others => Err(format!("{others:?}")),
        }
    })
    .await;
    assert_eq!(client.balance(account).await, "0.00");
    bank.operate(&["gate", "release"]);
    assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
}

/// The rings of a producer, and who may send them.
async fn a_rung_order_is_posted_at_once(store_kind: StoreKind) {
    let slow = |member: &str| format!("POSTONCE_INGEST_FEEDER_{member}");
    let bank = plan(store_kind).with(&slow("POLL_MAX_MS"), "60000").start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let feeder = bank.client(0).with_key(&bank.add_partner(PARTNER, &["deposit", "read", "ring"]));
    let other = bank.client(0).with_key(&bank.add_partner("other", &["deposit", "read", "ring"]));
    bank.until_workers_ready().await;
    let ring = async |client: &Client, name: &str| {
        let path = format!("/v1/ingest/{name}/ring");
        client.call(Method::POST, &path, &Value::Null).await.status
    };
    assert_eq!(ring(&other, PARTNER).await, 404, "it is of another partner");
    assert_eq!(ring(&feeder, "none").await, 404);
    for client in [&feeder, &bank.client(0)] {
        let id = fresh_id();
        put(&bank, &delimited(account, id, "1.00")).await;
        assert_eq!(ring(client, PARTNER).await, 204);
        assert_eq!(feeder.until_final(account, id).await.transaction_status(), "posted");
    }
}

async fn an_order_is_a_dead_letter_until_its_partner_exists(store_kind: StoreKind) {
    let bank = plan(store_kind).start().await;
    let operator = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    operator.open(account).await;
    put(&bank, &xml(account, id, "4.00")).await;
    let letter = refused(&operator, "partner feeder does not exist").await;
    assert_eq!(operator.balance(account).await, "0.00");

    let client = feeder(&bank);
    replay(&operator, &letter).await;
    assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    assert_eq!(client.balance(account).await, "4.00");
    bank.until_ingested(PARTNER).await;
    assert_eq!(operator.dead_letters().await, Vec::<Value>::new());
}

async fn orders_of_a_suspended_partner_move_no_money_until_it_is_resumed(store_kind: StoreKind) {
    let bank = plan(store_kind).start().await;
    let (operator, client) = (bank.client(0), feeder(&bank));
    bank.until_workers_ready().await;
    let account = fresh_account();
    client.open(account).await;
    let (posted, refused_id) = (fresh_id(), fresh_id());
    put(&bank, &delimited(account, posted, "4.00")).await;
    assert_eq!(client.until_final(account, posted).await.transaction_status(), "posted");

    // The workers have cached the partner by now, and are notified of the change.
    bank.operate(&["partners", "suspend", PARTNER]);
    put(&bank, &delimited(account, refused_id, "5.00")).await;
    let letter = refused(&operator, "partner feeder is suspended").await;
    assert_eq!(operator.balance(account).await, "4.00");
    // As over HTTP, a repeated order is refused as well, and the transaction does not change.
    replay(&operator, &letter).await;
    let letter = refused(&operator, "partner feeder is suspended").await;
    bank.operate(&["partners", "resume", PARTNER]);
    replay(&operator, &letter).await;
    assert_eq!(client.until_final(account, refused_id).await.transaction_status(), "posted");
    bank.until_ingested(PARTNER).await;
    bank.operate(&["partners", "suspend", PARTNER]);
    put(&bank, &delimited(account, posted, "4.00")).await;
    let _letter = refused(&operator, "partner feeder is suspended").await;
    assert_eq!(operator.balance(account).await, "9.00");
    assert_eq!(operator.listing(account, None, 100).await.len(), 2);
}

async fn an_order_outside_of_the_reach_or_the_scopes_of_its_partner_moves_no_money(store_kind: StoreKind) {
    let bank = plan(store_kind).start().await;
    let operator = bank.client(0);
    bank.until_workers_ready().await;
    let (own, foreign) = (fresh_account(), fresh_account());
    for account in [own, foreign] {
        operator.open(account).await;
    }
    let name = format!("{}/{}", own.user, own.account);
    bank.operate(&["partners", "add", PARTNER, "--account", &name, "--scope", "deposit,read"]);
    let (first, second, third) = (fresh_id(), fresh_id(), fresh_id());
    put(&bank, &xml(own, first, "4.00")).await;
    until_balance(&operator, own, "4.00").await;

    put(&bank, &xml(foreign, second, "5.00")).await;
    let letter = refused(&operator, "is outside the reach of partner feeder").await;
    assert!(text(&letter, "reason").contains(&foreign.to_string()), "{letter}");
    assert_eq!(operator.balance(foreign).await, "0.00");
    bank.operate(&["partners", "change", PARTNER, "--all-accounts"]);
    replay(&operator, &letter).await;
    until_balance(&operator, foreign, "5.00").await;

    put(&bank, &xml(own, third, "-1.00")).await;
    let letter = refused(&operator, "no key of partner feeder has the scope withdraw").await;
    assert_eq!(operator.balance(own).await, "4.00");
    bank.operate(&["keys", "add", "--partner", PARTNER, "--scope", "withdraw"]);
    replay(&operator, &letter).await;
    until_balance(&operator, own, "3.00").await;
    bank.until_ingested(PARTNER).await;
    assert_eq!(operator.dead_letters().await, Vec::<Value>::new());
}

/// Waits for the only dead letter, whose reason must contain these words.
async fn refused(operator: &Client, words: &str) -> Value {
    let letter = one_letter(operator).await;
    assert!(text(&letter, "reason").contains(words), "{words}: {letter}");
    letter
}

async fn replay(operator: &Client, letter: &Value) {
    decide(operator, Method::POST, &format!("/{}/replay", text(letter, "id"))).await;
}

async fn until_balance(client: &Client, account: AccountKey, balance: &str) {
    wait::until("the account has that balance", wait::TIMEOUT, async || {
        let now = client.balance(account).await;
        if now == balance { Ok(()) } else { Err(now) }
    })
    .await
}

async fn a_crash_during_an_order_neither_repeats_nor_loses_it(store_kind: StoreKind) {
    let mut bank = plan(store_kind).processes(1, 0).receipts(1, 5).start().await;
    let client = feeder(&bank);
    let account = fresh_account();
    client.open(account).await;
    let (first, second) = (fresh_id(), fresh_id());
    put(&bank, &xml(account, first, "4.00")).await;
    put(&bank, &delimited(account, second, "5.00")).await;
    for point in [CrashPoint::AfterReceive, CrashPoint::BeforeCommit, CrashPoint::AfterCommit] {
        assert_eq!(bank.run_crashing_worker(point), Some(9));
    }
    bank.start_worker();
    for id in [first, second] {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
    bank.until_ingested(PARTNER).await;
    assert_eq!(client.balance(account).await, "9.00");
    assert_eq!(client.listing(account, None, 100).await.len(), 2);
}

fn plan(store_kind: StoreKind) -> Plan {
    Plan::on(store_kind).with_ingest(PARTNER, PARTNER)
}

/// A client with a key of the partner for whom orders are accepted.
fn feeder(bank: &Scenario) -> Client {
    let scopes = ["read", "accounts", "credit", "deposit", "withdraw", "admin"];
    bank.client(0).with_key(&bank.add_partner(PARTNER, &scopes))
}

fn xml(account: AccountKey, id: MessageId, amount: &str) -> String {
    let AccountKey { user, account } = account;
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<UserAccountTransaction>\n  <UserId>{user}</UserId>\n  \
         <AccountId>{account}</AccountId>\n  <TransactionId>{id}</TransactionId>\n  <Amount>{amount}</Amount>\n\
         </UserAccountTransaction>\n"
    )
}

fn delimited(account: AccountKey, id: MessageId, amount: &str) -> String {
    let AccountKey { user, account } = account;
    format!("{}|{}|{}|{amount}\r\n", user.simple(), account, id.to_string().to_uppercase())
}

/// Puts a body on the ingest queue as text, like direct producers.
async fn put(bank: &Scenario, body: &str) {
    let queue = bank.ingest_queue(PARTNER);
    let store = bank.store().await;
    store.queue.send(&queue, body.as_bytes(), Duration::ZERO).await.expect("a queue takes any body");
}

async fn one_letter(client: &Client) -> Value {
    wait::until("there is a dead letter", wait::TIMEOUT, async || {
        match client.dead_letters().await.as_slice() {
            [letter] => Ok(letter.clone()),
            others => Err(format!("{others:?}")),
        }
    })
    .await
}

/// Replays or discards a letter, which must succeed.
async fn decide(client: &Client, method: Method, path: &str) {
    let answer = client.call(method, &format!("/v1/admin/dead-letters{path}"), &json!({})).await;
    assert!([200, 202, 204].contains(&answer.status), "{answer:?}");
}

fn text<'a>(letter: &'a Value, member: &str) -> &'a str {
    letter.get(member).and_then(Value::as_str).unwrap_or_else(|| panic!("no {member} in {letter}"))
}
