//! The messages between the processes of a bank (rings, completions, gate epochs, status), their signatures and addresses.

use postonce_process::http::Status;
use postonce_shared::adapters::http::signature::{PeerRequest, Stamp};
use postonce_shared::adapters::http::{GateEpoch, Recipient, Ring};
use postonce_shared::cluster::completions::reply_body;
use postonce_shared::domain::instruction::Fingerprint;
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

/// Parses any bytes as each kind of message and text.
pub fn check(input: &[u8]) {
    if let Ok(ring) = Ring::decode(input) {
        assert!(ring.queues.iter().all(|queue| QueueName::parse(queue.as_str()).as_ref() == Some(queue)));
        assert_eq!(Ring::decode(&ring.encode()).ok(), Some(ring));
    }
    if let Ok(completions) = reply_body::decode(input) {
        assert_eq!(reply_body::decode(&reply_body::encode(&completions)).ok(), Some(completions));
    }
    if let Ok(epoch) = serde_json::from_slice::<GateEpoch>(input) {
        assert_eq!(serde_json::from_slice::<GateEpoch>(&epoch.encode()).ok(), Some(epoch));
    }
    if let Ok(status) = serde_json::from_slice::<Status>(input) {
        let again = serde_json::to_vec(&status).expect("a status can be written");
        assert_eq!(serde_json::from_slice::<Status>(&again).ok(), Some(status));
    }
    check_signature(input);
    if let Ok(text) = std::str::from_utf8(input) {
        check_text(text);
    }
}

/// Checks that a request without a valid signature is refused, for any headers and body.
fn check_signature(input: &[u8]) {
    let keys = DoorbellKeys::parse("the-secret-of-the-test-bank").expect("a secret");
    let now = Timestamp::from_unix_ms(1_795_248_000_000);
    let own = Address::parse("http://10.0.0.7:8081").expect("an address");
    let recipient = Recipient::new(own.clone(), now);
    let mut lines = input.splitn(5, |byte| *byte == b'\n');
    let mut line = || String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let (timestamp, nonce, addressee, signature) = (line(), line(), line(), line());
    let stamp = Stamp { timestamp, nonce, addressee };
    let request = stamp.on("POST", "/internal/ring", input);
    assert!(recipient.take(&request, &signature, &keys, now).is_err(), "{stamp:?} {signature:?}");
    let stamp = Stamp::new(Uuid::nil(), now, &own);
    let request = stamp.on("POST", "/internal/ring", input);
    let signature = request.sign(&keys);
    let mut longer = input.to_vec();
    longer.push(b' ');
    let longer = PeerRequest { body: &longer, ..request };
    assert!(recipient.take(&longer, &signature, &keys, now).is_err());
    assert_eq!(recipient.take(&request, &signature, &keys, now), Ok(()));
    assert!(recipient.take(&request, &signature, &keys, now).is_err(), "a request is accepted once");
}

fn check_text(text: &str) {
    if let Ok(address) = Address::parse(text) {
        assert_eq!(Address::parse(address.as_str()), Ok(address.clone()), "{text}");
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
        assert!(address.as_str().chars().all(plain), "{address} contains other characters");
    }
    if let Some(queue) = QueueName::parse(text) {
        assert_eq!(queue.as_str(), text);
        assert_eq!(QueueName::of_partition(queue.kind(), queue.partition()), queue);
    }
    if let Some(id) = ProcessId::parse(text) {
        assert_eq!(ProcessId::parse(&id.simple()), Some(id));
    }
    if let Some(fingerprint) = Fingerprint::parse(text) {
        assert_eq!(Fingerprint::parse(&fingerprint.to_string()), Some(fingerprint));
    }
    if let Some(time) = Timestamp::parse(text) {
        assert_eq!(Timestamp::parse(&time.to_string()), Some(time), "{text}");
    }
}
