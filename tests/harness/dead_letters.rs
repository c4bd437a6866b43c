//! Creates work that cannot be posted, and its dead letters.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::messaging::envelope::{self, Body, Content};
use postonce_shared::testing::prelude::*;
use serde_json::Value;

use crate::faults::CrashPoint;
use crate::prelude::*;

/// Number of attempts before work becomes a dead letter: two together with other work, then three alone, because this item
/// may be the cause.
const ATTEMPTS: u32 = 5;

/// Sends a body to the first queue of the bank, without the API.
///
/// # Panics
/// When the store refuses it.
pub async fn poison(bank: &Scenario, body: &[u8]) {
    let queues = envelope::queues(1);
    let queue = queues.first().expect("there is a queue");
    bank.store().await.queue.send(queue, body, Duration::ZERO).await.expect("the queue takes any body");
}

/// Lets workers crash before they commit the only accepted work, until the next worker makes it a dead letter. That worker
/// keeps running. Returns the dead letter.
///
/// # Panics
/// When a worker does not crash, or there is not exactly one dead letter in time.
pub async fn crash_until_dead(bank: &mut Scenario, client: &Client) -> Value {
    for _ in 0..ATTEMPTS {
        assert_eq!(bank.run_crashing_worker(CrashPoint::BeforeCommit), Some(9), "the worker crashes");
    }
    bank.start_worker();
    one_letter(client).await
}

/// Waits for the only dead letter.
///
/// # Panics
/// When there is not exactly one in time.
pub async fn one_letter(client: &Client) -> Value {
    wait::until("there is a dead letter", wait::TIMEOUT, async || {
        match client.dead_letters().await.as_slice() {
            [letter] => Ok(letter.clone()),
            others => Err(format!("{others:?}")),
        }
    })
    .await
}

/// Makes dead letters of all messages on the queues of a bank without workers, with this reason, as a worker does with work
/// that it cannot post.
///
/// # Panics
/// When a message is not sealed work.
pub async fn set_aside(bank: &Scenario, reason: &str) {
    let (store, seal) = (bank.store().await, bank.seal().await);
    let (queue, world) = (Arc::clone(&store.queue), Arc::new(SystemWorld::new()));
    let doorbell = Arc::new(LocalDoorbell::default());
    let process = Bank::new(store, world, doorbell, seal.clone(), bank.queue_count());
    for name in envelope::queues(bank.queue_count()) {
        let messages = queue.receive(&name, RECEIVE_MAX, wait::TIMEOUT).await.expect("a queue answers");
        for message in messages {
            let Ok(Body::Content(Content::Work(work))) = Body::decode(&message.body, &seal) else {
                panic!("a message that the web did not send");
            };
            let keys: Vec<TransactionKey> = work.items.into_iter().map(|work| work.submission.key).collect();
            let letter = process.dead_letters.set_aside(&name, &message, &keys, reason).await;
            letter.expect("the store keeps the dead letter");
            drop(queue.delete(&name, &message.lease).await.expect("a queue answers"));
        }
    }
}
