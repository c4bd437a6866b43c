//! Finding single transactions across partners, with their way through the bank.

use actix_web::test::TestRequest;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use serde_json::{Value, json};

use super::test_bank::{ACCOUNT, Answer, TestBank, id, submission, with_key};

const TEN: &str = r#"{"amount":"10.00","currency":"EUR","partner_id":"forged"}"#;
const LOOKUP: &str = "/v1/admin/transactions";

fn by_message(number: u32) -> String {
    let [_, _, _, user, _, account] = ACCOUNT.split('/').collect::<Vec<_>>().try_into().unwrap();
    format!("{LOOKUP}?message_id={}&user_id={user}&account_id={account}", id(number))
}

fn transactions(answer: &Answer) -> &Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["transactions"].as_array().unwrap()
}

fn events(found: &Value) -> Vec<&str> {
    found["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[actix_web::test]
async fn a_posting_is_found_by_its_order_number_with_its_partner_and_its_way() {
    let bank = TestBank::with_account().await;
    let request = submission("deposits", 1, TEN).insert_header(("x-request-id", "checkout-17"));
    assert_eq!(bank.call_as_shop(request).await.status, 202);
    let open = bank.get(&by_message(1)).await;
    let [found] = transactions(&open).as_slice() else { panic!("{open:?}") };
    assert_eq!((events(found), &found["way"]), (vec!["accepted"], &json!("open")));
    bank.post_all().await;
    let posted = bank.submit("deposits", 1, TEN).await;
    let number = posted.body["order_number"].as_str().unwrap();
    let answer = bank.get(&format!("{LOOKUP}?order_number={number}")).await;
    let [found] = transactions(&answer).as_slice() else { panic!("{answer:?}") };
    assert_eq!(found["transaction"]["message_id"], id(1));
    assert_eq!(found["transaction"]["partner_id"], "shop", "not what the partner sent");
    assert_eq!(found["transaction"]["unknown_members"], json!({"partner_id": "forged"}));
    assert_eq!((&found["request_id"], &found["way"]), (&json!("checkout-17"), &json!("immediate")));
    assert_eq!(events(found), ["accepted", "posted"], "the fixture posts without a worker");
    assert_eq!((&found["is_dead_letter"], &found["enqueued_again"]), (&json!(false), &json!(0)));
    let unused = bank.get(&format!("{LOOKUP}?order_number={}", OrderNumber::from_counter(1))).await;
    assert!(transactions(&unused).is_empty());
}

#[actix_web::test]
async fn a_message_id_finds_the_transactions_of_all_partners() {
    let bank = TestBank::with_account().await;
    let other = NewKey::random();
    bank.add_key(&other, "mill", &[Scope::Deposit]).await;
    bank.submit("deposits", 1, TEN).await;
    bank.call(with_key(submission("deposits", 1, TEN), &other)).await;
    let answer = bank.get(&by_message(1)).await;
    let partners: Vec<_> =
        transactions(&answer).iter().map(|it| it["transaction"]["partner_id"].as_str().unwrap()).collect();
    assert_eq!(partners, ["mill", "shop"]);
    assert!(transactions(&bank.get(&by_message(2)).await).is_empty());
}

#[actix_web::test]
async fn accounts_out_of_reach_and_wrong_queries_find_nothing() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, TEN).await;
    let narrow = bank.key_without_reach().await;
    let answer = bank.call(with_key(TestRequest::get().uri(&by_message(1)), &narrow)).await;
    assert!(transactions(&answer).is_empty(), "{answer:?}");
    let wrong = bank.get(&format!("{LOOKUP}?order_number=11")).await;
    assert_eq!((wrong.problem(), wrong.fields()), ((400, "query_invalid"), vec!["order_number"]));
    let reader = NewKey::random();
    bank.add_key_with_reach(Reach::Everything, &reader, "shop", &[Scope::Read, Scope::Operate]).await;
    let refused = bank.call(with_key(TestRequest::get().uri(&by_message(1)), &reader)).await;
    assert_eq!(refused.problem(), (403, "scope_missing"));
}

#[actix_web::test]
async fn a_statement_with_all_partners_names_the_others() {
    let bank = TestBank::with_account().await;
    let other = NewKey::random();
    bank.add_key(&other, "mill", &[Scope::Deposit, Scope::Read]).await;
    bank.submit("deposits", 1, TEN).await;
    bank.call(with_key(submission("deposits", 2, TEN), &other)).await;
    bank.post_all().await;
    let path = format!("{ACCOUNT}/transactions");
    let all = bank.get(&path).await;
    let partners: Vec<_> = transactions(&all).iter().map(|it| it["partner_id"].as_str()).collect();
    assert_eq!(partners, [None, Some("mill")], "not what a partner sent: {all:?}");
    let xml =
        bank.call_as_shop(TestRequest::get().uri(&path).insert_header(("accept", "application/xml"))).await;
    assert_eq!(xml.text.matches("<PartnerId>mill</PartnerId>").count(), 1, "{}", xml.text);
    let answer = bank.call(with_key(TestRequest::get().uri(&path), &other)).await;
    let partners: Vec<_> = transactions(&answer).iter().map(|it| it["partner_id"].as_str()).collect();
    assert_eq!(partners, [Some("forged")], "a partner sees its own members only");
}

#[actix_web::test]
async fn an_answer_and_a_problem_name_the_trace() {
    let bank = TestBank::with_account().await;
    let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = || submission("deposits", 1, TEN).insert_header(("traceparent", sent));
    let answer = bank.call_as_shop(request()).await;
    let trace = answer.header("traceresponse").unwrap();
    assert!(trace.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && trace.ends_with("-01"), "{trace}");
    let problem = bank.call(request()).await;
    assert_eq!(problem.problem(), (401, "api_key_missing"));
    assert_eq!(problem.body["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    let begun = bank.get(ACCOUNT).await;
    let (trace, request) = (begun.header("traceresponse").unwrap(), begun.header("x-request-id").unwrap());
    assert!(trace.starts_with(&format!("00-{request}-")), "a new trace has the id of the request: {trace}");
}
