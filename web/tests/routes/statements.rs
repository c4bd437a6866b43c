//! Statements in pages, and transactions by status.

use postonce_web::api::pages;
use serde_json::{Value, json};

use super::test_bank::{ACCOUNT, TestBank, id};

/// A bank whose account has three posted deposits, one rejected withdrawal and one accepted deposit.
async fn busy() -> TestBank {
    let bank = TestBank::with_account().await;
    for number in 1..=3 {
        bank.submit("deposits", number, r#"{"amount":"1","currency":"EUR"}"#).await;
        bank.post_all().await;
    }
    bank.submit("withdrawals", 4, r#"{"amount":"50","currency":"EUR"}"#).await;
    bank.post_all().await;
    bank.submit("deposits", 5, r#"{"amount":"2","currency":"EUR"}"#).await;
    bank
}

fn ids(page: &Value) -> Vec<&str> {
    page["transactions"].as_array().unwrap().iter().map(|it| it["message_id"].as_str().unwrap()).collect()
}

#[actix_web::test]
async fn the_statement_is_paged_and_starts_with_the_oldest_entry() {
    let bank = busy().await;
    let whole = bank.get(&format!("{ACCOUNT}/transactions")).await.body;
    assert_eq!(ids(&whole), [id(1), id(2), id(3)]);
    assert_eq!(whole["next_cursor"], Value::Null);
    let first = bank.get(&format!("{ACCOUNT}/transactions?limit=2")).await.body;
    assert_eq!(ids(&first), [id(1), id(2)]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = bank.get(&format!("{ACCOUNT}/transactions?limit=2&cursor={cursor}")).await.body;
    assert_eq!((ids(&second), &second["next_cursor"]), (vec![id(3).as_str()], &Value::Null));
    let exact = bank.get(&format!("{ACCOUNT}/transactions?limit=3")).await.body;
    assert_eq!(exact["next_cursor"], Value::Null);
    let entry = &whole["transactions"][1];
    assert_eq!(*entry, bank.get(&format!("{ACCOUNT}/transactions/{}", id(2))).await.body);
    let foreign = bank.get(&format!("{ACCOUNT}/transactions?status=accepted&cursor={cursor}")).await;
    assert_eq!(foreign.problem(), (400, "cursor_invalid"));
}

#[actix_web::test]
async fn transactions_are_listed_by_status() {
    let bank = busy().await;
    let check = async |status: &str, expected: &[String]| {
        let page = bank.get(&format!("{ACCOUNT}/transactions?status={status}")).await.body;
        assert_eq!(ids(&page), expected, "{status}");
    };
    check("posted", &[id(1), id(2), id(3)]).await;
    check("rejected", &[id(4)]).await;
    check("accepted", &[id(5)]).await;
}

#[actix_web::test]
async fn an_empty_statement_is_not_an_unknown_account() {
    let bank = TestBank::with_account().await;
    let unknown = ACCOUNT.replace("77aa", "88bb");
    for status in ["posted", "accepted", "rejected"] {
        let empty = bank.get(&format!("{ACCOUNT}/transactions?status={status}")).await.body;
        assert_eq!(empty, json!({"transactions": [], "next_cursor": null}));
        let answer = bank.get(&format!("{unknown}/transactions?status={status}")).await;
        assert_eq!(answer.problem(), (404, "account_unknown"));
    }
}

#[actix_web::test]
async fn invalid_queries_are_refused() {
    let bank = TestBank::with_account().await;
    let check = async |query: &str, code: &str| {
        let answer = bank.get(&format!("{ACCOUNT}/transactions?{query}")).await;
        assert_eq!(answer.problem(), (400, code), "{query}");
    };
    check("limit=0", "query_invalid").await;
    check("limit=1001", "query_invalid").await;
    check("status=lost&limit=x", "query_invalid").await;
    check("cursor=17", "cursor_invalid").await;
    check("cursor=", "cursor_invalid").await;
    check("status=rejected&cursor=abcd", "cursor_invalid").await;
}

#[actix_web::test]
async fn a_forged_cursor_is_an_error_of_the_client() {
    let bank = busy().await;
    // The name of the listing of ACCOUNT: the check value of a cursor can be computed from the source code.
    let (user, account) = ACCOUNT.trim_start_matches("/v1/users/").split_once("/accounts/").unwrap();
    for status in ["posted", "accepted", "rejected"] {
        for position in ["", "nonsense", "-1", "18446744073709551616", "🦀"] {
            let cursor = pages::cursor(&format!("{status} of {user}/{account}"), position);
            let answer = bank.get(&format!("{ACCOUNT}/transactions?status={status}&cursor={cursor}")).await;
            assert_eq!(answer.problem(), (400, "cursor_invalid"), "{status} from {position:?}");
        }
    }
    assert_eq!(bank.get("/readyz").await.status, 200);
}
