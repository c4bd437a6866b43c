//! Opening, changing and listing accounts.

use actix_web::test::TestRequest;
use serde_json::json;

use super::test_bank::{ACCOUNT, TestBank, USER, json as with_body};

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

#[actix_web::test]
async fn a_frozen_account_rejects_every_transaction_and_keeps_its_balance() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, r#"{"amount":"7","currency":"EUR"}"#).await;
    bank.post_all().await;
    let frozen = bank.patch(ACCOUNT, r#"{"status":"frozen"}"#).await;
    let shown = (&frozen.body["status"], &frozen.body["balance"], &frozen.body["available"]);
    assert_eq!(shown, (&json!("frozen"), &json!("7.00"), &json!("0.00")), "{frozen:?}");
    for (number, kind) in [(2, "deposits"), (3, "withdrawals")] {
        bank.submit(kind, number, r#"{"amount":"1","currency":"EUR"}"#).await;
        bank.post_all().await;
        let rejected = bank.submit(kind, number, r#"{"amount":"1","currency":"EUR"}"#).await;
        assert_eq!((rejected.status, &rejected.body["reason"]), (200, &json!("account_frozen")));
    }
    assert_eq!(
        bank.patch(ACCOUNT, r#"{"status":"closed"}"#).await.problem(),
        (409, "account_balance_not_zero")
    );
    assert_eq!(bank.patch(ACCOUNT, r#"{"status":"open"}"#).await.body["available"], "7.00");
    bank.submit("withdrawals", 4, r#"{"amount":"7","currency":"EUR"}"#).await;
    bank.post_all().await;
    let closed = bank.patch(ACCOUNT, r#"{"status":"closed","overdraft_limit":"5"}"#).await;
    assert_eq!((closed.status, &closed.body["available"]), (200, &json!("0.00")), "nothing can be withdrawn");
}

#[actix_web::test]
async fn a_holder_can_be_named_and_changed() {
    let bank = TestBank::with_account().await;
    for (name, version) in [("Ada", 2), ("Grace", 3), ("Grace", 3)] {
        let holder = json!({"given_name": name, "family_name": "Hopper"});
        let changed = bank.patch(ACCOUNT, &json!({"holder": holder}).to_string()).await;
        assert_eq!((changed.status, &changed.body["holder"]), (200, &holder), "{changed:?}");
        assert_eq!(changed.body["version"], version);
    }
    let other = bank.patch(ACCOUNT, r#"{"overdraft_limit":"1"}"#).await;
    assert_eq!(other.body["holder"]["given_name"], "Grace", "other changes keep it");
    let refused = bank.patch(ACCOUNT, r#"{"holder":{"given_name":"","middle":"x"}}"#).await;
    assert_eq!(refused.problem(), (422, "validation_failed"));
    assert_eq!(refused.fields(), ["holder.family_name", "holder.middle", "holder.given_name"]);
    assert_eq!(bank.patch(ACCOUNT, "{}").await.fields(), ["body"]);
}

#[actix_web::test]
async fn a_change_is_made_only_in_the_expected_state() {
    let bank = TestBank::with_account().await;
    let read = bank.get(ACCOUNT).await;
    let tag = read.header("etag").unwrap().to_owned();
    let patch = async |tag: &str, limit: &str| {
        let body = format!(r#"{{"overdraft_limit":"{limit}"}}"#);
        let request = with_body(TestRequest::patch().uri(ACCOUNT), &body);
        bank.call_as_shop(request.insert_header(("if-match", tag.to_owned()))).await
    };
    let changed = patch(&tag, "1").await;
    assert_eq!(changed.status, 200);
    let next = changed.header("etag").unwrap().to_owned();
    assert_ne!(next, tag);
    let refused = patch(&tag, "2").await;
    assert_eq!(refused.problem(), (412, "precondition_failed"));
    assert!(refused.text.contains("has version 2"), "{refused:?}");
    assert_eq!(patch("nonsense", "2").await.problem(), (412, "precondition_failed"));
    // A posting changes the account, too.
    bank.submit("deposits", 1, r#"{"amount":"1","currency":"EUR"}"#).await;
    bank.post_all().await;
    assert_eq!(patch(&next, "2").await.problem(), (412, "precondition_failed"));
    assert_eq!(patch("*", "2").await.status, 200);
    assert_eq!(bank.get(ACCOUNT).await.body["overdraft_limit"], "2.00");
}

#[actix_web::test]
async fn an_unchanged_account_is_not_sent_again() {
    let bank = TestBank::with_account().await;
    let get = async |tag: &str, accept: &'static str| {
        let request = TestRequest::get().uri(ACCOUNT).insert_header(("accept", accept));
        bank.call_as_shop(request.insert_header(("if-none-match", tag.to_owned()))).await
    };
    let tag = bank.get(ACCOUNT).await.header("etag").unwrap().to_owned();
    let unchanged = get(&tag, "application/json").await;
    let answer = (unchanged.status, unchanged.header("etag"), unchanged.text.as_str());
    assert_eq!(answer, (304, Some(tag.as_str()), ""));
    assert_eq!(unchanged.header("vary"), Some("Accept"));
    assert_eq!(get(&format!("W/{tag}"), "application/json").await.status, 304);
    assert_eq!(get(&tag, "application/xml").await.status, 200, "another representation");
    bank.patch(ACCOUNT, r#"{"overdraft_limit":"1"}"#).await;
    assert_eq!(get(&tag, "application/json").await.body["overdraft_limit"], "1.00");
}

#[actix_web::test]
async fn an_account_is_opened_only_under_its_conditions() {
    let bank = TestBank::new().await;
    let put = async |name: &'static str, tag: &'static str| {
        let request = with_body(TestRequest::put().uri(ACCOUNT), ADA);
        bank.call_as_shop(request.insert_header((name, tag))).await
    };
    assert_eq!(put("if-match", "*").await.problem(), (412, "precondition_failed"));
    assert_eq!(bank.get(ACCOUNT).await.problem(), (404, "account_unknown"), "nothing was opened");
    assert_eq!(put("if-none-match", "*").await.status, 201);
    assert_eq!(put("if-none-match", "*").await.problem(), (412, "precondition_failed"));
    assert_eq!(put("if-match", "*").await.status, 200);
    assert_eq!(put("if-match", "\"2-json\"").await.problem(), (412, "precondition_failed"));
}
