//! The number of workers that is needed, as KEDA reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::testing::prelude::*;
use serde_json::json;

use super::test_bank::TestBank;

const ONE: &str = r#"{"amount":"1","currency":"EUR"}"#;
const SCALE: &str = "/v1/admin/scale";

#[actix_web::test]
async fn the_number_of_workers_is_shown_with_its_reasons() {
    let bank = TestBank::with_account().await;
    let expected = |changes: serde_json::Value| {
        let mut body = json!({
            "workers_wanted": 1, "workers_for_backlog": 0, "workers_floor": 0, "workers_min": 1, "workers_max": 5,
            "depth": 0, "waiting": 0, "oldest_age_s": 0, "batch_items": 0, "batch_chunks": 0, "posting_age_target_s": 2, "worker_rate": 10,
        });
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    assert_eq!(bank.get(SCALE).await.body, expected(json!({})));
    // One account has one queue; a worker receives 32 messages of it and posts 20 within the target.
    for number in 0..65 {
        assert_eq!(bank.submit("deposits", number, ONE).await.status, 202);
    }
    bank.world.advance(Duration::from_secs(5));
    let wanted = json!({
        "workers_wanted": 3, "workers_for_backlog": 3, "depth": 65, "waiting": 65, "oldest_age_s": 5,
    });
    assert_eq!(bank.get(SCALE).await.body, expected(wanted));
    bank.post_all().await;
    bank.post_all().await;
    bank.post_all().await;
    bank.world.advance(Duration::from_secs(5));
    assert_eq!(bank.get(SCALE).await.body, expected(json!({})));
    bank.world.advance(Duration::from_secs(3600));
    let floor = json!({"workers_wanted": 3, "workers_floor": 3});
    assert_eq!(
        bank.get(SCALE).await.body,
        expected(floor),
        "the schedule demands three workers after one o'clock"
    );
}

#[actix_web::test]
async fn frequent_requests_read_each_queue_once_in_five_seconds() {
    let bank = TestBank::new().await;
    bank.get(SCALE).await;
    bank.world.advance(Duration::from_secs(5));
    let before = bank.operations();
    for _ in 0..50 {
        assert_eq!(bank.get(SCALE).await.status, 200);
        bank.world.advance(Duration::from_millis(99));
    }
    assert_eq!(bank.operations() - before, 3, "there are two queues, and the list of open batches");
}

/// A queue that is unavailable and counts reads of its backlog.
#[derive(Default)]
pub struct UnavailableQueue(pub AtomicU64);

fn outage<T>() -> Result<T, StoreFault> {
    Err(StoreFault::Unavailable { doing: "being tested", source: "unavailable".into() })
}

#[async_trait]
impl WorkQueue for UnavailableQueue {
    async fn send(&self, _: &QueueName, _: &[u8], _: Duration) -> Result<(), StoreFault> {
        outage()
    }
    async fn receive(&self, _: &QueueName, _: usize, _: Duration) -> Result<Vec<Message>, StoreFault> {
        outage()
    }
    async fn extend(
        &self,
        _: &QueueName,
        _: &Lease,
        _: &[u8],
        _: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        outage()
    }
    async fn delete(&self, _: &QueueName, _: &Lease) -> Result<Held<()>, StoreFault> {
        outage()
    }
    async fn backlog(&self, _: &QueueName) -> Result<Backlog, StoreFault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        outage()
    }
}

#[actix_web::test]
async fn an_outage_of_a_queue_is_reported_and_causes_no_further_reads() {
    let queue = Arc::new(UnavailableQueue::default());
    let bank = TestBank::over(|store| store.queue = queue.clone()).await;
    for _ in 0..10 {
        assert_eq!(bank.get(SCALE).await.problem(), (503, "storage_unavailable"));
    }
    let reads = queue.0.load(Ordering::Relaxed);
    assert!((1..=2).contains(&reads), "two queues were read {reads} times");
}
