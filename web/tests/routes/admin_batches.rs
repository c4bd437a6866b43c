//! Batches of all partners, as operators read and cancel them.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use postonce_shared::batches::BatchFault;
use postonce_shared::batches::records::BatchRecords;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use serde_json::{Value, json};

use super::test_bank::{Answer, TestBank, id, with_key};

const BATCHES: &str = "/v1/admin/batches";

/// Submits a batch of the shop whose only item breaks a rule, so that it is completed without a worker.
async fn submit(bank: &TestBank, number: u32) -> BatchKey {
    let request = TestRequest::post()
        .uri("/v1/batches?on-invalid=skip")
        .insert_header(("content-type", "application/x-ndjson"))
        .insert_header(("idempotency-key", id(number)))
        .set_payload("not JSON\n");
    let answer = bank.call_as_shop(request).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    BatchKey { partner: PartnerId::parse("shop").unwrap(), batch: id(number).parse().unwrap() }
}

fn path(number: u32) -> String {
    format!("{BATCHES}/shop/{}", id(number))
}

/// A key of another partner, with these scopes.
async fn key(bank: &TestBank, partner: &str, scopes: &[Scope]) -> NewKey {
    let key = NewKey::random();
    bank.add_key(&key, partner, scopes).await;
    key
}

async fn get(bank: &TestBank, path: &str, key: &NewKey) -> Answer {
    bank.call(with_key(TestRequest::get().uri(path), key)).await
}

async fn delete(bank: &TestBank, path: &str, key: &NewKey) -> Answer {
    bank.call(with_key(TestRequest::delete().uri(path), key)).await
}

/// The partners and ids of the batches on a page.
fn listed(page: &Answer) -> Vec<(String, String)> {
    assert_eq!(page.status, 200, "{page:?}");
    let batches = page.body["batches"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    batches.iter().map(|it| (text(&it["partner_id"]), text(&it["batch"]["batch_id"]))).collect()
}

fn of_shop(numbers: &[u32]) -> Vec<(String, String)> {
    numbers.iter().map(|number| ("shop".to_owned(), id(*number))).collect()
}

#[actix_web::test]
async fn an_operator_reads_and_cancels_a_batch_of_another_partner() {
    let bank = TestBank::new().await;
    for number in [1, 2] {
        submit(&bank, number).await;
    }
    let ops = key(&bank, "ops", &[Scope::Operate]).await;
    let first = get(&bank, &format!("{BATCHES}?limit=1"), &ops).await;
    assert_eq!(listed(&first), of_shop(&[1]));
    let cursor = first.body["next_cursor"].as_str().unwrap();
    let second = get(&bank, &format!("{BATCHES}?limit=2&cursor={cursor}"), &ops).await;
    assert_eq!((listed(&second), &second.body["next_cursor"]), (of_shop(&[2]), &Value::Null));
    let found = get(&bank, &path(1), &ops).await;
    assert_eq!(
        (&found.body["partner_id"], &found.body["batch"]["phase"]),
        (&json!("shop"), &json!("received"))
    );

    for _ in 0..2 {
        let cancelled = delete(&bank, &path(1), &ops).await;
        assert_eq!((cancelled.status, &cancelled.body["batch"]["phase"]), (200, &json!("cancelled")));
    }
    let of_partner = bank.get(&format!("/v1/batches/{}", id(1))).await;
    assert_eq!(of_partner.body["phase"], "cancelled", "the partner sees it");
    let rows = bank.app.audit.list(None, 10).await.unwrap();
    assert_eq!((rows[0].done.act.as_str(), rows[0].done.actor.as_str()), ("batch.cancel", "ops"));
    assert_eq!(rows[0].done.target, format!("partner_id=shop batch_id={}", id(1)));

    assert_eq!(listed(&get(&bank, BATCHES, &ops).await), of_shop(&[2]), "only open ones");
    let all = get(&bank, &format!("{BATCHES}?partner_id=shop"), &ops).await;
    assert_eq!(listed(&all), of_shop(&[1, 2]));
    let cancelled = get(&bank, &format!("{BATCHES}?partner_id=shop&phase=cancelled"), &ops).await;
    assert_eq!(listed(&cancelled), of_shop(&[1]));
    assert_eq!(listed(&get(&bank, &format!("{BATCHES}?partner_id=mill"), &ops).await), of_shop(&[]));
}

#[actix_web::test]
async fn a_partner_and_an_operator_read_what_hinders_a_batch_without_the_cause() {
    let bank = TestBank::new().await;
    let batch = submit(&bank, 1).await;
    let address = "https://bank.table.core.windows.net/ledger";
    let fault = StoreFault::Unavailable { doing: "reading a batch", source: address.into() };
    bank.app.batches.batches.hinder(&batch, BatchFault::from(fault).hindrance()).await.unwrap();
    let expected = json!({
        "code": "store_unavailable", "message": "The store does not answer. The work is tried again.",
        "at": bank.world.now().to_string()
    });
    let ops = key(&bank, "ops", &[Scope::Operate]).await;
    let found = get(&bank, &path(1), &ops).await;
    assert_eq!(found.body["batch"]["hindrance"], expected, "{found:?}");
    let of_partner = bank.get(&format!("/v1/batches/{}", id(1))).await;
    assert_eq!(of_partner.body["hindrance"], expected, "{of_partner:?}");
    assert!(!found.text.contains(address) && !of_partner.text.contains(address));
}

#[actix_web::test]
async fn ids_of_batches_that_do_not_exist_are_refused() {
    let bank = TestBank::new().await;
    submit(&bank, 1).await;
    let ops = key(&bank, "ops", &[Scope::Operate]).await;
    let of_mill = format!("{BATCHES}/mill/{}", id(1));
    assert_eq!(get(&bank, &of_mill, &ops).await.problem(), (404, "batch_unknown"));
    assert_eq!(delete(&bank, &of_mill, &ops).await.problem(), (404, "batch_unknown"));
    let refused = get(&bank, &format!("{BATCHES}/Mill/1"), &ops).await;
    assert_eq!(
        (refused.problem(), refused.fields()),
        ((400, "path_invalid"), vec!["partner_id", "batch_id"])
    );
    let refused = get(&bank, &format!("{BATCHES}?partner_id=Mill"), &ops).await;
    assert_eq!((refused.problem(), refused.fields()), ((400, "query_invalid"), vec!["partner_id"]));
    let other = get(&bank, &format!("{BATCHES}?partner_id=shop&limit=1"), &ops).await;
    let cursor = other.body["next_cursor"].as_str().unwrap();
    let refused = get(&bank, &format!("{BATCHES}?cursor={cursor}"), &ops).await;
    assert_eq!(refused.problem(), (400, "cursor_invalid"), "the cursor is one of another listing");
}

#[actix_web::test]
async fn a_damaged_record_hides_no_other_open_batch() {
    let bank = TestBank::new().await;
    let damaged = BatchRecords::id_of(&submit(&bank, 1).await);
    submit(&bank, 2).await;
    let records = &bank.store.records;
    let revision = records.find(Collection::Batches, &damaged).await.unwrap().unwrap().revision;
    drop(records.save(Collection::Batches, &damaged, "{}", Some(&revision)).await.unwrap());
    let ops = key(&bank, "ops", &[Scope::Operate]).await;
    assert_eq!(listed(&get(&bank, BATCHES, &ops).await), of_shop(&[2]));
}

#[actix_web::test]
async fn operators_need_a_scope_and_for_results_the_scope_admin() {
    let bank = TestBank::new().await;
    let batch = submit(&bank, 1).await;
    let others = Scope::ALL.iter().copied().filter(|scope| !scope.includes(Scope::Operate));
    let other = key(&bank, "mill", &others.collect::<Vec<_>>()).await;
    let results = format!("{}/results", path(1));
    for (method, path) in [
        (Method::GET, BATCHES.to_owned()),
        (Method::GET, path(1)),
        (Method::DELETE, path(1)),
        (Method::GET, results.clone()),
    ] {
        let request = TestRequest::default().method(method.clone()).uri(&path);
        let refused = bank.call(with_key(request, &other)).await;
        assert_eq!(refused.problem(), (403, "scope_missing"), "{method} {path}");
    }
    let ops = key(&bank, "ops", &[Scope::Operate]).await;
    assert_eq!(get(&bank, &results, &ops).await.problem(), (403, "scope_missing"));
    let chief = key(&bank, "chief", &[Scope::Admin]).await;
    assert_eq!(get(&bank, &results, &chief).await.problem(), (409, "batch_not_completed"));

    bank.app.batches.batches.initiate(&batch).await.unwrap();
    let lines = get(&bank, &results, &chief).await;
    assert_eq!(
        (lines.status, &lines.body["status"], &lines.body["line"]),
        (200, &json!("invalid"), &json!(1))
    );
    let request = TestRequest::get().uri(&results).insert_header(("accept", "text/csv"));
    let csv = bank.call(with_key(request, &chief)).await;
    assert!(csv.text.starts_with("line,message_id,status,"), "{csv:?}");
    assert_eq!(delete(&bank, &path(1), &ops).await.problem(), (409, "batch_not_cancellable"));
    assert_eq!(listed(&get(&bank, BATCHES, &ops).await), of_shop(&[]), "it has ended");
}
