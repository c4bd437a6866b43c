//! A rolling upgrade: a newer web process sends envelopes that the current workers cannot read.
//!
//! The current worker is the real process. The newer worker runs in the test: it is the production worker
//! over a queue that translates the newer version, since versions differ only in the format of the body.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join;
use postonce_process::drain::drain;
use postonce_shared::config::{AnchorTerms, HttpLimits, ReceiversRule};
use postonce_shared::messaging::envelope;
use postonce_shared::oversight::scrubber::ScrubberTerms;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_worker::config::{Bounds, IdleDelays, WorkerConfig};
use postonce_worker::worker::Worker;
use serde_json::Value;

/// The start of an envelope of the current version, and of a much newer one.
const CURRENT: &str = r#"{"v":1,"#;
const NEWER: &str = r#"{"v":99,"#;
/// How often the current worker receives the unknown version: more often than a dead letter takes.
const RECEIPTS: u64 = 3;
/// Receipts after which a message of the current version would be set aside.
const DEQUEUE_COUNT_MAX: u32 = 2;

on_both_stores![an_envelope_of_a_newer_version_waits_with_an_alert_until_a_newer_worker_posts_it];

async fn an_envelope_of_a_newer_version_waits_with_an_alert_until_a_newer_worker_posts_it(
    store_kind: StoreKind,
) {
    let plan = Plan::on(store_kind).processes(1, 0).with("POSTONCE_QUEUE_COUNT", "1");
    let mut bank = plan.receipts(1, DEQUEUE_COUNT_MAX).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let ids = [fresh_id(), fresh_id()];
    for id in ids {
        drop(client.submit_until_accepted(account, id, &Submission::deposit("1.00")).await);
    }
    upgrade_envelopes(&bank).await;

    bank.start_worker();
    is_alerted(&mut bank).await;
    waits(&client, account, &ids).await;
    // Meanwhile the worker posts work of its version.
    drop(client.post(account, fresh_id(), &Submission::deposit("5.00")).await);

    bank.workers.remove(0).drain().await;
    let store = bank.store().await;
    let (starter, draining) = drain();
    let newer_worker = newer_worker(store, bank.seal().await);
    let posted = async {
        for id in ids {
            assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
        }
        client.until_drained(wait::TIMEOUT).await;
        starter.start();
    };
    join(newer_worker.run(&draining), posted).await;
    assert_eq!(client.balance(account).await, "7.00");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
}

/// Replaces the waiting messages by the newer version.
async fn upgrade_envelopes(bank: &Scenario) {
    let (queue, seal) = (bank.store().await.queue, bank.seal().await);
    let name = envelope::queues(1).swap_remove(0);
    let messages = queue.receive(&name, RECEIVE_MAX, wait::TIMEOUT).await.expect("a queue answers");
    assert!(!messages.is_empty(), "the deposits wait");
    for message in messages {
        let body = translated(&message.body, CURRENT, NEWER, &seal);
        queue.send(&name, &body, Duration::ZERO).await.expect("a queue takes any body");
        drop(queue.delete(&name, &message.lease).await.expect("a queue answers"));
    }
}

/// Checks for a log line, and for a metric at every receipt.
async fn is_alerted(bank: &mut Scenario) {
    let probe = bank.probe(0);
    wait::until("the metric counts the receipts", wait::TIMEOUT, async || {
        match probe.count("worker_newer_versions").await {
            count if count >= RECEIPTS => Ok(()),
            count => Err(format!("{count} times")),
        }
    })
    .await;
    let worker = bank.workers.first_mut().expect("it was started");
    worker.process().wait_for_line("an alert", wait::TIMEOUT, |line| {
        (line.contains("ERROR") && line.contains("waits: the envelope has version")).then_some(())
    });
}

/// Checks that the work is still accepted and on the queue, without a dead letter.
async fn waits(client: &Client, account: AccountKey, ids: &[MessageId]) {
    for id in ids {
        assert_eq!(client.transaction(account, *id).await.transaction_status(), "accepted");
    }
    assert!(client.over_queues("depth").await > 0);
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
}

/// The newer worker.
fn newer_worker(store: Store, seal: Seal) -> Worker {
    let queue = Arc::new(TranslatingQueue(Arc::clone(&store.queue), seal.clone()));
    let world = Arc::new(SystemWorld::new());
    let bank = Bank::new(Store { queue, ..store }, world, Arc::new(LocalDoorbell::default()), seal, 1);
    count_as_registered(&bank);
    let one = std::num::NonZeroUsize::MIN;
    let config = WorkerConfig {
        visibility_timeout: Duration::from_secs(20),
        dequeue_count_max: DEQUEUE_COUNT_MAX,
        // No ring arrives for messages that were sent before its start.
        idle_delays: IdleDelays::fixed(Duration::from_secs(1)),
        receivers: Bounds { floor: one, ceiling: one },
        receivers_rule: ReceiversRule::Adaptive,
        ingest: Vec::new(),
        request_rate: HttpLimits::default().rate(),
        scrubber: ScrubberTerms { operations_per_day: 0, delay: Duration::from_secs(30) },
        anchors: AnchorTerms::default(),
        held: false,
    };
    Worker::new(&bank, config, Arc::default())
}

/// The body in another version, sealed like the body of a process that writes it.
fn translated(body: &[u8], from: &str, to: &str, seal: &Seal) -> Vec<u8> {
    assert!(seal.verify(Purpose::Message, body), "a process of the bank wrote it");
    let text = String::from_utf8(unsealed(body)).expect("an envelope is text");
    let rest = text.strip_prefix(from).unwrap_or_else(|| panic!("{text} does not begin with {from}"));
    seal.seal(Purpose::Message, format!("{to}{rest}").into_bytes())
}

/// A queue that reads both versions and writes the current one.
struct TranslatingQueue(Arc<dyn WorkQueue>, Seal);

#[async_trait]
impl WorkQueueDecorator for TranslatingQueue {
    fn inner(&self) -> &dyn WorkQueue {
        &*self.0
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let messages = self.0.receive(queue, max, visibility).await?;
        let read = |message: Message| match unsealed(&message.body).starts_with(NEWER.as_bytes()) {
            true => Message { body: translated(&message.body, NEWER, CURRENT, &self.1), ..message },
            false => message,
        };
        Ok(messages.into_iter().map(read).collect())
    }
}
