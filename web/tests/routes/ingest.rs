//! Rings for ingest queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix_web::test::TestRequest;
use futures::FutureExt as _;
use postonce_shared::config::IngestQueue;
use postonce_shared::ports::queue::INGEST;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use postonce_web::api::ingest_bells::IngestBells;

use super::test_bank::{TestBank, with_key};

/// A bank with the ingest queues `of-mill` and `of-shop`, each of the partner with this name.
async fn bank() -> TestBank {
    let mut bank = TestBank::new().await;
    let queue = |partner: &str| IngestQueue {
        name: format!("of-{partner}"),
        queue: queue_of(partner),
        partner: PartnerId::parse(partner).unwrap(),
        poll_max: Duration::from_secs(60),
    };
    let queues = ["mill", "shop"].map(queue).to_vec();
    bank.app.ingest = Arc::new(IngestBells::new(&bank.bank, queues));
    bank
}

fn queue_of(partner: &str) -> QueueName {
    QueueName::of_ingest(&format!("orders-{partner}")).unwrap()
}

#[actix_web::test]
async fn a_partner_rings_for_its_own_queues_and_an_operator_for_all() {
    let bank = bank().await;
    let [mill, operator, without] = [(); 3].map(|()| NewKey::random());
    bank.add_key(&mill, "mill", &[Scope::Ring]).await;
    bank.add_key(&operator, "operator", &[Scope::Ring, Scope::Operate]).await;
    bank.add_key(&without, "mill", &[Scope::Deposit, Scope::Operate]).await;
    let rung = || bank.bank.doorbell.rung(INGEST).now_or_never().unwrap_or_default();
    let check = async |key: &NewKey, name: &str, status: u16, expected: &[&str]| {
        let request = TestRequest::post().uri(&format!("/v1/ingest/{name}/ring"));
        let answer = bank.call(with_key(request, key)).await;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        let expected: BTreeSet<QueueName> = expected.iter().map(|partner| queue_of(partner)).collect();
        assert_eq!(rung(), expected, "{name}");
        answer
    };
    let answer = check(&mill, "of-mill", 204, &["mill"]).await;
    assert_eq!(answer.text, "");
    // A queue of another partner is as unknown as one that does not exist.
    let others = check(&mill, "of-shop", 404, &[]).await;
    let unknown = check(&mill, "of-nobody", 404, &[]).await;
    assert_eq!(others.body["code"], "ingest_unknown");
    assert_eq!(others.body["detail"], unknown.body["detail"]);
    check(&operator, "of-mill", 204, &["mill"]).await;
    check(&operator, "of-shop", 204, &["shop"]).await;
    check(&operator, "orders-shop", 404, &[]).await;
    check(&without, "of-mill", 403, &[]).await;
}

#[actix_web::test]
async fn operators_see_the_depth_of_ingest_queues() {
    let bank = bank().await;
    let queue = QueueName::of_ingest("orders").unwrap();
    bank.store.queue.send(&queue, b"not an order", Duration::ZERO).await.unwrap();
    let answer = bank.call_as_shop(TestRequest::get().uri("/v1/admin/queues")).await;
    let queues = answer.body["queues"].as_array().unwrap();
    let found = queues.iter().find(|found| found["name"] == "ingest:orders");
    assert_eq!(found.unwrap_or_else(|| panic!("{queues:?}"))["depth"], 1);
}
