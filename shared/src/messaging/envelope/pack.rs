//! How many messages work takes, and when it is better claimed from the payload store.

use serde_json::value::RawValue;

use super::seal::{Purpose, SEAL_BYTES, Seal};
use super::{Envelope, Row, TRACEPARENT_BYTES_MAX, WORK_VERSION, Written, claim, item, write};
use crate::cluster::reply_to::{PROOF_CHARS_MAX, ReplyTo};
use crate::domain::decision::Work;
use crate::ports::process_registry::ADDRESS_CHARS_MAX;
use crate::ports::queue::BODY_BYTES_MAX;

/// What the envelope itself takes: its seal, braces, version, counters, the longest address with its proof,
/// and a trace of the longest length with every character escaped.
const FRAME_BYTES: usize = 1024 + SEAL_BYTES + ADDRESS_CHARS_MAX + PROOF_CHARS_MAX;

/// Most messages that work takes before it is claimed from the payload store instead.
///
/// A claim costs a send, a receipt and a delete like any message, and putting, getting and removing
/// a blob. In time that is about as much as four sends. In money a written blob is by far the
/// dearest of them (0.055 USD per 10,000, against 0.004 for an operation on a queue), and even is
/// reached at about eight messages; but whoever waits for an answer waits for time.
const MESSAGES_MAX: usize = 4;

/// Most envelopes whose work goes in one payload. It bounds what a worker holds in memory for a
/// message, and the work of a payload still fits into one dead letter.
const PAYLOAD_ENVELOPES_MAX: usize = claim::PAYLOAD_BYTES_MAX / BODY_BYTES_MAX;

/// Work on its way to a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parcel {
    /// One message with the work in it.
    Message(Envelope),
    /// One message that claims all of this from the payload store. Each envelope would fit a message
    /// of its own, should the payload store be away.
    Payload(Vec<Envelope>),
}

/// Splits work into parcels, in order.
pub fn parcels(items: &[Work], traceparent: Option<&str>) -> Vec<Parcel> {
    let envelopes = pack(items, traceparent);
    if envelopes.len() <= MESSAGES_MAX {
        return envelopes.into_iter().map(Parcel::Message).collect();
    }
    // Evenly, so that no payload holds a mere rest.
    let payloads = envelopes.len().div_ceil(PAYLOAD_ENVELOPES_MAX);
    let each = envelopes.len().div_ceil(payloads);
    envelopes.chunks(each).map(|some| Parcel::Payload(some.to_vec())).collect()
}

/// Splits work into as few envelopes as the size of a queue message allows, in order.
pub fn pack(items: &[Work], traceparent: Option<&str>) -> Vec<Envelope> {
    let traceparent = traceparent.filter(|trace| trace.len() <= TRACEPARENT_BYTES_MAX);
    let sized = items.iter().map(|work| (work.clone(), item::write(&item::row_of(work)).get().len()));
    let groups = group(sized);
    groups.into_iter().map(|group| Envelope::of(group, traceparent.map(str::to_owned))).collect()
}

/// The sealed bodies of as few messages as work takes that was written ahead of time, in order. `reply_to`
/// is asked for each part where an outcome is waited for.
pub fn bodies(
    work: &[&Written],
    reply_to: impl Fn(&[&Written]) -> Option<ReplyTo>,
    seal: &Seal,
) -> Vec<Vec<u8>> {
    let body = |part: Vec<&Written>| {
        let (reply_to, reply_proof) = ReplyTo::write(reply_to(&part).as_ref());
        let items: Vec<&RawValue> = part.iter().map(|work| work.item()).collect();
        seal.seal(Purpose::Message, write(&Row { reply_to, reply_proof, ..Row::of(None, items) }))
    };
    group(work.iter().map(|work| (*work, work.item().get().len()))).into_iter().map(body).collect()
}

/// Splits an envelope that may be larger than a message into bodies that are not, item by item and
/// as they came, readable or not, and without a seal. Anything else is one body, as it came.
pub fn pack_raw(body: &[u8]) -> Vec<Vec<u8>> {
    let row = match serde_json::from_slice::<Row<Box<RawValue>>>(body) {
        Ok(row) if row.v == WORK_VERSION && body.len() > BODY_BYTES_MAX => row,
        Ok(_) | Err(_) => return vec![body.to_vec()],
    };
    let traceparent = row.traceparent.filter(|trace| trace.len() <= TRACEPARENT_BYTES_MAX);
    let sized = row.items.into_iter().map(|item| {
        let size = item.get().len();
        (item, size)
    });
    let body = |items| write(&Row::of(traceparent.clone(), items));
    group(sized).into_iter().map(body).collect()
}

/// Groups things of those sizes so that each group fits one message.
fn group<T>(sized: impl Iterator<Item = (T, usize)>) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut bytes = usize::MAX;
    for (thing, size) in sized {
        // The comma, too.
        let size = size.saturating_add(1);
        let grown = bytes.saturating_add(size);
        match groups.last_mut() {
            Some(group) if grown <= BODY_BYTES_MAX => {
                group.push(thing);
                bytes = grown;
            }
            _ => {
                groups.push(vec![thing]);
                bytes = FRAME_BYTES.saturating_add(size);
            }
        }
    }
    groups
}
