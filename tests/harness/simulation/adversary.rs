//! An adversary that may add messages to the queues, receive and change messages, and write payloads. It has no secret and no
//! access to tables, and it is not a direct producer.
//!
//! The adversary learns keys, revisions and seals from every message that it receives. It may cause delay. The auditor checks
//! that it causes nothing else: every amount, final row and account is as the clients requested.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt as _;
use parking_lot::Mutex;
use postonce_shared::testing::prelude::*;

use super::faults::{Fault, length};
use super::network::{Network, now};
use super::scheduler::{ProcessId, Scheduler};

/// Maximum time between two actions of the adversary.
const TURN_MAX: Duration = Duration::from_secs(4);
/// Maximum number of messages received at once.
const MESSAGES_MAX: usize = 3;
/// Maximum number of stored message bodies.
const BODIES_MAX: usize = 50;
/// Number of payload names that the adversary writes to.
const PAYLOAD_NAMES: u64 = 4;
/// An amount that no client requested, in minor units.
const FORGED_AMOUNT: &str = "5000000";
/// Position of the digits of the seal in a message body.
pub const SEAL: std::ops::Range<usize> = 9..73;

/// Creates a forged body from two received bodies.
pub type Forge = fn(&Adversary, String, String) -> Option<String>;

/// The adversary of one run.
pub struct Adversary {
    network: Arc<Network>,
    queues: Vec<QueueName>,
    forge: Forge,
    seen_bodies: Mutex<Vec<String>>,
}

impl Adversary {
    /// Starts an adversary, which acts until the faults of the run stop.
    pub fn spawn(network: &Arc<Network>, queues: Vec<QueueName>, forge: Forge) {
        let (network, scheduler) = (Arc::clone(network), network.scheduler.clone());
        let adversary = Self { network, queues, forge, seen_bodies: Mutex::default() };
        let acts = async move {
            loop {
                let time = adversary.scheduler().up_to(TURN_MAX);
                adversary.scheduler().sleep(ProcessId::ENVIRONMENT, time).await;
                adversary.act();
            }
        };
        scheduler.spawn(ProcessId::ENVIRONMENT, acts.boxed());
    }

    pub(super) fn scheduler(&self) -> &Scheduler {
        &self.network.scheduler
    }

    fn act(&self) {
        let Some(queue) = self.scheduler().take_one(self.queues.clone()) else { return };
        if self.network.injects(Fault::MessageTaken) {
            self.intercept(&queue);
        }
        if self.network.injects(Fault::MessageForged)
            && let Some(body) = self.forge()
        {
            self.send(&queue, &body);
        }
    }

    fn send(&self, queue: &QueueName, body: &[u8]) {
        self.network.note(format!("the adversary sends {}", String::from_utf8_lossy(body)));
        self.network.auditor.tampered(body);
        if now(self.network.raw.queue.send(queue, body, Duration::ZERO)).is_ok() {
            self.network.auditor.sent(body);
        }
    }

    /// Receives messages, and changes, deletes or only hides them.
    fn intercept(&self, queue: &QueueName) {
        let hidden = length(Fault::MessageTaken, self.scheduler());
        let Ok(messages) = now(self.network.raw.queue.receive(queue, MESSAGES_MAX, hidden)) else { return };
        for message in messages {
            self.network.auditor.received(&message);
            self.network.auditor.tampered(&message.body);
            self.remember(&message);
            match self.scheduler().below(4) {
                0 => self.change(queue, &message),
                1 => self.delete(queue, &message),
                _ => self.network.note(format!("the adversary hides {}", message.lease.message_id)),
            }
        }
    }

    fn remember(&self, message: &Message) {
        let mut bodies = self.seen_bodies.lock();
        if let Ok(body) = String::from_utf8(message.body.clone())
            && bodies.len() < BODIES_MAX
        {
            bodies.push(body);
        }
    }

    fn change(&self, queue: &QueueName, message: &Message) {
        let Some(body) = self.forge() else { return };
        self.network.note(format!(
            "the adversary changes {} to {}",
            message.lease.message_id,
            String::from_utf8_lossy(&body)
        ));
        self.network.auditor.tampered(&body);
        let changed = now(self.network.raw.queue.extend(queue, &message.lease, &body, Duration::ZERO));
        if matches!(changed, Ok(Held::Ours(_))) {
            self.network.auditor.extended(&message.lease.message_id, &body);
        }
    }

    fn delete(&self, queue: &QueueName, message: &Message) {
        self.network.note(format!("the adversary deletes {}", message.lease.message_id));
        if matches!(now(self.network.raw.queue.delete(queue, &message.lease)), Ok(Held::Ours(()))) {
            self.network.auditor.deleted(&message.lease.message_id);
        }
    }

    /// Returns a forged body, or `None` until a message was received.
    fn forge(&self) -> Option<Vec<u8>> {
        let bodies = self.seen_bodies.lock().clone();
        let (one, other) = (self.scheduler().take_one(bodies.clone())?, self.scheduler().take_one(bodies)?);
        let forged = (self.forge)(self, one, other.clone())?;
        // Some bodies are sent again unchanged, so their seal is valid.
        Some(if self.scheduler().below(6) == 0 { other.into_bytes() } else { forged.into_bytes() })
    }

    /// Returns a forged body of work that moves money if any part of it is trusted.
    pub fn forge_work(&self, one: String, other: String) -> Option<String> {
        let rich = with_member(&one, "a", FORGED_AMOUNT);
        Some(match self.scheduler().below(12) {
            // With the original seal, without a seal, or with the seal of another message.
            0 => rich,
            1 => bare(&rich),
            2 => other.get(SEAL).map(|seal| under_seal(&rich, seal)).unwrap_or(rich),
            3 => bare(&with_member(&rich, "e", "*")),
            4 => bare(&with_member(&one, "k", self.scheduler().one_of(&["deposit", "withdrawal"]))),
            // The id of another transaction, with the content of this one.
            5 => bare(&with_member(&rich, "m", process(&other, "m")?)),
            // Claims that many attempts failed already.
            6 => bare(&one).replacen("\"v\":1", "\"v\":1,\"attempts\":{\"started\":[],\"waited\":true}", 1),
            7 => one.replacen("\"v\":1", "\"v\":1,\"forgiven\":4000000000", 1),
            // An unknown transaction, an unknown version, and a truncated body.
            8 => bare(&with_member(&rich, "m", "00000000000000000000000000abcdef")),
            9 => bare(&one).replacen("\"v\":1", "\"v\":99", 1),
            10 => one.get(..one.len().div_euclid(2)).unwrap_or_default().to_owned(),
            _ => self.claim(&bare(&rich)),
        })
    }

    /// Returns a claim for a payload that the adversary wrote, sometimes under the name of a payload that was claimed before or
    /// that became a dead letter.
    fn claim(&self, content: &str) -> String {
        let name = format!("work-{}", self.scheduler().below(PAYLOAD_NAMES));
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = gzip.write_all(content.as_bytes()).and_then(|()| gzip.finish());
        let packed = packed.expect("a write to memory succeeds");
        let payload = if self.scheduler().below(3) == 0 { b"not a gzip stream".to_vec() } else { packed };
        drop(now(self.network.raw.payloads.delete(&name)));
        drop(now(self.network.raw.payloads.put(&name, &payload)));
        self.network.auditor.tampered(content.as_bytes());
        format!(r#"{{"v":2,"payload":"{name}"}}"#)
    }
}

/// Returns a body without its seal.
pub fn bare(body: &str) -> String {
    String::from_utf8(unsealed(body.as_bytes())).unwrap_or_default()
}

/// Replaces the values of all members with this name. Values in a simulated store contain no escape sequences.
pub fn with_member(text: &str, name: &str, value: &str) -> String {
    let head = format!("\"{name}\":\"");
    let mut parts = text.split(&head);
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once('"').map_or("", |(_, rest)| rest);
        changed.push_str(&format!("{head}{value}\"{rest}"));
    }
    changed
}

fn process<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Returns the body with the seal of another message.
pub fn under_seal(text: &str, seal: &str) -> String {
    let mut changed = text.to_owned();
    if changed.get(SEAL).is_some() {
        changed.replace_range(SEAL, seal);
    }
    changed
}
