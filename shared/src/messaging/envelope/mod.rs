//! The queue message: an envelope with the work of many requests, versioned, at most 48 KiB.
//!
//! An item contains everything that posting needs, so that the worker normally reads nothing from the store. The
//! envelope also keeps two counters that the queue does not have. `forgiven` counts deliveries that failed without a
//! fault of the work: an outage or a lost race must never move valid work to the dead letters. `attempts` counts
//! attempts on this item alone that are not known to have ended, because the work may crash its workers.
//!
//! The content of a message is trusted only under the [`seal`] of the bank. Without a valid seal, only the [`names`] of
//! transactions are read from it.
//!
//! Work that would fill many messages is kept in the payload store, and one message claims it ([`claim`]). [`routing`]
//! chooses the queue, [`item`] encodes one transaction, [`encoded_item`] does so in advance, this file encodes the
//! whole envelope, and [`mod@pack`] decides how many messages are sent.
//!
//! Versions: a reader ignores unknown members, so additions need no new version. A change that an older worker would
//! misinterpret gets a new number, and such a worker leaves the envelope on the queue for a newer one
//! ([`Unreadable::Newer`]). Work inside a message has version 1, and a claim has version 2.

pub mod claim;
mod encoded_item;
mod item;
mod names;
mod pack;
mod routing;
pub mod seal;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::cluster::attempts::Attempts;
use crate::cluster::reply_to::ReplyTo;
use crate::domain::decision::Work;
use item::ItemRow;
use seal::{Purpose, Seal};

pub use claim::Claim;
pub use encoded_item::EncodedItem;
pub use names::{Name, Names};
pub use pack::{OutgoingMessage, bodies, outgoing_messages, pack, pack_raw};
pub use routing::{WORK, partition_of, queue_of, queues};

/// The newest version that this program reads.
pub const VERSION: u32 = CLAIM_VERSION;
const WORK_VERSION: u32 = 1;
const CLAIM_VERSION: u32 = 2;

/// A decoded queue message of the bank.
#[derive(Debug, Clone)]
pub enum Body {
    /// The content of the message itself.
    Content(Content),
    /// A claim on work in the payload store.
    Claim(Claim),
}

/// The content of a message or a payload.
#[derive(Debug, Clone)]
pub enum Content {
    /// Work that a process of the bank wrote, under a valid seal.
    Work(Envelope),
    /// Names of transactions, without a valid seal. Their rows contain the work.
    Names(Names),
}

impl Body {
    /// Decodes the body of a queue message and checks its seal.
    ///
    /// # Errors
    /// [`Unreadable`]. Its variants differ in how the message is handled.
    pub fn decode(body: &[u8], seal: &Seal) -> Result<Self, Unreadable> {
        let sealed = seal.verify(Purpose::Message, body);
        if sealed && let Some(envelope) = Envelope::read_at_once(body) {
            return Ok(Self::Content(Content::Work(envelope)));
        }
        match version(body)? {
            CLAIM_VERSION => Claim::decode(body, sealed).map(Self::Claim).map_err(Unreadable::Malformed),
            // Without the secret, this process cannot verify the seal and leaves the message to processes that can.
            newer if newer > VERSION && (sealed || !seal.can_verify()) => Err(Unreadable::Newer(newer)),
            newer if newer > VERSION => Err(Unreadable::Unsealed(newer)),
            _ if sealed => Envelope::read_in_parts(body).map(Content::Work).map(Self::Content),
            _ => Names::read(body).map(Content::Names).map(Self::Content),
        }
    }
}

/// Decodes the claim in a body, with or without a valid seal. Reads only its name, not its counters.
pub fn claimed(body: &[u8]) -> Option<Claim> {
    matches!(version(body), Ok(CLAIM_VERSION)).then(|| Claim::decode(body, false).ok()).flatten()
}

fn version(body: &[u8]) -> Result<u32, Unreadable> {
    #[derive(Deserialize)]
    struct Head {
        v: u32,
    }
    serde_json::from_slice(body).map(|Head { v }| v).map_err(Unreadable::Malformed)
}

/// A decoded queue message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The process that waits for an outcome of this work, with its proof.
    pub reply_to: Option<ReplyTo>,
    /// Number of deliveries that do not count, because of outages or lost races.
    pub forgiven: u32,
    /// Attempts on this item alone that have started and are not known to have ended.
    pub attempts: Attempts,
    /// The work, at least one item. A key may occur twice.
    pub items: Vec<Work>,
    /// The name of the payload that contains all items; `None` if the message contains them.
    pub payload: Option<String>,
}

/// The reason why this program cannot decode an envelope.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A newer version wrote the body. It must wait for a worker that knows this version.
    #[error("the envelope has version {0}; this program reads up to {VERSION}")]
    Newer(u32),
    /// The body has an unknown version and no valid seal. A newer version of the bank would have sealed it.
    #[error("the envelope has version {0}, which this program does not know, and no valid seal")]
    Unsealed(u32),
    /// The body is not an envelope of any version.
    #[error("the body is not an envelope")]
    Malformed(#[source] serde_json::Error),
    /// The claimed payload cannot be unpacked or read.
    #[error("the payload {name} is damaged")]
    Damaged {
        /// The name of the payload.
        name: String,
        /// The defect of the payload.
        #[source]
        source: std::io::Error,
    },
    /// Some items of the envelope cannot be decoded.
    #[error("{} of {} items cannot be decoded: {why}", bad_count, readable.len().saturating_add(*bad_count))]
    Items {
        /// The defect of one of these items.
        why: String,
        /// The items that can be decoded.
        readable: Vec<Work>,
        /// An unsealed envelope with the other items, unchanged. It may be larger than a message.
        bad: Vec<u8>,
        /// The number of the other items.
        bad_count: usize,
    },
    /// The envelope has no items. No program sends such an envelope.
    #[error("the envelope has no items")]
    Empty,
}

/// The JSON form of an envelope with encoded or raw items.
#[derive(Serialize, Deserialize)]
struct Row<I> {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_proof: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    forgiven: u32,
    #[serde(default, skip_serializing_if = "Attempts::is_empty")]
    attempts: Attempts,
    items: Vec<I>,
}

impl<I> Row<I> {
    /// Creates an envelope without a reply address.
    const fn of(items: Vec<I>) -> Self {
        Self {
            v: WORK_VERSION,
            reply_to: None,
            reply_proof: None,
            forgiven: 0,
            attempts: Attempts::NONE,
            items,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Envelope {
    /// Creates an envelope with work, without a reply address.
    pub const fn of(items: Vec<Work>) -> Self {
        Self { reply_to: None, forgiven: 0, attempts: Attempts::NONE, items, payload: None }
    }

    /// Encodes the sealed body of the queue message: the work, or the claim if the work is in a payload.
    ///
    /// Invariant: the content of an envelope was read under a valid seal or from the rows of its transactions.
    pub fn encode(&self, seal: &Seal) -> Vec<u8> {
        let Self { reply_to, forgiven, attempts, items: _, payload } = self;
        let Some(name) = payload.clone() else { return seal.seal(Purpose::Message, self.write()) };
        let (reply_to, forgiven, attempts) = (reply_to.clone(), *forgiven, attempts.clone());
        Claim { name, reply_to, forgiven, attempts, sealed: true }.encode(seal)
    }

    /// Encodes the work as JSON, without a seal.
    fn write(&self) -> Vec<u8> {
        let Self { reply_to, forgiven, attempts, items, payload: _ } = self;
        let (forgiven, attempts) = (*forgiven, attempts.clone());
        let items = items.iter().map(item::row_of).collect();
        let (reply_to, reply_proof) = ReplyTo::write(reply_to.as_ref());
        write(&Row { v: WORK_VERSION, reply_to, reply_proof, forgiven, attempts, items })
    }

    /// Returns the envelope with only the remaining work. Work from a payload moves into the message if it fits, so
    /// that final items are not looked up again; the payload is swept later. Otherwise the whole payload stays claimed.
    /// Returns `None` if the rest does not fit and there is no payload, as for rows that an unsealed message named. The
    /// message must then stay unchanged.
    #[must_use]
    pub fn reduced_to(&self, rest: Vec<Work>) -> Option<Self> {
        if pack(&rest).len() <= 1 {
            return Some(Self { items: rest, payload: None, ..self.clone() });
        }
        self.payload.is_some().then(|| self.clone())
    }

    /// Returns the envelope with the work in the message instead of a claim. It may be larger than a message.
    #[must_use]
    pub fn unclaimed(&self) -> Self {
        Self { payload: None, ..self.clone() }
    }

    /// Decodes the content of a body that has a valid seal and contains work.
    fn read(body: &[u8]) -> Result<Self, Unreadable> {
        Self::read_at_once(body).map_or_else(|| Self::read_in_parts(body), Ok)
    }

    /// Decodes a body in one pass. This succeeds unless it has a defect or new features. It accepts nothing that
    /// [`Self::read_in_parts`] refuses: serde would accept an array as a row, which is not an envelope.
    fn read_at_once(body: &[u8]) -> Option<Self> {
        let body = std::str::from_utf8(body).ok().filter(|body| body.trim_start().starts_with('{'))?;
        let mut row: Row<ItemRow<'_>> = serde_json::from_str(body).ok()?;
        let items = std::mem::take(&mut row.items);
        if row.v > WORK_VERSION || items.is_empty() {
            return None;
        }
        let items: Result<_, _> = items.into_iter().map(item::from_row).collect();
        Some(Self::of_row(row, items.ok()?))
    }

    /// Decodes a body part by part, to find all its defects.
    fn read_in_parts(body: &[u8]) -> Result<Self, Unreadable> {
        let v = version(body)?;
        if v > WORK_VERSION {
            return Err(Unreadable::Newer(v));
        }
        // Read as raw values, so that an invalid item does not affect the others and is kept unchanged.
        let mut row: Row<Box<RawValue>> = serde_json::from_slice(body).map_err(Unreadable::Malformed)?;
        let items = std::mem::take(&mut row.items);
        let (mut readable, mut bad, mut why) = (Vec::with_capacity(items.len()), Vec::new(), String::new());
        for raw in items {
            match item::read(&raw) {
                Ok(work) => readable.push(work),
                Err(unreadable) => {
                    bad.push(raw);
                    why = unreadable.to_string();
                }
            }
        }
        if !bad.is_empty() {
            let bad_count = bad.len();
            let bad = write(&Row::of(bad));
            return Err(Unreadable::Items { why, readable, bad, bad_count });
        }
        if readable.is_empty() {
            return Err(Unreadable::Empty);
        }
        Ok(Self::of_row(row, readable))
    }

    /// Combines the frame with the decoded items.
    fn of_row<I>(row: Row<I>, items: Vec<Work>) -> Self {
        let Row { v: _, reply_to, reply_proof, forgiven, attempts, items: _ } = row;
        let reply_to = ReplyTo::read(reply_to.as_deref(), reply_proof.as_deref());
        Self { reply_to, forgiven, attempts, items, payload: None }
    }
}

fn write(row: &Row<impl Serialize>) -> Vec<u8> {
    serde_json::to_vec(row).expect("texts and numbers can always be written as JSON")
}

#[cfg(test)]
mod tests;
