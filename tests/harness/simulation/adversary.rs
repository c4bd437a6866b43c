//! An adversary with the right to add to, receive from and change the queues, and to write payloads. It
//! has no secret and no right to a table, and it is no direct producer.
//!
//! It learns from every message that it receives: keys, revisions, seals. What it may achieve is delay.
//! The auditor checks the rest: no amount, no final row, no account is other than what was asked for.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt as _;
use parking_lot::Mutex;
use postonce_shared::messaging::envelope;
use postonce_shared::ports::queue::{Held, Message, QueueName};
use postonce_shared::testing::conformance::sealed::unsealed;

use super::faults::{Fault, length};
use super::network::{Network, now};
use super::scheduler::{Life, Scheduler};

/// Longest time between two of its turns.
const TURN_MAX: Duration = Duration::from_secs(4);
/// Messages that it receives at once.
const MESSAGES_MAX: usize = 3;
/// Bodies that it remembers.
const MEMORY_MAX: usize = 50;
/// Payloads that it writes, again and again.
const PAYLOADS: u64 = 4;
/// An amount that nobody asked for, in minor units.
const FORTUNE: &str = "5000000";
/// The digits of a seal in its frame: where they begin, and where they end.
const SEAL: std::ops::Range<usize> = 9..73;

/// The adversary of one run.
pub struct Adversary {
    network: Arc<Network>,
    queues: Vec<QueueName>,
    memory: Mutex<Vec<String>>,
}

impl Adversary {
    /// Lets an adversary act until the trouble of the run is over.
    pub fn act(network: &Arc<Network>, queue_count: u16) {
        let (network, queues) = (Arc::clone(network), envelope::queues(queue_count));
        let scheduler = network.scheduler.clone();
        let adversary = Self { network, queues, memory: Mutex::default() };
        let acts = async move {
            loop {
                let time = adversary.scheduler().up_to(TURN_MAX);
                adversary.scheduler().sleep(Life::OUTSIDE, time).await;
                adversary.turn();
            }
        };
        scheduler.spawn(Life::OUTSIDE, acts.boxed());
    }

    fn scheduler(&self) -> &Scheduler {
        &self.network.scheduler
    }

    fn turn(&self) {
        let Some(queue) = self.scheduler().take_one(self.queues.clone()) else { return };
        if self.network.strikes(Fault::MessageTaken) {
            self.take(&queue);
        }
        if self.network.strikes(Fault::MessageForged)
            && let Some(body) = self.forge()
        {
            self.send(&queue, &body);
        }
    }

    fn send(&self, queue: &QueueName, body: &[u8]) {
        self.network.note(format!("the adversary sends {}", String::from_utf8_lossy(body)));
        self.network.auditor.touched(body);
        if now(self.network.raw.queue.send(queue, body, Duration::ZERO)).is_ok() {
            self.network.auditor.sent(body);
        }
    }

    /// Receives messages, and changes, deletes or only hides them.
    fn take(&self, queue: &QueueName) {
        let hidden = length(Fault::MessageTaken, self.scheduler());
        let Ok(messages) = now(self.network.raw.queue.receive(queue, MESSAGES_MAX, hidden)) else { return };
        for message in messages {
            self.network.auditor.received(&message);
            self.network.auditor.touched(&message.body);
            self.remember(&message);
            match self.scheduler().below(4) {
                0 => self.change(queue, &message),
                1 => self.delete(queue, &message),
                _ => self.network.note(format!("the adversary hides {}", message.lease.message_id)),
            }
        }
    }

    fn remember(&self, message: &Message) {
        let mut memory = self.memory.lock();
        if let Ok(body) = String::from_utf8(message.body.clone())
            && memory.len() < MEMORY_MAX
        {
            memory.push(body);
        }
    }

    fn change(&self, queue: &QueueName, message: &Message) {
        let Some(body) = self.forge() else { return };
        self.network.note(format!(
            "the adversary changes {} to {}",
            message.lease.message_id,
            String::from_utf8_lossy(&body)
        ));
        self.network.auditor.touched(&body);
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

    /// A body that gains something if any of it is believed; `None` while it has seen no message.
    fn forge(&self) -> Option<Vec<u8>> {
        let memory = self.memory.lock().clone();
        let (one, other) = (self.scheduler().take_one(memory.clone())?, self.scheduler().take_one(memory)?);
        let rich = with_member(&one, "a", FORTUNE);
        let bare = |text: &str| String::from_utf8(unsealed(text.as_bytes())).unwrap_or_default();
        let forged = match self.scheduler().below(12) {
            // Under the seal of what it was, of something else, or of nothing.
            0 => rich,
            1 => bare(&rich),
            2 => other.get(SEAL).map(|seal| under_seal(&rich, seal)).unwrap_or(rich),
            3 => bare(&with_member(&rich, "e", "*")),
            4 => bare(&with_member(&one, "k", self.scheduler().one_of(&["deposit", "withdrawal"]))),
            // Another transaction with the content of this one.
            5 => bare(&with_member(&rich, "m", member(&other, "m")?)),
            // As if it had been tried often, alone and in vain.
            6 => bare(&one).replacen("\"v\":1", "\"v\":1,\"suspect\":4000000000", 1),
            7 => one.replacen("\"v\":1", "\"v\":1,\"forgiven\":4000000000", 1),
            // What nobody knows, and what nobody can read.
            8 => bare(&with_member(&rich, "m", "00000000000000000000000000abcdef")),
            9 => bare(&one).replacen("\"v\":1", "\"v\":99", 1),
            10 => one.get(..one.len().div_euclid(2)).unwrap_or_default().to_owned(),
            _ => self.claim(&bare(&rich)),
        };
        // Some of what it sees it only sends again: the seal is valid then.
        Some(if self.scheduler().below(6) == 0 { other.into_bytes() } else { forged.into_bytes() })
    }

    /// A claim on a payload that it wrote itself, now and then in the place of one that was claimed before, or
    /// that became a dead letter.
    fn claim(&self, content: &str) -> String {
        let name = format!("work-{}", self.scheduler().below(PAYLOADS));
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = gzip.write_all(content.as_bytes()).and_then(|()| gzip.finish());
        let packed = packed.expect("memory takes everything");
        let payload = if self.scheduler().below(3) == 0 { b"nobody can read it".to_vec() } else { packed };
        drop(now(self.network.raw.payloads.delete(&name)));
        drop(now(self.network.raw.payloads.put(&name, &payload)));
        self.network.auditor.touched(content.as_bytes());
        format!(r#"{{"v":2,"payload":"{name}"}}"#)
    }
}

/// The text with another value of each member of that name. Values have no escapes in a simulated store.
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

fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

fn under_seal(text: &str, seal: &str) -> String {
    let mut changed = text.to_owned();
    if changed.get(SEAL).is_some() {
        changed.replace_range(SEAL, seal);
    }
    changed
}
