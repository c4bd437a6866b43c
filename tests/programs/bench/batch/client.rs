//! A client that sends a batch and waits until it is completed.

use std::time::Duration;

use bytes::Bytes;
use postonce_tests::wait::{self, Stopwatch};
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;

use crate::bench::load::Target;

/// Longest time until a batch is completed.
const TIME_MAX: Duration = Duration::from_secs(1800);
/// Pause before a batch that is not completed is read again.
const INTERVAL: Duration = Duration::from_millis(10);

/// The part of a batch that the client reads.
#[derive(Debug, Deserialize)]
struct Batch {
    phase: String,
    posted: u64,
}

/// Sends a batch with a new id, and waits until all of its items are posted.
///
/// # Panics
/// If an item is not posted: then something else was measured.
pub async fn post(target: &Target, items: u64, document: Bytes) {
    let http = reqwest::Client::builder().tcp_nodelay(true).no_proxy().build();
    let http = http.expect("a client with default settings");
    let address = target.addresses.first().expect("an arm has an address");
    let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    let watch = Stopwatch::start();
    let request = http.post(format!("http://{address}/v1/batches")).bearer_auth(&target.key);
    let request =
        request.header(CONTENT_TYPE, "application/x-ndjson").header("idempotency-key", format!("\"{id}\""));
    let answer = request.body(document).send().await.expect("the arm answers");
    let status = answer.status().as_u16();
    assert!(status == 202, "the batch is answered with {status}: {:?}", answer.text().await);
    loop {
        let request = http.get(format!("http://{address}/v1/batches/{id}")).bearer_auth(&target.key);
        let answer = request.header("prefer", "wait=30").send().await.expect("the arm answers");
        let text = answer.text().await.expect("an answer has a body");
        let batch: Batch = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        if batch.phase == "completed" {
            assert!(batch.posted == items, "{items} items were to be posted: {text}");
            return;
        }
        assert!(
            batch.phase != "cancelled" && watch.elapsed() < TIME_MAX,
            "the batch is not completed: {text}"
        );
        wait::pass(INTERVAL).await;
    }
}
