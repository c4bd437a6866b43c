//! The rows of the audit trail: every administrative act that was done, as `/v1/admin/audit` lists it.

use actix_web::test::TestRequest;
use postonce_shared::testing::prelude::*;
use serde_json::Value;

use super::test_bank::{ACCOUNT, TestBank, json, refuse_saves, submission};

const AUDIT: &str = "/v1/admin/audit";

fn acts(page: &Value) -> Vec<String> {
    let rows = page["rows"].as_array().unwrap();
    rows.iter().map(|row| format!("{} {}", row["sequence"], row["act"].as_str().unwrap())).collect()
}

#[actix_web::test]
async fn acts_that_were_done_are_listed_and_others_are_not() {
    let bank = TestBank::with_account().await;
    assert_eq!(bank.patch(ACCOUNT, r#"{"overdraft_limit":"5.00"}"#).await.status, 200);
    // Refused acts, reads and postings.
    assert_eq!(bank.put(ACCOUNT, r#"{"currency":"USD"}"#).await.status, 409);
    assert_eq!(bank.call_as_shop(TestRequest::delete().uri("/v1/admin/dead-letters/1")).await.status, 404);
    assert_eq!(bank.call(json(TestRequest::put().uri("/v1/admin/gate"), "{}")).await.status, 401);
    assert_eq!(bank.get(ACCOUNT).await.status, 200);
    let deposit = r#"{"amount":"5.00","currency":"EUR"}"#;
    assert_eq!(bank.call_as_shop(submission("deposits", 1, deposit)).await.status, 202);
    assert_eq!(bank.put("/v1/admin/gate", r#"{"state":"held"}"#).await.status, 200);
    // A repeated act is done again.
    assert_eq!(bank.put("/v1/admin/gate", r#"{"state":"held"}"#).await.status, 200);
    let page = bank.get(AUDIT).await;
    assert_eq!(
        acts(&page.body),
        ["4 gate.change", "3 gate.change", "2 account.change", "1 account.open"],
        "{page:?}"
    );
    assert_eq!(page.body["next_cursor"], Value::Null);
    let rows = page.body["rows"].as_array().unwrap();
    for (row, earlier) in rows.iter().zip(&rows[1..]) {
        assert_eq!(row["previous_hash"], earlier["hash"]);
    }
    assert_eq!(rows[3]["previous_hash"], "0".repeat(64));
    let row = &rows[1];
    assert_eq!((row["actor"].as_str(), row["target"].as_str()), (Some("shop"), Some("state=held epoch=1")));
    assert!(row["key_id"].is_string() && row["origin"].is_string() && row["at"].is_string(), "{row}");
}

#[actix_web::test]
async fn the_listing_has_pages_and_refuses_invalid_parameters() {
    let bank = TestBank::with_account().await;
    for _ in 0..4 {
        assert_eq!(bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await.status, 200);
    }
    let (mut found, mut path) = (Vec::new(), format!("{AUDIT}?limit=2"));
    for _ in 0..3 {
        let page = bank.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        found.extend(acts(&page.body).into_iter().map(|act| act.split(' ').next().unwrap().to_owned()));
        let cursor = page.body["next_cursor"].as_str().unwrap_or_default().to_owned();
        assert_eq!(cursor.is_empty(), found.len() == 5, "only the last page has no cursor");
        path = format!("{AUDIT}?limit=2&cursor={cursor}");
    }
    assert_eq!(found, ["5", "4", "3", "2", "1"]);
    let refused = bank.get(&format!("{AUDIT}?limit=0")).await;
    assert_eq!((refused.problem(), refused.fields()), ((400, "query_invalid"), vec!["limit"]));
    let refused = bank.get(&format!("{AUDIT}?cursor=AAAAAAAAAAAAAAA")).await;
    assert_eq!(refused.problem(), (400, "cursor_invalid"));
}

#[actix_web::test]
async fn an_act_without_a_row_is_answered_as_done_and_counted() {
    let refused = || StoreFault::Corrupt { doing: "saving", source: "the row is refused".into() };
    let bank = TestBank::over(|store| refuse_saves(store, Collection::AuditRows, refused)).await;
    let missing = async || {
        let metrics = bank.get("/metrics").await.text;
        let line = metrics.lines().find(|line| line.starts_with("postonce_audit_rows_missing "));
        line.unwrap_or_else(|| panic!("{metrics}")).to_owned()
    };
    assert_eq!(missing().await, "postonce_audit_rows_missing 0");
    assert_eq!(bank.put("/v1/admin/gate", r#"{"state":"held"}"#).await.status, 200);
    assert_eq!(missing().await, "postonce_audit_rows_missing 1");
    assert_eq!(acts(&bank.get(AUDIT).await.body), [""; 0]);
}
