//! Valid and invalid amounts; each kind of invalid amount has its own error message.

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;
use serde_json::{Value, json};

#[tokio::test]
async fn an_amount_is_a_decimal_text_within_the_currencys_decimals() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let client = bank.client(0);
    let (euro, yen, dinar) = (fresh_account(), fresh_account(), fresh_account());
    client.open(euro).await;
    client.open_with(yen, "JPY", "0").await;
    client.open_with(dinar, "BHD", "0.000").await;
    for (account, currency, amount, stored) in [
        (euro, "EUR", "0.1", "0.10"),
        (euro, "EUR", "12", "12.00"),
        (euro, "EUR", "12.50", "12.50"),
        (euro, "EUR", "9999999999999999.99", "9999999999999999.99"),
        (yen, "JPY", "12", "12"),
        (dinar, "BHD", "1.005", "1.005"),
    ] {
        let submission = Submission::deposit(amount).with("currency", currency);
        let answer = client.submit(account, fresh_id(), &submission).await.expect(202);
        assert_eq!(answer.text_at("/amount"), stored);
    }
    for (account, currency, amount) in [(yen, "JPY", "12.0"), (dinar, "BHD", "1.0005")] {
        refused(&client, account, &json!({"amount": amount, "currency": currency})).await;
    }
}

#[tokio::test]
async fn each_kind_of_invalid_amount_has_its_own_message() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let mut messages = std::collections::BTreeMap::new();
    for amount in [
        json!("1e3"),
        json!("-5"),
        json!("00012.50"),
        json!("12.505"),
        json!("9".repeat(40)),
        json!("\u{ff11}\u{ff12}"),
        json!("1,50"),
        json!(".5"),
        json!("0"),
        json!(""),
        json!(12.5),
    ] {
        let message = refused(&client, account, &json!({"amount": amount, "currency": "EUR"})).await;
        if let Some(other) = messages.insert(message.clone(), amount.clone()) {
            panic!("{amount} and {other} get the same answer: {message}");
        }
    }
    // No refused request used up an id or moved money.
    assert_eq!(client.balance(account).await, "0.00");
}

#[tokio::test]
async fn all_violations_are_reported_at_once() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let body = json!({"amount": "-5", "currency": "EURO", "reference": "r".repeat(141)});
    let answer = submit(&client, account, &body).await.expect(422);
    let violations = answer.body.pointer("/violations").and_then(Value::as_array);
    let fields: Vec<&str> =
        violations.into_iter().flatten().filter_map(|one| one.get("field").and_then(Value::as_str)).collect();
    for field in ["amount", "currency", "reference"] {
        assert!(fields.contains(&field), "{field} is missing in {answer:?}");
    }
}

/// The message about the amount of a body that must be refused only for its amount.
async fn refused(client: &Client, account: AccountKey, body: &Value) -> String {
    let answer = submit(client, account, body).await.expect(422);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(answer.text_at("/violations/0/field"), "amount", "{answer:?}");
    assert!(answer.body.pointer("/violations/1").is_none(), "{answer:?}");
    answer.text_at("/violations/0/message").to_owned()
}

async fn submit(client: &Client, account: AccountKey, body: &Value) -> Answer {
    let request = client.request(reqwest::Method::POST, &format!("{}/deposits", path_of(account)));
    client.send(request.header("Idempotency-Key", fresh_id().to_string()).json(body)).await
}
