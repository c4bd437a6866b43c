//! How many workers are wanted, as KEDA asks for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::queue::{Backlog, Held, Lease, Message, QueueName, WorkQueue};
use serde_json::json;

use super::desk::Desk;

const ONE: &str = r#"{"amount":"1","currency":"EUR"}"#;
const SCALE: &str = "/v1/admin/scale";

#[actix_web::test]
async fn the_number_comes_with_its_reasons() {
    let desk = Desk::with_account().await;
    let expected = |changes: serde_json::Value| {
        let mut body = json!({
            "workers_wanted": 1, "workers_for_backlog": 0, "workers_floor": 0, "workers_min": 1, "workers_max": 5,
            "depth": 0, "waiting": 0, "oldest_age_s": 0, "posting_age_target_s": 2, "worker_rate": 10,
        });
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    assert_eq!(desk.get(SCALE).await.body, expected(json!({})));
    // One account has one queue; a worker takes 32 messages of it and posts 20 within the target.
    for number in 0..65 {
        assert_eq!(desk.submit("deposits", number, ONE).await.status, 202);
    }
    desk.world.advance(Duration::from_secs(5));
    let wanted = json!({
        "workers_wanted": 3, "workers_for_backlog": 3, "depth": 65, "waiting": 65, "oldest_age_s": 5,
    });
    assert_eq!(desk.get(SCALE).await.body, expected(wanted));
    desk.post_all().await;
    desk.post_all().await;
    desk.post_all().await;
    desk.world.advance(Duration::from_secs(5));
    assert_eq!(desk.get(SCALE).await.body, expected(json!({})));
    desk.world.advance(Duration::from_secs(3600));
    let floor = json!({"workers_wanted": 3, "workers_floor": 3});
    assert_eq!(desk.get(SCALE).await.body, expected(floor), "the schedule wants three after one o'clock");
}

#[actix_web::test]
async fn asking_often_costs_one_look_at_each_queue_in_five_seconds() {
    let desk = Desk::new().await;
    desk.get(SCALE).await;
    desk.world.advance(Duration::from_secs(5));
    let before = desk.operations();
    for _ in 0..50 {
        assert_eq!(desk.get(SCALE).await.status, 200);
        desk.world.advance(Duration::from_millis(99));
    }
    assert_eq!(desk.operations() - before, 2, "there are two queues");
}

/// A queue that is away; it counts who asks.
#[derive(Default)]
struct Away(AtomicU64);

fn away<T>() -> Result<T, StoreFault> {
    Err(StoreFault::Unavailable { doing: "being tested", source: "it is away".into() })
}

#[async_trait]
impl WorkQueue for Away {
    async fn send(&self, _: &QueueName, _: &[u8], _: Duration) -> Result<(), StoreFault> {
        away()
    }
    async fn receive(&self, _: &QueueName, _: usize, _: Duration) -> Result<Vec<Message>, StoreFault> {
        away()
    }
    async fn extend(
        &self,
        _: &QueueName,
        _: &Lease,
        _: &[u8],
        _: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        away()
    }
    async fn delete(&self, _: &QueueName, _: &Lease) -> Result<Held<()>, StoreFault> {
        away()
    }
    async fn backlog(&self, _: &QueueName) -> Result<Backlog, StoreFault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        away()
    }
}

#[actix_web::test]
async fn a_queue_that_is_away_is_said_and_not_asked_more_often() {
    let queue = Arc::new(Away::default());
    let desk = Desk::over(|store| store.queue = queue.clone()).await;
    for _ in 0..10 {
        assert_eq!(desk.get(SCALE).await.problem(), (503, "storage_unavailable"));
    }
    let looks = queue.0.load(Ordering::Relaxed);
    assert!((1..=2).contains(&looks), "there are two queues, and they were asked {looks} times");
}
