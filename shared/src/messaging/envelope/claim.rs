//! A message whose work lies in the payload store (claim check): the reference, and the payload.
//!
//! The payload is an envelope as it would stand in a message, only larger, and gzipped, so that a
//! person can read it with common tools and damage is noticed by its checksum. The counters of
//! receipts stay on the message, since a payload is never changed.
//!
//! The claim has the seal of a message, and the payload one of its own, which covers its name: a claim
//! without a seal may still claim sealed work, and a payload without one only names transactions.
//!
//! A payload is removed, or swept, only when all its items are final. So a missing payload means
//! that its work is settled.

use std::io::{Error, ErrorKind, Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::seal::{Purpose, Seal};
use super::{CLAIM_VERSION, Content, Envelope, Names, Unreadable, is_zero};
use crate::cluster::reply_to::ReplyTo;
use crate::ports::payload_store::is_name;

/// What the names of claimed payloads begin with. Only they are ever swept.
pub const PAYLOADS: &str = "work-";

/// Most bytes of a payload before it is compressed. More is never written, and is not unpacked: a
/// small payload must not become a large one in the memory of a worker.
pub const PAYLOAD_BYTES_MAX: usize = 768 * 1024;

/// A claim on the work in a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The name of the payload; it begins with [`PAYLOADS`].
    pub name: String,
    /// As in an envelope.
    pub traceparent: Option<String>,
    /// As in an envelope.
    pub reply_to: Option<ReplyTo>,
    /// As in an envelope.
    pub forgiven: u32,
    /// As in an envelope.
    pub suspect: u32,
    /// Whether the claim itself came under a seal. Else its name is all that was read of it.
    pub sealed: bool,
}

#[derive(Serialize, Deserialize)]
struct Row {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_proof: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    forgiven: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    suspect: u32,
    payload: String,
}

impl Claim {
    /// A claim on a payload, that nobody received yet.
    pub const fn on(name: String) -> Self {
        Self { name, traceparent: None, reply_to: None, forgiven: 0, suspect: 0, sealed: true }
    }

    /// The body of the queue message. A claim that came without a seal gets none. (The envelope that its
    /// payload gives under a seal of its own is another matter: that seal covers the name.)
    pub fn encode(&self, seal: &Seal) -> Vec<u8> {
        let Self { name, traceparent, reply_to, forgiven, suspect, sealed } = self.clone();
        let (reply_to, reply_proof) = ReplyTo::write(reply_to.as_ref());
        let row =
            Row { v: CLAIM_VERSION, traceparent, reply_to, reply_proof, forgiven, suspect, payload: name };
        let body = serde_json::to_vec(&row).expect("texts and numbers can always be written as JSON");
        if sealed { seal.seal(Purpose::Message, body) } else { body }
    }

    /// Reads a claim whose seal is valid, or, where it is not `sealed`, the name in it.
    pub(super) fn decode(body: &[u8], sealed: bool) -> Result<Self, serde_json::Error> {
        let Row { v: _, traceparent, reply_to, reply_proof, forgiven, suspect, payload: name } =
            serde_json::from_slice(body)?;
        // A message must not make us read, or remove, anything else.
        if !name.starts_with(PAYLOADS) || !is_name(&name) {
            return Err(serde_json::Error::custom("its payload has a name that none has"));
        }
        if !sealed {
            return Ok(Self { sealed, ..Self::on(name) });
        }
        let reply_to = ReplyTo::read(reply_to.as_deref(), reply_proof.as_deref());
        Ok(Self { name, traceparent, reply_to, forgiven, suspect, sealed })
    }

    /// What is claimed, from the payload: work, with the trace and the counters of the message, or names
    /// where the payload has no valid seal.
    ///
    /// # Errors
    /// [`Unreadable`] when the payload is damaged, or not all of its items can be read.
    pub fn open(&self, payload: &[u8], seal: &Seal) -> Result<Content, Unreadable> {
        let content = self.unpacked(payload)?;
        if !seal.verify(Purpose::Payload(&self.name), &content) {
            return Names::read(&content).map(Content::Names);
        }
        let Self { name, traceparent, reply_to, forgiven, suspect, sealed: _ } = self.clone();
        let Envelope { items, .. } = Envelope::read(&content)?;
        Ok(Content::Work(Envelope { traceparent, reply_to, forgiven, suspect, items, payload: Some(name) }))
    }

    /// The transactions that are named in the payload, whether it has a seal or not.
    ///
    /// # Errors
    /// [`Unreadable`] when the payload is damaged.
    pub fn names(&self, payload: &[u8]) -> Result<Names, Unreadable> {
        Names::read(&self.unpacked(payload)?)
    }

    fn unpacked(&self, payload: &[u8]) -> Result<Vec<u8>, Unreadable> {
        unpack(payload).map_err(|source| Unreadable::Damaged { name: self.name.clone(), source })
    }
}

/// The payload of that name that carries the work of an envelope, of at most [`PAYLOAD_BYTES_MAX`] bytes.
pub(crate) fn payload(name: &str, envelope: &Envelope, seal: &Seal) -> Vec<u8> {
    let content = seal.seal(Purpose::Payload(name), envelope.unclaimed().write());
    assert!(content.len() <= PAYLOAD_BYTES_MAX, "nobody would unpack {} bytes", content.len());
    // The fastest level: items look alike, and shrink to a fifth even so.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(&content).and_then(|()| encoder.finish());
    written.expect("writing to memory does not fail")
}

fn unpack(payload: &[u8]) -> Result<Vec<u8>, Error> {
    let most = u64::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX);
    let mut content = Vec::new();
    let mut decoder = GzDecoder::new(payload);
    decoder.by_ref().take(most.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() > PAYLOAD_BYTES_MAX {
        let why = format!("it holds more than {PAYLOAD_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::InvalidData, why));
    }
    Ok(content)
}
