//! The queue message: many pieces of work in one envelope, versioned, at most 48 KiB.
//!
//! An item carries everything that posting needs, so that the worker reads nothing on the happy
//! path. The envelope also remembers what the queue cannot know of its receipts: those that were
//! nobody's failure (`forgiven`: an outage or a lost race must never push healthy work to the dead
//! letters), and attempts that were begun and never ended (`suspect`: the work may end its workers).
//!
//! A message is believed only under the [`seal`] of the bank. Without one it is read as [`names`] of
//! transactions.
//!
//! Work that would fill many messages goes to the payload store instead, and one message claims it
//! ([`claim`]). To read this folder: [`routing`] says which queue, [`item`] how one piece of work is
//! written, [`written`] ahead of time, this file how many are, [`pack`] how many messages they take.
//!
//! Version rules: a reader ignores members that it does not know, so additions need no new version.
//! A change that an older worker would get wrong takes a new number, and an older worker leaves
//! such an envelope on the queue for a newer one ([`Unreadable::Newer`]). So work in the message is
//! still version 1, which every worker reads; only a claim is version 2.

pub mod claim;
mod item;
mod names;
mod pack;
mod routing;
pub mod seal;
mod written;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::cluster::reply_to::ReplyTo;
use crate::domain::decision::Work;
use item::ItemRow;
use seal::{Purpose, Seal};

pub use claim::Claim;
pub use names::{Name, Names};
pub use pack::{Parcel, bodies, pack, pack_raw, parcels};
pub use routing::{WORK, queue_of, queues};
pub use written::Written;

/// The newest version that this program reads.
pub const VERSION: u32 = CLAIM_VERSION;
/// The version of work that stands in the message.
const WORK_VERSION: u32 = 1;
/// The version of a message that claims a payload.
const CLAIM_VERSION: u32 = 2;

/// Longest trace that travels along; a longer one is dropped. Version 00 has 55 characters.
pub const TRACEPARENT_BYTES_MAX: usize = 128;

/// A decoded queue message of ours.
#[derive(Debug, Clone)]
pub enum Body {
    /// What is in the message itself.
    Content(Content),
    /// A claim on work that lies in the payload store.
    Claim(Claim),
}

/// What a message or a payload says.
#[derive(Debug, Clone)]
pub enum Content {
    /// Under a valid seal: work as a process of the bank wrote it.
    Work(Envelope),
    /// Without one: the names of transactions, whose rows say what is to be done.
    Names(Names),
}

impl Body {
    /// Reads the body of a queue message, and believes it as far as its seal allows.
    ///
    /// # Errors
    /// [`Unreadable`], by what is to be done about it.
    pub fn decode(body: &[u8], seal: &Seal) -> Result<Self, Unreadable> {
        let sealed = seal.verify(Purpose::Message, body);
        if sealed && let Some(envelope) = Envelope::read_at_once(body) {
            return Ok(Self::Content(Content::Work(envelope)));
        }
        match version(body)? {
            CLAIM_VERSION => Claim::decode(body, sealed).map(Self::Claim).map_err(Unreadable::Malformed),
            // Without the secret this process cannot tell, and leaves it to those that can.
            newer if newer > VERSION && (sealed || !seal.can_verify()) => Err(Unreadable::Newer(newer)),
            newer if newer > VERSION => Err(Unreadable::Unsealed(newer)),
            _ if sealed => Envelope::read_in_parts(body).map(Content::Work).map(Self::Content),
            _ => Names::read(body).map(Content::Names).map(Self::Content),
        }
    }
}

/// The claim that a body makes, whether it has a seal or not: its name, without its counters.
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
    /// The trace of the request that sent it first (W3C Trace Context), if there was one.
    pub traceparent: Option<String>,
    /// Where a process waits for an outcome of this work, if it can prove to be one of the bank.
    pub reply_to: Option<ReplyTo>,
    /// Receipts that do not count: outages and lost races.
    pub forgiven: u32,
    /// Attempts on this item alone that were begun and not known to have ended.
    pub suspect: u32,
    /// The work. At least one item; a key may stand twice.
    pub items: Vec<Work>,
    /// The payload that all of the items lie in, where they do not stand in the message itself.
    pub payload: Option<String>,
}

/// Why a body is not an envelope for this program.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A newer program wrote it: it has to wait for a worker that knows it.
    #[error("the envelope has version {0}; this program reads up to {VERSION}")]
    Newer(u32),
    /// It has a version that this program does not know, and no valid seal: a newer program would have sealed
    /// it.
    #[error("the envelope has version {0}, which this program does not know, and no valid seal")]
    Unsealed(u32),
    /// Nobody can read it.
    #[error("the body is not an envelope")]
    Malformed(#[source] serde_json::Error),
    /// The payload that it claims is not what was stored.
    #[error("the payload {name} is damaged")]
    Damaged {
        /// The name of the payload.
        name: String,
        /// What is wrong with it.
        #[source]
        source: std::io::Error,
    },
    /// It reads as an envelope, but not every item in it does.
    #[error("{} of {} items cannot be read: {why}", bad_count, readable.len().saturating_add(*bad_count))]
    Items {
        /// What is wrong with the first one.
        why: String,
        /// The items that can be read.
        readable: Vec<Work>,
        /// An envelope of the others, as they came. It may be larger than a message.
        bad: Vec<u8>,
        /// How many those are.
        bad_count: usize,
    },
    /// An envelope without work: nobody sends one.
    #[error("the envelope has no items")]
    Empty,
}

/// An envelope as it is written, with its items in one form or another.
#[derive(Serialize, Deserialize)]
struct Row<I> {
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
    items: Vec<I>,
}

impl<I> Row<I> {
    /// An envelope of items for which nobody waits.
    const fn of(traceparent: Option<String>, items: Vec<I>) -> Self {
        Self {
            v: WORK_VERSION,
            traceparent,
            reply_to: None,
            reply_proof: None,
            forgiven: 0,
            suspect: 0,
            items,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Envelope {
    /// An envelope around work.
    pub const fn of(items: Vec<Work>, traceparent: Option<String>) -> Self {
        Self { traceparent, reply_to: None, forgiven: 0, suspect: 0, items, payload: None }
    }

    /// The body of the queue message, sealed: the work, or the claim on it where it lies in a payload.
    ///
    /// Invariant: what is in an envelope came under a seal, or was read from the rows of its transactions.
    pub fn encode(&self, seal: &Seal) -> Vec<u8> {
        let Self { traceparent, reply_to, forgiven, suspect, items: _, payload } = self;
        let Some(name) = payload.clone() else { return seal.seal(Purpose::Message, self.write()) };
        let (traceparent, reply_to) = (traceparent.clone(), reply_to.clone());
        let (forgiven, suspect) = (*forgiven, *suspect);
        Claim { name, traceparent, reply_to, forgiven, suspect, sealed: true }.encode(seal)
    }

    /// The work as JSON.
    fn write(&self) -> Vec<u8> {
        let Self { traceparent, reply_to, forgiven, suspect, items, payload: _ } = self;
        let (traceparent, forgiven, suspect) = (traceparent.clone(), *forgiven, *suspect);
        let items = items.iter().map(item::row_of).collect();
        let (reply_to, reply_proof) = ReplyTo::write(reply_to.as_ref());
        write(&Row { v: WORK_VERSION, traceparent, reply_to, reply_proof, forgiven, suspect, items })
    }

    /// The same when only that is left of its work. What came from a payload stands in the message
    /// from then on, if it fits: then what is final need not be looked up again, and the payload is
    /// left to be swept. Else it stays claimed as a whole. `None` where it neither fits nor is claimed, as
    /// rows may that were named without a seal: then the message has to stay as it is.
    #[must_use]
    pub fn reduced_to(&self, rest: Vec<Work>) -> Option<Self> {
        if pack(&rest, self.traceparent.as_deref()).len() <= 1 {
            return Some(Self { items: rest, payload: None, ..self.clone() });
        }
        self.payload.is_some().then(|| self.clone())
    }

    /// The same with the work in it, wherever that lay; it may be larger than a message.
    #[must_use]
    pub fn unclaimed(&self) -> Self {
        Self { payload: None, ..self.clone() }
    }

    /// Reads a body that has the work in it, and whose seal is valid.
    fn read(body: &[u8]) -> Result<Self, Unreadable> {
        Self::read_at_once(body).map_or_else(|| Self::read_in_parts(body), Ok)
    }

    /// Reads a body in one pass, which does unless something is wrong with it, or new. It takes nothing that
    /// [`Self::read_in_parts`] does not take: a row may stand in an array for serde, and not for us.
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

    /// Reads a body part by part, to say what is wrong with it.
    fn read_in_parts(body: &[u8]) -> Result<Self, Unreadable> {
        let v = version(body)?;
        if v > WORK_VERSION {
            return Err(Unreadable::Newer(v));
        }
        // Raw, so that an item that cannot be read neither hides its neighbors nor changes.
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
            let bad = write(&Row::of(row.traceparent, bad));
            return Err(Unreadable::Items { why, readable, bad, bad_count });
        }
        if readable.is_empty() {
            return Err(Unreadable::Empty);
        }
        Ok(Self::of_row(row, readable))
    }

    /// What was read around items, and they.
    fn of_row<I>(row: Row<I>, items: Vec<Work>) -> Self {
        let Row { v: _, traceparent, reply_to, reply_proof, forgiven, suspect, items: _ } = row;
        let reply_to = ReplyTo::read(reply_to.as_deref(), reply_proof.as_deref());
        Self { traceparent, reply_to, forgiven, suspect, items, payload: None }
    }
}

fn write(row: &Row<impl Serialize>) -> Vec<u8> {
    serde_json::to_vec(row).expect("texts and numbers can always be written as JSON")
}

#[cfg(test)]
mod tests;
