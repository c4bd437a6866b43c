//! The body of a ring: the queues that contain work and, in a ping, the sender.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ports::process_registry::ProcessId;
use crate::ports::queue::QueueName;

/// A ring. Without queues it is only a ping, and without both it is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ring {
    /// The queues that contain work.
    pub queues: BTreeSet<QueueName>,
    /// The sender, if this is a ping.
    pub ping: Option<Ping>,
}

/// The periodic signal of a process to all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// The process that sent the ping.
    pub from: ProcessId,
    /// The newest epoch of the gate that the sender knows; zero if it knows none.
    pub gate_epoch: u64,
}

#[derive(Serialize, Deserialize)]
struct RingBody {
    queues: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ping: Option<PingBody>,
}

#[derive(Serialize, Deserialize)]
struct PingBody {
    from: String,
    gate_epoch: u64,
}

impl Ring {
    /// Encodes the body.
    pub fn encode(&self) -> Vec<u8> {
        let Self { queues, ping } = self;
        let ping = ping.map(|Ping { from, gate_epoch }| PingBody { from: from.simple(), gate_epoch });
        let body = RingBody { queues: queues.iter().map(ToString::to_string).collect(), ping };
        serde_json::to_vec(&body).expect("texts and numbers can always be written as JSON")
    }

    /// Decodes a body. Invalid names of queues are skipped.
    ///
    /// # Errors
    /// Returns the JSON error when the body is not a ring.
    pub fn decode(body: &[u8]) -> Result<Self, serde_json::Error> {
        let RingBody { queues, ping } = serde_json::from_slice(body)?;
        let queues = queues.iter().filter_map(|name| QueueName::parse(name)).collect();
        let ping = ping.and_then(|PingBody { from, gate_epoch }| {
            Some(Ping { from: ProcessId::parse(&from)?, gate_epoch })
        });
        Ok(Self { queues, ping })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_ring_is_read_with_and_without_a_ping() {
        let queues = BTreeSet::from([QueueName::of_partition("work", 1), QueueName::of_partition("work", 2)]);
        let ping = Ping { from: ProcessId::from_uuid(Uuid::from_u128(0x0a0b)), gate_epoch: 7 };
        let check = |body: &str, ring: Ring| {
            assert_eq!(Ring::decode(body.as_bytes()).unwrap(), ring);
            assert_eq!(String::from_utf8(ring.encode()).unwrap(), body);
        };
        check(r#"{"queues":["work-1","work-2"]}"#, Ring { queues, ping: None });
        check(
            r#"{"queues":[],"ping":{"from":"00000000000000000000000000000a0b","gate_epoch":7}}"#,
            Ring { queues: BTreeSet::new(), ping: Some(ping) },
        );
        let later = br#"{"queues":["No Queue"],"ping":{"from":"?","gate_epoch":7,"more":1},"more":[]}"#;
        assert_eq!(Ring::decode(later).unwrap(), Ring::default());
        assert!(Ring::decode(b"[]").is_err());
    }
}
