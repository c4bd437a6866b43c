//! Decides how many messages the work fills, and when a claim on a payload replaces them.

use serde_json::value::RawValue;

use super::seal::{Purpose, SEAL_BYTES, Seal};
use super::{EncodedItem, Envelope, Row, WORK_VERSION, claim, item, write};
use crate::cluster::reply_to::{PROOF_CHARS_MAX, ReplyTo};
use crate::domain::decision::Work;
use crate::ports::process_registry::ADDRESS_CHARS_MAX;
use crate::ports::queue::BODY_BYTES_MAX;

/// Largest size of an envelope without items: seal, braces, version, counters, all attempts, longest address and proof.
const FRAME_BYTES: usize = 2048 + SEAL_BYTES + ADDRESS_CHARS_MAX + PROOF_CHARS_MAX;

/// Largest number of messages for some work. Beyond it, the work goes into the payload store.
///
/// A claim costs a send, a receive and a delete like any message, and also a put, a get and a delete of a blob and a
/// put and a delete of its tombstone. Its latency is about that of four sends. A blob write is by far the most expensive
/// operation (0.055 USD per 10,000, against 0.0044 for other blob operations and 0.004 for queue operations), so the
/// costs are equal at about eleven messages. Latency decides, because clients wait for the answer.
const MESSAGES_MAX: usize = 4;

/// Largest number of envelopes whose work goes into one payload. It limits the memory that a worker needs for a
/// message, and lets the work of one payload fit into one dead letter.
const PAYLOAD_ENVELOPES_MAX: usize = claim::PAYLOAD_BYTES_MAX / BODY_BYTES_MAX;

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutgoingMessage {
    /// One message that contains the work.
    Inline(Envelope),
    /// A message that claims the work of all these envelopes from the payload store. Each envelope also fits into a
    /// separate message, in case the payload store is not available.
    Claimed(Vec<Envelope>),
}

/// Splits work into messages and claims, in order.
pub fn outgoing_messages(items: &[Work]) -> Vec<OutgoingMessage> {
    let envelopes = pack(items);
    if envelopes.len() <= MESSAGES_MAX {
        return envelopes.into_iter().map(OutgoingMessage::Inline).collect();
    }
    // Distributed evenly, so that no payload contains only a small rest.
    let payloads = envelopes.len().div_ceil(PAYLOAD_ENVELOPES_MAX);
    let each = envelopes.len().div_ceil(payloads);
    envelopes.chunks(each).map(|some| OutgoingMessage::Claimed(some.to_vec())).collect()
}

/// Splits work into as few envelopes as the size of a queue message allows, in order.
pub fn pack(items: &[Work]) -> Vec<Envelope> {
    let sized = items.iter().map(|work| (work.clone(), item::write(&item::row_of(work)).get().len()));
    group(sized).into_iter().map(Envelope::of).collect()
}

/// Packs items that were encoded in advance into as few sealed message bodies as possible, in order. `reply_to` returns
/// the reply address of a part, if a request waits for its outcome.
pub fn bodies(
    work: &[&EncodedItem],
    reply_to: impl Fn(&[&EncodedItem]) -> Option<ReplyTo>,
    seal: &Seal,
) -> Vec<Vec<u8>> {
    let body = |part: Vec<&EncodedItem>| {
        let (reply_to, reply_proof) = ReplyTo::write(reply_to(&part).as_ref());
        let items: Vec<&RawValue> = part.iter().map(|work| work.item()).collect();
        seal.seal(Purpose::Message, write(&Row { reply_to, reply_proof, ..Row::of(items) }))
    };
    group(work.iter().map(|work| (*work, work.item().get().len()))).into_iter().map(body).collect()
}

/// Splits an envelope that is larger than a message into unsealed bodies that are not. The items stay unchanged,
/// whether they can be decoded or not. Any other body is returned unchanged.
pub fn pack_raw(body: &[u8]) -> Vec<Vec<u8>> {
    let row = match serde_json::from_slice::<Row<Box<RawValue>>>(body) {
        Ok(row) if row.v == WORK_VERSION && body.len() > BODY_BYTES_MAX => row,
        Ok(_) | Err(_) => return vec![body.to_vec()],
    };
    let sized = row.items.into_iter().map(|item| {
        let size = item.get().len();
        (item, size)
    });
    let body = |items| write(&Row::of(items));
    group(sized).into_iter().map(body).collect()
}

/// Groups values by size so that each group fits into one message.
fn group<T>(sized: impl Iterator<Item = (T, usize)>) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut bytes = usize::MAX;
    for (value, size) in sized {
        // One byte for the comma.
        let size = size.saturating_add(1);
        let grown = bytes.saturating_add(size);
        match groups.last_mut() {
            Some(group) if grown <= BODY_BYTES_MAX => {
                group.push(value);
                bytes = grown;
            }
            _ => {
                groups.push(vec![value]);
                bytes = FRAME_BYTES.saturating_add(size);
            }
        }
    }
    groups
}
