//! A rolling upgrade: a newer web already sends envelopes that the workers of today cannot read.
//!
//! The worker of today is the real process. The one of tomorrow runs in the test: it is the worker
//! of production over a queue that translates the newer version, since what is new about a version
//! is only how its body reads. Another program of the tests would be the same code once more.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join;
use postonce_shared::adapters::local_doorbell::LocalDoorbell;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_shared::messaging::envelope;
use postonce_shared::messaging::envelope::seal::{Purpose, Seal};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::queue::{Message, QueueName, RECEIVE_MAX, WorkQueue};
use postonce_shared::testing::conformance::sealed::unsealed;
use postonce_shared::testing::decorators::WorkQueueDecorator;
use postonce_tests::client::{Client, Wish};
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::wait;
use postonce_worker::config::Bounds;
use postonce_worker::config::WorkerConfig;
use postonce_worker::drain::drain;
use postonce_worker::worker::Worker;
use serde_json::Value;

/// How an envelope of today begins, and one of the day after tomorrow.
const TODAY: &str = r#"{"v":1,"#;
const NEWER: &str = r#"{"v":99,"#;
/// Times that the worker of today looks at what it cannot read: more than a dead letter takes.
const LOOKS: u64 = 3;
/// Receipts after which a message of today would be set aside.
const DEQUEUE_COUNT_MAX: u32 = 2;

on_both_stands![an_envelope_of_a_newer_version_waits_is_alerted_and_is_posted_by_a_worker_that_knows_it];

async fn an_envelope_of_a_newer_version_waits_is_alerted_and_is_posted_by_a_worker_that_knows_it(
    stand: Stand,
) {
    let plan = Plan::on(stand).processes(1, 0).with("POSTONCE_QUEUE_COUNT", "1");
    let mut bank = plan.receipts(1, DEQUEUE_COUNT_MAX).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let ids = [fresh_id(), fresh_id()];
    for id in ids {
        drop(client.submit(account, id, &Wish::deposit("1.00")).await.expect(202));
    }
    upgrade_envelopes(&bank).await;

    bank.start_worker();
    is_alerted(&mut bank).await;
    waits(&client, account, &ids).await;
    // What it can read it posts meanwhile.
    drop(client.post(account, fresh_id(), &Wish::deposit("5.00")).await);

    bank.workers.remove(0).drain().await;
    let store = bank.store().await;
    let (starter, draining) = drain();
    let tomorrow = tomorrow(store, bank.seal().await);
    let posted = async {
        for id in ids {
            assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
        }
        client.until_drained(wait::PATIENCE).await;
        starter.start();
    };
    join(tomorrow.run(&draining), posted).await;
    assert_eq!(client.balance(account).await, "7.00");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
}

/// Replaces what waits by the same in the newer version.
async fn upgrade_envelopes(bank: &Scenario) {
    let (queue, seal) = (bank.store().await.queue, bank.seal().await);
    let name = envelope::queues(1).swap_remove(0);
    let messages = queue.receive(&name, RECEIVE_MAX, wait::PATIENCE).await.expect("a queue answers");
    assert!(!messages.is_empty(), "the deposits wait");
    for message in messages {
        let body = translated(&message.body, TODAY, NEWER, &seal);
        queue.send(&name, &body, Duration::ZERO).await.expect("a queue takes any body");
        drop(queue.delete(&name, &message.lease).await.expect("a queue answers"));
    }
}

/// A line of the log and a metric, at every look.
async fn is_alerted(bank: &mut Scenario) {
    let vitals = bank.vitals(0);
    wait::until("the metric tells", wait::PATIENCE, async || {
        match vitals.count("worker_newer_versions").await {
            count if count >= LOOKS => Ok(()),
            count => Err(format!("{count} times")),
        }
    })
    .await;
    let worker = bank.workers.first_mut().expect("it was started");
    worker.process().wait_for_line("an alert", wait::PATIENCE, |line| {
        (line.contains("ERROR") && line.contains("waits for a newer worker")).then_some(())
    });
}

/// It is accepted as before, on the queue as before, and nobody's dead letter.
async fn waits(client: &Client, account: AccountKey, ids: &[MessageId]) {
    for id in ids {
        assert_eq!(client.transaction(account, *id).await.transaction_status(), "accepted");
    }
    assert!(client.over_queues("depth").await > 0);
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
}

/// The worker of tomorrow.
fn tomorrow(store: Store, seal: Seal) -> Worker {
    let queue = Arc::new(Bilingual(Arc::clone(&store.queue), seal.clone()));
    let world = Arc::new(SystemWorld::new());
    let bank = Bank::new(Store { queue, ..store }, world, Arc::new(LocalDoorbell::default()), seal, 1);
    let one = std::num::NonZeroUsize::MIN;
    let config = WorkerConfig {
        visibility_timeout: Duration::from_secs(20),
        dequeue_count_max: DEQUEUE_COUNT_MAX,
        // Nobody rings for what was sent before it started.
        idle_delay_max: Duration::from_secs(1),
        receivers: Bounds { floor: one, ceiling: one },
        legacy_partner: None,
        request_rate: HttpLimits::default().rate(),
        held: false,
    };
    Worker::new(&bank, config, Arc::default())
}

/// The body in another version, sealed as by a process that writes it.
fn translated(body: &[u8], from: &str, to: &str, seal: &Seal) -> Vec<u8> {
    assert!(seal.verify(Purpose::Message, body), "a process of the bank wrote it");
    let text = String::from_utf8(unsealed(body)).expect("an envelope is text");
    let rest = text.strip_prefix(from).unwrap_or_else(|| panic!("{text} does not begin with {from}"));
    seal.seal(Purpose::Message, format!("{to}{rest}").into_bytes())
}

/// A queue that reads both versions. What it writes back is of today.
struct Bilingual(Arc<dyn WorkQueue>, Seal);

#[async_trait]
impl WorkQueueDecorator for Bilingual {
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
            true => Message { body: translated(&message.body, NEWER, TODAY, &self.1), ..message },
            false => message,
        };
        Ok(messages.into_iter().map(read).collect())
    }
}
