//! Operations of an operator on the gate, and work that waits for its release.

use std::time::Duration;

use futures::future::join_all;
use postonce_shared::messaging::envelope;
use postonce_shared::testing::prelude::*;
use reqwest::Method;
use serde_json::{Value, json};

use crate::prelude::*;

const PATH: &str = "/v1/admin/gate";

impl Client {
    /// Changes the gate. The response lists the listeners that acknowledged.
    pub async fn set_gate(&self, change: &Value) -> Answer {
        self.call(Method::PUT, PATH, change).await
    }

    /// Holds the gate, and waits until this number of listeners have acknowledged.
    pub async fn hold(&self, listeners: usize) -> Answer {
        self.change_gate("held", listeners).await
    }

    /// Releases the gate, and waits until this number of listeners have acknowledged.
    pub async fn release(&self, listeners: usize) -> Answer {
        self.change_gate("released", listeners).await
    }

    async fn change_gate(&self, state: &str, listeners: usize) -> Answer {
        wait::until("all listeners acknowledge the gate", wait::TIMEOUT, async || {
            let answer = self.set_gate(&json!({ "state": state })).await.expect(200);
            if acknowledged_listeners(&answer) == listeners { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await
    }

    /// Reads the state of the gate.
    pub async fn gate(&self) -> Answer {
        self.get(PATH).await
    }

    /// Deposits 1.00 `deposits` times, to the accounts in turn, each in its own queue message: a deposit is sent only after the
    /// previous one for the same queue got a response. Returns the ids.
    pub async fn queue_up(
        &self,
        accounts: &[AccountKey],
        deposits: usize,
        queue_count: u16,
    ) -> Vec<(AccountKey, MessageId)> {
        let submissions: Vec<_> =
            accounts.iter().cycle().take(deposits).map(|it| (*it, fresh_id())).collect();
        let submission = Submission::deposit("1.00");
        let streams = envelope::queues(queue_count).into_iter().map(|queue| {
            let of_queue =
                submissions.iter().filter(move |it| envelope::queue_of(it.0, queue_count) == queue);
            async {
                for (account, id) in of_queue {
                    drop(self.submit_until_accepted(*account, *id, &submission).await);
                }
            }
        });
        join_all(streams).await;
        submissions
    }
}

/// Returns the number of listeners that acknowledged, from the response to a change of the gate.
pub fn acknowledged_listeners(answer: &Answer) -> usize {
    let listeners = answer.body.pointer("/listeners").and_then(Value::as_array);
    let listeners = listeners.unwrap_or_else(|| panic!("no listeners in {answer:?}"));
    listeners.iter().filter(|it| it.pointer("/acknowledged") == Some(&Value::Bool(true))).count()
}

/// Returns a future time in the format of the API.
pub fn in_the_future(ahead: Duration) -> String {
    SystemWorld::new().now().after(ahead).to_string()
}
