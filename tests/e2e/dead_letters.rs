//! Work that cannot be posted is set aside with a reason, for an operator who replays or discards it.

use postonce_tests::dead_letters::{crash_until_dead, one_letter, poison};
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::{Value, json};

/// The trace of a request, and the place of the client in it.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

on_both_stores![
    a_poisoned_message_is_set_aside_with_its_reason_and_can_be_replayed_and_discarded,
    work_that_kills_its_workers_is_set_aside_and_can_be_replayed,
    a_discarded_item_is_rejected_for_good,
    a_poisoned_message_delays_no_other_work,
];

async fn a_poisoned_message_is_set_aside_with_its_reason_and_can_be_replayed_and_discarded(
    store_kind: StoreKind,
) {
    let bank = Plan::on(store_kind).polling_often().receipts(1, 2).start().await;
    let client = bank.client(0);
    poison(&bank, b"this is no envelope").await;
    let letter = one_letter(&client).await;
    assert!(!text(&letter, "reason").is_empty(), "{letter}");
    client.until_drained(wait::TIMEOUT).await;

    // The replayed message is still unreadable, and becomes a new letter.
    decide(&client, Method::POST, &format!("/{}/replay", text(&letter, "id"))).await;
    let second = wait::until("it comes back", wait::TIMEOUT, async || {
        let letters = client.dead_letters().await;
        match letters.as_slice() {
            [second] if text(second, "id") != text(&letter, "id") => Ok(second.clone()),
            others => Err(format!("{others:?}")),
        }
    })
    .await;
    assert_eq!(text(&second, "reason"), text(&letter, "reason"));

    decide(&client, Method::DELETE, &format!("/{}", text(&second, "id"))).await;
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
    let path = format!("/v1/admin/dead-letters/{}", text(&second, "id"));
    let twice = client.call(Method::DELETE, &path, &json!({})).await;
    assert!(
        [200, 204, 404, 409].contains(&twice.status),
        "a second decision has a defined answer: {twice:?}"
    );
    let unknown = client.call(Method::POST, "/v1/admin/dead-letters/nobody-knows/replay", &json!({})).await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
}

async fn work_that_kills_its_workers_is_set_aside_and_can_be_replayed(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).receipts(1, 2).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    let letter = crashing_work(&mut bank, &client, account, id).await;
    assert_eq!(client.transaction(account, id).await.transaction_status(), "accepted");

    decide(&client, Method::POST, &format!("/{}/replay", text(&letter, "id"))).await;
    assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    assert_eq!(client.balance(account).await, "4.00");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
    client.until_drained(wait::TIMEOUT).await;
}

async fn a_discarded_item_is_rejected_for_good(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).receipts(1, 2).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    let letter = crashing_work(&mut bank, &client, account, id).await;

    decide(&client, Method::DELETE, &format!("/{}", text(&letter, "id"))).await;
    let rejected = client.transaction(account, id).await.expect(200);
    assert_eq!(rejected.transaction_status(), "rejected");
    assert_eq!(rejected.text_at("/reason"), "discarded");
    let again = client.submit(account, id, &Submission::deposit("4.00")).await.expect(200);
    assert_eq!(again.body, rejected.body, "the answer is replayed, nothing is posted");
    assert_eq!(client.balance(account).await, "0.00");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
}

async fn a_poisoned_message_delays_no_other_work(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).polling_often().processes(1, 0).receipts(1, 2).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    for body in [b"{".as_slice(), b"", b"{\"v\":1,\"items\":[]}", b"\xff\xfe", b"<xml/>"] {
        poison(&bank, body).await;
    }
    let id = fresh_id();
    drop(client.submit_until_accepted(account, id, &Submission::deposit("4.00")).await);
    let mut bank = bank;
    bank.start_worker();
    assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    wait::until("each message has a dead letter", wait::TIMEOUT, async || {
        match client.dead_letters().await.len() {
            5 => Ok(()),
            other => Err(format!("{other} letters")),
        }
    })
    .await;
    client.until_drained(wait::TIMEOUT).await;
}

/// Accepts a deposit of 4.00 whose workers crash until the next worker sets it aside. Returns the letter. A
/// worker runs afterwards.
async fn crashing_work(
    bank: &mut Scenario,
    client: &Client,
    account: postonce_shared::domain::ids::AccountKey,
    id: postonce_shared::domain::ids::MessageId,
) -> Value {
    client.open(account).await;
    let request = client.submission(account, id, &Submission::deposit("4.00"));
    let request = request.header("x-request-id", "checkout-19").header("traceparent", TRACE);
    drop(client.send(request).await.expect(202));
    let letter = crash_until_dead(bank, client).await;
    let line = wait::until("the log tells it", wait::TIMEOUT, async || {
        let log = bank.workers[0].log();
        let line = log.find(|line| line.contains("became a dead letter").then(|| line.to_owned()));
        line.ok_or_else(|| log.lines().join("\n"))
    })
    .await;
    let names = ["checkout-19", TRACE.split('-').nth(1).expect("a trace"), &*id.to_string()];
    assert!(names.iter().all(|name| line.contains(name)), "the request can be followed: {line}");
    letter
}

/// Replays or discards a letter, which must succeed.
async fn decide(client: &Client, method: Method, path: &str) {
    let answer = client.call(method, &format!("/v1/admin/dead-letters{path}"), &json!({})).await;
    assert!([200, 202, 204].contains(&answer.status), "{answer:?}");
}

fn text<'a>(letter: &'a Value, member: &str) -> &'a str {
    letter.get(member).and_then(Value::as_str).unwrap_or_else(|| panic!("no {member} in {letter}"))
}
