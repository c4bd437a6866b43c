//! An attacker with shared access signatures (SAS) for a queue and the payloads of a bank. The attacks run in Python with
//! Microsoft's SDK, so they share no code with the bank.

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postonce_shared::messaging::envelope;
use postonce_shared::testing::prelude::*;
use serde_json::{Value, json};

use crate::prelude::*;

/// An attacker of a bank on Azurite with one queue.
#[derive(Debug)]
pub struct Forger {
    /// The connection string, the queue and the container.
    target: Value,
}

/// A change of the message of one transaction.
#[derive(Debug, Clone)]
pub struct Interception {
    /// The transaction.
    pub id: MessageId,
    /// The name of a function in `forge.py`.
    pub way: &'static str,
    /// New values of members of the item.
    pub change: Value,
}

impl Forger {
    /// Creates an attacker of this bank.
    ///
    /// # Panics
    /// When the bank is not on Azurite, or has several queues.
    pub fn of(bank: &Scenario) -> Self {
        let setting = |name: &str| bank.settings.get(name).expect("every bank has this setting").to_owned();
        let storage = setting("POSTONCE_STORAGE");
        let connection = storage.strip_prefix("azure:").expect("the bank is on Azurite");
        let prefix = setting("POSTONCE_NAME_PREFIX");
        let queues = envelope::queues(bank.queue_count());
        let [queue] = queues.as_slice() else { panic!("the bank has {} queues", queues.len()) };
        let (queue, container) = (format!("{prefix}-{queue}"), format!("{prefix}-payloads"));
        Self { target: json!({"connection": connection, "queue": queue, "container": container}) }
    }

    /// Creates a direct producer for an ingest queue of this bank, which must exist.
    pub fn producer(bank: &Scenario, queue: &QueueName) -> Self {
        let mut producer = Self::of(bank);
        producer.target["queue"] = queue.ingest().expect("it is an ingest queue").into();
        producer
    }

    /// Sends texts as base64, as the unmodified client with its encode policy does.
    pub fn add_in_base64(&self, texts: &[String]) {
        self.add(&json!({ "texts_in_base64": texts }));
    }

    /// Sends texts unchanged, with a SAS that permits only adding messages.
    pub fn add_texts(&self, texts: &[String]) {
        self.add(&json!({ "texts": texts }));
    }

    /// Sends envelopes, with a SAS that permits only adding messages.
    pub fn add_envelopes(&self, envelopes: &[Value]) {
        self.add(&json!({ "envelopes": envelopes }));
    }

    fn add(&self, request: &Value) {
        let done = self.run("add", request);
        assert_eq!(done["may_read"], false, "the SAS permits only adding");
    }

    /// Stores each envelope as a payload and sends a claim for it, with SAS that permit only creating payloads and adding
    /// messages. The container must exist.
    pub fn claim_envelopes(&self, envelopes: &[Value]) {
        drop(self.run("claim", &json!({ "envelopes": envelopes })));
    }

    /// Stores payloads under these names. The container must exist.
    pub fn store_under(&self, names: &[&str]) {
        drop(self.run("store", &json!({ "names": names })));
    }

    /// Like [`Self::claim_envelopes`], with these bytes as payloads.
    pub fn claim_payloads(&self, payloads: &[Vec<u8>]) {
        let payloads: Vec<String> = payloads.iter().map(|payload| STANDARD.encode(payload)).collect();
        drop(self.run("claim", &json!({ "payloads": payloads })));
    }

    /// Receives all messages, each with one transaction, and performs the interception of that transaction. Returns the items as
    /// received.
    pub fn intercept(&self, interceptions: &[Interception]) -> Vec<Value> {
        let interceptions: Vec<Value> = interceptions
            .iter()
            .map(|Interception { id, way, change }| json!({"message_id": id.simple(), "way": way, "change": change}))
            .collect();
        let done = self.run("intercept", &json!({ "interceptions": interceptions }));
        let items = done["items"].as_array().expect("it returns the items").clone();
        assert_eq!(items.len(), interceptions.len(), "every transaction has one message");
        items
    }

    /// Changes all items of all stored payloads. Returns the number of items.
    pub fn rewrite_payloads(&self, change: &Value) -> u64 {
        let done = self.run("rewrite_payloads", &json!({ "change": change }));
        done["items"].as_u64().expect("it returns a count")
    }

    /// Deletes the queue with all its messages, as an operator of the storage account could.
    pub fn delete_queue(&self) {
        drop(self.run("delete_queue", &json!({})));
    }

    fn run(&self, command: &str, request: &Value) -> Value {
        let mut request = request.clone();
        for (name, value) in self.target.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        let mut child = Command::new(python::program())
            .arg(python::directory().join("forge.py"))
            .arg(command)
            // Azurite listens on loopback, which a proxy in the environment cannot reach.
            .env("NO_PROXY", "*")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let mut input = child.stdin.take().expect("its input is a pipe");
        // If the program ends before it has read everything, its exit status shows the failure.
        drop(writeln!(input, "{request}"));
        drop(input);
        let output = child.wait_with_output().expect("its output can be read");
        assert!(output.status.success(), "forge.py {command} failed ({})", output.status);
        serde_json::from_slice(&output.stdout).expect("it prints JSON")
    }
}

/// Returns an unsealed envelope with these items.
pub fn envelope_of(items: &[Value]) -> Value {
    json!({"v": 1, "items": items})
}

/// Returns a complete item of a transaction in euro.
pub fn item(
    account: AccountKey,
    partner: &str,
    id: MessageId,
    (kind, minor_units): (&str, &str),
    etag: &str,
) -> Value {
    json!({
        "u": account.user.simple(), "c": account.account.simple(), "p": partner, "m": id.simple(),
        "k": kind, "a": minor_units, "cur": "EUR", "t": "1795248000000", "e": etag,
    })
}
