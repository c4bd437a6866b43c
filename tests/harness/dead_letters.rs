//! Work that cannot be posted, and the dead letters that it becomes.

use std::time::Duration;

use postonce_shared::messaging::envelope;
use serde_json::Value;

use crate::client::Client;
use crate::faults::CrashPoint;
use crate::scenario::Scenario;
use crate::wait;

/// Attempts until work is set aside: two together with other work, and then three alone, because the item may be the cause.
const ATTEMPTS: u32 = 5;

/// Puts a body on the first queue of the bank, without the API.
///
/// # Panics
/// When the store does not take it.
pub async fn poison(bank: &Scenario, body: &[u8]) {
    let queues = envelope::queues(1);
    let queue = queues.first().expect("there is a queue");
    bank.store().await.queue.send(queue, body, Duration::ZERO).await.expect("the queue takes any body");
}

/// Lets workers crash before they commit the only accepted work, until the next one sets it aside, which runs afterwards.
/// Returns the dead letter.
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
