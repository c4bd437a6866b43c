//! Opening, changing and listing accounts.

use serde_json::json;

use super::test_bank::{ACCOUNT, TestBank, USER};

const ADA: &str =
    r#"{"currency":"EUR","overdraft_limit":"5","holder":{"given_name":"Ada","family_name":"Byron"}}"#;

#[actix_web::test]
async fn opening_is_idempotent() {
    let bank = TestBank::new().await;
    assert_eq!(bank.get(ACCOUNT).await.problem(), (404, "account_unknown"));
    let opened = bank.put(ACCOUNT, ADA).await;
    assert_eq!((opened.status, opened.header("location")), (201, Some(ACCOUNT)));
    let expected = json!({
        "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11", "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22",
        "currency": "EUR", "status": "open", "balance": "0.00", "available": "5.00", "overdraft_limit": "5.00",
        "version": 1, "opened_at": "2026-01-01T00:00:00.000Z",
        "holder": {"given_name": "Ada", "family_name": "Byron"},
    });
    assert_eq!(opened.body, expected);
    let again = bank.put(ACCOUNT, &ADA.replace("\"5\"", "\"5.00\"")).await;
    assert_eq!((again.status, &again.body), (200, &expected));
    for other in [ADA.replace("EUR", "USD"), ADA.replace("\"5\"", "\"6\""), ADA.replace("Ada", "Eve")] {
        assert_eq!(bank.put(ACCOUNT, &other).await.problem(), (409, "account_exists"), "{other}");
    }
    assert_eq!(bank.get(ACCOUNT).await.body, expected);
}

#[actix_web::test]
async fn changes_are_idempotent_and_an_account_is_closed_only_at_zero() {
    let bank = TestBank::with_account().await;
    let check = async |body: &str, version: u64| {
        let answer = bank.patch(ACCOUNT, body).await;
        assert_eq!((answer.status, &answer.body["version"]), (200, &json!(version)), "{body}: {answer:?}");
        assert_eq!(bank.get(ACCOUNT).await.body, answer.body);
    };
    check(r#"{"overdraft_limit":"10.00"}"#, 2).await;
    check(r#"{"overdraft_limit":"10"}"#, 2).await;
    check(r#"{"status":"closed","overdraft_limit":"10"}"#, 3).await;
    check(r#"{"status":"closed"}"#, 3).await;
    bank.submit("deposits", 1, r#"{"amount":"1","currency":"EUR"}"#).await;
    bank.post_all().await;
    let rejected = bank.submit("deposits", 1, r#"{"amount":"1","currency":"EUR"}"#).await;
    assert_eq!(rejected.body["reason"], "account_closed");
    check(r#"{"status":"open"}"#, 5).await;
    bank.submit("deposits", 2, r#"{"amount":"1","currency":"EUR"}"#).await;
    bank.post_all().await;
    let refused = bank.patch(ACCOUNT, r#"{"status":"closed"}"#).await;
    assert_eq!(refused.problem(), (409, "account_balance_not_zero"));
    let refused = bank.patch(ACCOUNT, r#"{"overdraft_limit":"1.005"}"#).await;
    assert_eq!((refused.problem(), refused.fields()), ((422, "validation_failed"), vec!["overdraft_limit"]));
    let other = ACCOUNT.replace("77aa", "88bb");
    assert_eq!(bank.patch(&other, r#"{"status":"closed"}"#).await.problem(), (404, "account_unknown"));
}

#[actix_web::test]
async fn the_accounts_of_a_user_come_in_pages() {
    let bank = TestBank::new().await;
    assert_eq!(bank.get(USER).await.body, json!({"accounts": [], "next_cursor": null}));
    for number in 0..4 {
        bank.put(&ACCOUNT.replace("77aa0b9e", &format!("77aa0b9{number}")), r#"{"currency":"JPY"}"#).await;
    }
    let mut seen = Vec::new();
    let mut path = format!("{USER}?limit=2");
    loop {
        let page = bank.get(&path).await.body;
        let accounts = page["accounts"].as_array().unwrap().clone();
        assert_eq!(accounts.len(), 2);
        seen.extend(accounts.iter().map(|account| account["account_id"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("{USER}?limit=2&cursor={cursor}");
    }
    assert_eq!(seen.len(), 4);
    assert!(seen.is_sorted());
}
