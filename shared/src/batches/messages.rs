//! The queue messages of batches.
//!
//! A message to an initiator or a processing worker only names a batch and its chunks. The record of the batch decides
//! what is done. A chunk outcome is contained in its message, which must therefore carry the seal of the bank.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::CHUNKS_PER_MESSAGE_MAX;
use super::records::{TallyRow, digest, operations_of, operations_row, totals_of, totals_rows};
use crate::cluster::attempts::Attempts;
use crate::domain::batch::{BatchKey, Digest, OperationCounts, Totals};
use crate::domain::ids::{BatchId, PartnerId};
use crate::messaging::envelope::seal::{Purpose, SEAL_MEMBER, Seal};
use crate::ports::queue::QueueName;

/// Queue kind of initiators.
pub const SPLIT: &str = "batchsplit";
/// Queue kind of processing workers.
pub const POST: &str = "batchpost";
/// Queue kind of controllers.
pub const COUNT: &str = "batchcount";

/// The version of messages that this program writes, and the highest that it reads.
const VERSION: u32 = 1;

/// Returns the queue of initiators.
pub fn split_queue() -> QueueName {
    QueueName::of_partition(SPLIT, 0)
}

/// Returns the queue of controllers.
pub fn count_queue() -> QueueName {
    QueueName::of_partition(COUNT, 0)
}

/// Returns the queue for a chunk, one of `queue_count`.
pub fn post_queue(chunk: u32, queue_count: u16) -> QueueName {
    let partition = chunk.checked_rem(u32::from(queue_count)).and_then(|it| u16::try_from(it).ok());
    QueueName::of_partition(POST, partition.unwrap_or(0))
}

/// Returns the queues of all batch roles.
pub fn queues(queue_count: u16) -> Vec<QueueName> {
    [vec![split_queue(), count_queue()], post_queues(queue_count)].concat()
}

/// Returns whether a queue carries messages of batches.
pub fn is_of_batches(queue: &QueueName) -> bool {
    [SPLIT, POST, COUNT].contains(&queue.kind())
}

/// Returns all queues of processing workers.
pub fn post_queues(queue_count: u16) -> Vec<QueueName> {
    (0..queue_count).map(|partition| QueueName::of_partition(POST, partition)).collect()
}

/// A message that cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum BatchMessageError {
    /// The body is not JSON of the expected form.
    #[error("it is not a message of a batch")]
    Form(#[from] serde_json::Error),
    /// A value is not valid.
    #[error("it is not a message of a batch: a value is not valid")]
    Value,
    /// A newer program wrote it.
    #[error("it is of version {0}, and this program knows version {VERSION}")]
    Newer(u32),
    /// It has no valid seal.
    #[error("it has no valid seal")]
    Unsealed,
}

/// The seals under which attempts are recorded. A chunk outcome keeps its own seal.
const ATTEMPT_PURPOSES: [Purpose<'_>; 2] = [Purpose::ChunkOutcome, Purpose::Attempts];

/// Returns the attempts recorded in a body; none without a valid seal. Otherwise any program that can write to the
/// queue could stop a batch.
pub fn attempts_in(body: &[u8], seal: &Seal) -> Attempts {
    #[derive(Deserialize)]
    struct Recorded {
        #[serde(default)]
        attempts: Attempts,
    }
    if !ATTEMPT_PURPOSES.iter().any(|purpose| seal.verify(*purpose, body)) {
        return Attempts::NONE;
    }
    serde_json::from_slice(body).map_or(Attempts::NONE, |Recorded { attempts }| attempts)
}

/// Replaces the attempts recorded in a body, and seals it. Returns a body unchanged if it is not a message, or if it is
/// an outcome whose seal this process cannot verify: a process of the bank with another secret may have sealed it.
pub fn with_attempts(body: &[u8], attempts: &Attempts, seal: &Seal) -> Vec<u8> {
    let Ok(mut members) = serde_json::from_slice::<serde_json::Map<String, Value>>(body) else {
        return body.to_vec();
    };
    let purpose = ATTEMPT_PURPOSES.into_iter().find(|purpose| seal.verify(*purpose, body));
    let is_outcome = members.contains_key("results");
    if members.remove(SEAL_MEMBER).is_some() && is_outcome && purpose.is_none() {
        return body.to_vec();
    }
    members.remove("attempts");
    if !attempts.is_empty() {
        members.insert("attempts".to_owned(), serde_json::to_value(attempts).expect("texts and numbers"));
    }
    let recorded = serde_json::to_vec(&members).expect("texts and numbers can be written as JSON");
    seal.seal(purpose.unwrap_or(Purpose::Attempts), recorded)
}

/// A message that names a batch, and some of its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The batch.
    pub key: BatchKey,
    /// The chunks.
    pub chunks: Vec<u32>,
    /// The stop that this message ends, if it is the replay of a dead letter. Only the record and the dead letter
    /// contain this id, so no other message can end the stop.
    pub ends_stop: Option<Uuid>,
}

#[derive(Serialize, Deserialize)]
struct NamedRow {
    v: u32,
    partner: String,
    batch: Uuid,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_stop: Option<Uuid>,
}

impl Named {
    /// Creates a message about a batch and some of its chunks.
    pub const fn of(key: BatchKey, chunks: Vec<u32>) -> Self {
        Self { key, chunks, ends_stop: None }
    }

    /// Encodes the body.
    pub fn encode(&self) -> Vec<u8> {
        let Self { key: BatchKey { partner, batch }, chunks, ends_stop } = self;
        let (partner, batch) = (partner.to_string(), batch.as_uuid());
        let row = NamedRow { v: VERSION, partner, batch, chunks: chunks.clone(), ends_stop: *ends_stop };
        serde_json::to_vec(&row).expect("texts and numbers can be written as JSON")
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`BatchMessageError`]
    pub fn decode(body: &[u8]) -> Result<Self, BatchMessageError> {
        let row: NamedRow = parse(body)?;
        if row.chunks.len() > CHUNKS_PER_MESSAGE_MAX {
            return Err(BatchMessageError::Value);
        }
        let key = key(&row.partner, row.batch)?;
        Ok(Self { key, chunks: row.chunks, ends_stop: row.ends_stop })
    }
}

/// Parses a body. Checks the version first, because a newer version may differ in all other members.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, BatchMessageError> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    match serde_json::from_slice::<Version>(body) {
        Ok(Version { v }) if v > VERSION => Err(BatchMessageError::Newer(v)),
        _ => Ok(serde_json::from_slice(body)?),
    }
}

fn key(partner: &str, batch: Uuid) -> Result<BatchKey, BatchMessageError> {
    let partner = PartnerId::parse(partner).map_err(|_| BatchMessageError::Value)?;
    Ok(BatchKey { partner, batch: BatchId::from_uuid(batch) })
}

/// The outcome of a chunk, derived from its transaction rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkOutcome {
    /// The batch.
    pub key: BatchKey,
    /// The split that created the chunk.
    pub split: Uuid,
    /// The number of the chunk.
    pub chunk: u32,
    /// The digest of the item results.
    pub results: Digest,
    /// The totals of the items.
    pub totals: Totals,
    /// The storage operations used to post the chunk.
    pub operations: OperationCounts,
}

#[derive(Serialize, Deserialize)]
struct OutcomeRow {
    v: u32,
    partner: String,
    batch: Uuid,
    split: Uuid,
    chunk: u32,
    results: String,
    totals: BTreeMap<String, TallyRow>,
    operations: BTreeMap<String, u64>,
}

impl ChunkOutcome {
    /// Encodes and seals the body.
    pub fn encode(&self, seal: &Seal) -> Vec<u8> {
        let Self { key: BatchKey { partner, batch }, split, chunk, results, totals, operations } = self;
        let row = OutcomeRow {
            v: VERSION,
            partner: partner.to_string(),
            batch: batch.as_uuid(),
            split: *split,
            chunk: *chunk,
            results: hex::encode(results.0),
            totals: totals_rows(totals),
            operations: operations_row(operations),
        };
        let body = serde_json::to_vec(&row).expect("texts and numbers can be written as JSON");
        seal.seal(Purpose::ChunkOutcome, body)
    }

    /// Decodes a body, and verifies its seal.
    ///
    /// # Errors
    /// [`BatchMessageError`]. For [`BatchMessageError::Unsealed`], the chunk can be posted again to derive its outcome ([`Self::named`]).
    pub fn decode(body: &[u8], seal: &Seal) -> Result<Self, BatchMessageError> {
        let row: OutcomeRow = parse(body)?;
        let key = key(&row.partner, row.batch)?;
        if !seal.verify(Purpose::ChunkOutcome, body) {
            return Err(BatchMessageError::Unsealed);
        }
        let results = digest(&row.results).ok_or(BatchMessageError::Value)?;
        let totals = totals_of(&row.totals).ok_or(BatchMessageError::Value)?;
        let operations = operations_of(&row.operations);
        Ok(Self { key, split: row.split, chunk: row.chunk, results, totals, operations })
    }

    /// Returns the chunk that a body names, without verifying the seal.
    ///
    /// # Errors
    /// [`BatchMessageError`]
    pub fn named(body: &[u8]) -> Result<Named, BatchMessageError> {
        let row: OutcomeRow = parse(body)?;
        Ok(Named::of(key(&row.partner, row.batch)?, vec![row.chunk]))
    }
}
