//! A message whose work is in the payload store (claim check): the reference and the payload.
//!
//! The payload is an envelope as in a message, only larger and compressed with gzip, so that operators can read it with common
//! tools and its checksum detects damage. The counters of deliveries stay in the message, since a payload never changes.
//!
//! The claim has the seal of a message. The payload has a separate seal, which covers its name. An unsealed claim can
//! therefore refer to sealed work, and an unsealed payload only names transactions.
//!
//! A payload is removed or swept only when all its items are final ([`crate::messaging::claim_check`]).

use std::io::{Error, ErrorKind, Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::seal::{Purpose, Seal};
use super::{CLAIM_VERSION, Content, Envelope, Names, Unreadable, is_zero};
use crate::cluster::attempts::Attempts;
use crate::cluster::reply_to::ReplyTo;
use crate::ports::payload_store::is_name;

/// Prefix of the names of claimed payloads. Only these payloads are swept.
pub const PAYLOADS: &str = "work-";

/// Largest size of a payload before compression, in bytes. Larger payloads are neither written nor decompressed, so
/// that a small compressed payload cannot use much memory in a worker.
pub const PAYLOAD_BYTES_MAX: usize = 768 * 1024;

/// A claim on the work in a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The name of the payload; it begins with [`PAYLOADS`].
    pub name: String,
    /// See [`Envelope::reply_to`].
    pub reply_to: Option<ReplyTo>,
    /// See [`Envelope::forgiven`].
    pub forgiven: u32,
    /// See [`Envelope::attempts`].
    pub attempts: Attempts,
    /// Whether the claim had a valid seal. Otherwise only its name was read.
    pub sealed: bool,
}

#[derive(Serialize, Deserialize)]
struct Row {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_proof: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    forgiven: u32,
    #[serde(default, skip_serializing_if = "Attempts::is_empty")]
    attempts: Attempts,
    payload: String,
}

impl Claim {
    /// Creates a sealed claim on a payload, without deliveries.
    pub const fn on(name: String) -> Self {
        Self { name, reply_to: None, forgiven: 0, attempts: Attempts::NONE, sealed: true }
    }

    /// Encodes the body of the queue message. A claim that was received without a valid seal is written without one.
    /// (The envelope of a sealed payload is sealed again, because the seal of the payload covers the name.)
    pub fn encode(&self, seal: &Seal) -> Vec<u8> {
        let Self { name, reply_to, forgiven, attempts, sealed } = self.clone();
        let (reply_to, reply_proof) = ReplyTo::write(reply_to.as_ref());
        let row = Row { v: CLAIM_VERSION, reply_to, reply_proof, forgiven, attempts, payload: name };
        let body = serde_json::to_vec(&row).expect("texts and numbers can always be written as JSON");
        if sealed { seal.seal(Purpose::Message, body) } else { body }
    }

    /// Decodes a claim; without a valid seal, only its name.
    pub(super) fn decode(body: &[u8], sealed: bool) -> Result<Self, serde_json::Error> {
        let Row { v: _, reply_to, reply_proof, forgiven, attempts, payload: name } =
            serde_json::from_slice(body)?;
        // A message must not make this process read or delete other objects of the payload store.
        if !name.starts_with(PAYLOADS) || !is_name(&name) {
            return Err(serde_json::Error::custom("the name of its payload is not valid"));
        }
        if !sealed {
            return Ok(Self { sealed, ..Self::on(name) });
        }
        let reply_to = ReplyTo::read(reply_to.as_deref(), reply_proof.as_deref());
        Ok(Self { name, reply_to, forgiven, attempts, sealed })
    }

    /// Decodes the payload: the work with the counters of the message, or only names if the payload has no valid seal.
    ///
    /// # Errors
    /// [`Unreadable`] when the payload is damaged, or not all of its items can be decoded.
    pub fn open(&self, payload: &[u8], seal: &Seal) -> Result<Content, Unreadable> {
        let content = self.unpacked(payload)?;
        if !seal.verify(Purpose::Payload(&self.name), &content) {
            return Names::read(&content).map(Content::Names);
        }
        let Self { name, reply_to, forgiven, attempts, sealed: _ } = self.clone();
        let Envelope { items, .. } = Envelope::read(&content)?;
        Ok(Content::Work(Envelope { reply_to, forgiven, attempts, items, payload: Some(name) }))
    }

    /// Returns the transactions that the payload names. The seal is not checked.
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

/// Encodes the work of an envelope as the payload with this name, at most [`PAYLOAD_BYTES_MAX`] bytes.
pub(crate) fn payload(name: &str, envelope: &Envelope, seal: &Seal) -> Vec<u8> {
    let content = seal.seal(Purpose::Payload(name), envelope.unclaimed().write());
    assert!(content.len() <= PAYLOAD_BYTES_MAX, "{} bytes are more than readers accept", content.len());
    // The fastest level is enough: items are similar, so they still shrink to a fifth.
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
