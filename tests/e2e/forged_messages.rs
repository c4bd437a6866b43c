//! Messages that were changed on their way move no other money than what was accepted: the content of a message is used only
//! when it has a valid seal of the bank; otherwise the row of the transaction decides. The attacker uses Microsoft's SDK with
//! shared access signatures.

use postonce_tests::forger::{Forger, Interception};
use postonce_tests::prelude::*;
use postonce_tests::verify::verify;
use serde_json::{Value, json};

/// The terms of every deposit as it was accepted, once it is posted.
const AS_ACCEPTED: [&str; 6] = ["posted", "deposit", "10.00", "EUR", "rent", "60.00"];

/// Ways to change a message; each is a function of the attacker.
const WAYS: [&str; 4] = ["in_front", "in_place", "in_front_as_claim", "as_claim"];

/// The terms in a transaction or in a line of a statement.
fn terms(transaction: &Value) -> [String; 6] {
    ["status", "type", "amount", "currency", "reference", "balance_after"]
        .map(|member| transaction[member].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_changed_message_does_not_change_what_is_posted() {
    // The worker polls often, because forged messages ring no doorbell, and sets failing messages aside soon.
    let plan = Plan::on(StoreKind::Azurite).through_the_queue().polling_often().receipts(3, 3);
    let bank = plan.with("POSTONCE_QUEUE_COUNT", "1").start().await;
    let client = bank.client(0);
    let store = bank.store().await;
    store.payloads.put("seed", b"creates the container").await.expect("it can be stored");
    let changes = [
        json!({"a": "100000"}),
        json!({"a": "100000", "e": "* "}),
        json!({"a": "100000", "e": "*"}),
        json!({"k": "withdrawal"}),
        json!({"cur": "USD"}),
        json!({"r": "another reference", "d": {"name": "another value"}}),
    ];
    let variants = WAYS.iter().flat_map(|way| changes.iter().map(move |change| (*way, change.clone())));
    let variants: Vec<_> = variants.chain([("deleted", json!({})), ("untouched", json!({}))]).collect();
    let mut accounts = Vec::new();
    for _ in &variants {
        let account = fresh_account();
        client.open(account).await;
        drop(client.post(account, fresh_id(), &Submission::deposit("50.00")).await);
        accounts.push(account);
    }
    bank.until_workers_ready().await;
    drop(client.hold(2).await);
    let mut interceptions = Vec::new();
    for ((way, change), account) in variants.into_iter().zip(&accounts) {
        let id = fresh_id();
        let submission = Submission::deposit("10.00").with("reference", "rent");
        drop(client.submit_until_accepted(*account, id, &submission).await);
        interceptions.push(Interception { id, way, change });
    }
    Forger::of(&bank).intercept(&interceptions);
    drop(client.release(2).await);
    client.until_drained(wait::TIMEOUT).await;
    drop(bank.operate(&["recover"]));
    client.until_drained(wait::TIMEOUT).await;
    for (Interception { id, way, change }, account) in interceptions.iter().zip(&accounts) {
        let answer = client.transaction(*account, *id).await;
        assert_eq!(terms(&answer.body), AS_ACCEPTED, "{way} {change}");
        let statement = client.listing(*account, None, 10).await;
        let lines: Vec<_> = statement.iter().skip(1).map(terms).collect();
        assert_eq!(lines, [AS_ACCEPTED], "{way} {change}");
        drop(client.post(*account, fresh_id(), &Submission::deposit("1.00")).await);
        assert_eq!(client.balance(*account).await, "61.00", "{way} {change}");
    }
    assert!(bank.probe(0).count("worker_unsealed_messages").await > 0);
    let verified = verify(&bank, &[]).await;
    assert_eq!((verified.code, verified.findings), (Some(0), Vec::new()));
    let mut lines = bank.webs.iter().chain(&bank.workers).flat_map(|process| process.log().lines());
    assert!(!lines.any(|line| line.contains("panicked at")));
}
