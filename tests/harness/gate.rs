//! The gate as an operator uses it, and work that waits behind it.

use futures::future::join_all;
use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_shared::messaging::envelope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client, Wish};
use crate::scenario::fresh_id;
use crate::wait;

/// Where it is.
const PATH: &str = "/v1/admin/gate";

impl Client {
    /// Changes the gate; the answer says who obeys it.
    pub async fn set_gate(&self, change: &Value) -> Answer {
        self.call(Method::PUT, PATH, change).await
    }

    /// Holds the gate until that many listeners obey.
    pub async fn hold(&self, listeners: usize) -> Answer {
        self.change_gate("held", listeners).await
    }

    /// Releases the gate; that many listeners must obey.
    pub async fn release(&self, listeners: usize) -> Answer {
        self.change_gate("released", listeners).await
    }

    async fn change_gate(&self, state: &str, listeners: usize) -> Answer {
        wait::until("all listeners obey the gate", wait::PATIENCE, async || {
            let answer = self.set_gate(&json!({ "state": state })).await.expect(200);
            if obedient(&answer) == listeners { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await
    }

    /// The gate as it is.
    pub async fn gate(&self) -> Answer {
        self.get(PATH).await
    }

    /// Deposits 1.00 so many times, the accounts in turn, each in a queue message of its own: a
    /// queue's next one is not sent before the one before it was answered. Returns the ids.
    pub async fn queue_up(
        &self,
        accounts: &[AccountKey],
        deposits: usize,
        queue_count: u16,
    ) -> Vec<(AccountKey, MessageId)> {
        let wishes: Vec<_> = accounts.iter().cycle().take(deposits).map(|it| (*it, fresh_id())).collect();
        let wish = Wish::deposit("1.00");
        let streams = envelope::queues(queue_count).into_iter().map(|queue| {
            let of_queue = wishes.iter().filter(move |it| envelope::queue_of(it.0, queue_count) == queue);
            async {
                for (account, id) in of_queue {
                    drop(self.submit_until_accepted(*account, *id, &wish).await);
                }
            }
        });
        join_all(streams).await;
        wishes
    }
}

/// The listeners that acknowledged, by the answer to a change of the gate.
pub fn obedient(answer: &Answer) -> usize {
    let listeners = answer.body.pointer("/listeners").and_then(Value::as_array);
    let listeners = listeners.unwrap_or_else(|| panic!("no listeners in {answer:?}"));
    listeners.iter().filter(|it| it.pointer("/acknowledged") == Some(&Value::Bool(true))).count()
}
