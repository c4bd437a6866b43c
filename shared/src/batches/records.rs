//! The records of batches in the store, as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::account::{Revision, Versioned};
use crate::domain::batch::{
    Batch, BatchKey, Digest, Document, Flow, Hindrance, HindranceReason, ItemStatus, Manifest, OnInvalid,
    OperationCounts, Phase, Progress, Tally, Totals,
};
use crate::domain::ids::{BatchId, PartnerId};
use crate::domain::instruction::TransactionKind;
use crate::domain::money::Currency;
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::records::{Collection, Record, Records};
use crate::ports::sync_store::Swapped;

/// The version of the stored form that this program reads and writes.
const VERSION: u32 = 1;

/// A record as stored, which may be damaged.
#[derive(Debug)]
pub struct StoredBatch {
    /// The id of the record.
    pub id: String,
    /// The batch that the id names; `None` if the id is not valid.
    pub key: Option<BatchKey>,
    /// The content, or why it cannot be decoded.
    pub batch: Result<Batch, StoreFault>,
}

/// The access to the records of batches.
#[derive(Clone)]
pub struct BatchRecords(Arc<dyn Records>);

impl BatchRecords {
    /// Returns a handle to the batch records of a store.
    pub const fn new(records: Arc<dyn Records>) -> Self {
        Self(records)
    }

    /// Reads a batch.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn find(&self, key: &BatchKey) -> Result<Option<Versioned<Batch>>, StoreFault> {
        let Some(found) = self.0.find(Collection::Batches, &id(key)).await? else { return Ok(None) };
        Ok(Some(Versioned { value: decode(key, &found.value)?, revision: found.revision }))
    }

    /// Returns at most `limit` batches of a partner with ids greater than `after`, in ascending order. A shorter list
    /// is the last one.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list(
        &self,
        partner: &PartnerId,
        after: Option<BatchId>,
        limit: usize,
    ) -> Result<Vec<Batch>, StoreFault> {
        let after = after.map(|batch| id(&BatchKey { partner: partner.clone(), batch }));
        let prefix = format!("{partner}-");
        let found = self.0.list(Collection::Batches, &prefix, after.as_deref(), limit).await?;
        found.iter().map(|Record { id, body }| decode(&parse_id(id)?, body)).collect()
    }

    /// Returns at most `limit` records of all partners with ids greater than `after`, in ascending order, including
    /// damaged ones. A shorter list means that none follow.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list_stored(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StoredBatch>, StoreFault> {
        let found = self.0.list(Collection::Batches, "", after, limit).await?;
        Ok(found.iter().map(Self::decoded).collect())
    }

    /// Decodes a record, which may be damaged.
    pub fn decoded(Record { id, body }: &Record) -> StoredBatch {
        match parse_id(id) {
            Ok(key) => StoredBatch { id: id.clone(), batch: decode(&key, body), key: Some(key) },
            Err(fault) => StoredBatch { id: id.clone(), key: None, batch: Err(fault) },
        }
    }

    /// Returns the record id of a batch.
    pub fn id_of(key: &BatchKey) -> String {
        id(key)
    }

    /// Writes a batch if its revision is still `expected` (`None`: if it does not exist). Never retries.
    ///
    /// # Errors
    /// [`StoreFault`]; the write may have happened, or may still happen.
    pub async fn save(&self, batch: &Batch, expected: Option<&Revision>) -> Result<Swapped, StoreFault> {
        self.0.save(Collection::Batches, &id(&batch.key), &encode(batch), expected).await
    }

    /// Adds a batch to the list of open batches. Has no effect if it is in the list.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn open(&self, key: &BatchKey, now: Timestamp) -> Result<(), StoreFault> {
        let body = now.to_string();
        // A conflict means that the batch is in the list.
        self.0.save(Collection::OpenBatches, &id(key), &body, None).await.map(drop)
    }

    /// Removes a batch from the list of open batches.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn close(&self, key: &BatchKey) -> Result<(), StoreFault> {
        self.0.remove(Collection::OpenBatches, &id(key)).await
    }

    /// Returns at most `limit` open batches after the given one, with the times when they were opened. The list may
    /// also contain batches without a record, and final ones.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn list_open(
        &self,
        after: Option<&BatchKey>,
        limit: usize,
    ) -> Result<Vec<(BatchKey, Timestamp)>, StoreFault> {
        let after = after.map(id);
        let found = self.0.list(Collection::OpenBatches, "", after.as_deref(), limit).await?;
        let opened_at = |body: &str| Timestamp::parse(body).unwrap_or(Timestamp::from_unix_ms(0));
        found.iter().map(|Record { id, body }| Ok((parse_id(id)?, opened_at(body)))).collect()
    }
}

fn id(BatchKey { partner, batch }: &BatchKey) -> String {
    format!("{partner}-{}", batch.simple())
}

fn parse_id(id: &str) -> Result<BatchKey, StoreFault> {
    let key = id.split_once('-').and_then(|(partner, batch)| {
        let batch = BatchId::from_uuid(Uuid::try_parse(batch).ok()?);
        Some(BatchKey { partner: PartnerId::parse(partner).ok()?, batch })
    });
    key.ok_or_else(|| corrupt(format!("{id:?} is not the id of a batch")))
}

fn corrupt(why: impl Into<crate::ports::fault::Cause>) -> StoreFault {
    StoreFault::Corrupt { doing: "reading a batch", source: why.into() }
}

#[derive(Serialize, Deserialize)]
struct Row {
    v: u32,
    on_invalid: String,
    upload: Uuid,
    parts: String,
    content: String,
    valid: TallyRow,
    invalid: u64,
    received_at: i64,
    phase: PhaseRow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hindrance: Option<(String, i64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop: Option<Uuid>,
    operations: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PhaseRow {
    Received,
    Splitting,
    Posting {
        split: Uuid,
        manifest: String,
        chunks: u32,
        outcomes: BTreeMap<u32, String>,
        totals: BTreeMap<String, TallyRow>,
        since: i64,
    },
    Completed {
        totals: BTreeMap<String, TallyRow>,
        results: String,
        at: i64,
    },
    Cancelled {
        at: i64,
    },
}

/// Count of items, and sums as (currency, kind, sum).
#[derive(Serialize, Deserialize)]
pub(super) struct TallyRow {
    count: u64,
    sums: Vec<(String, String, String)>,
}

impl TallyRow {
    pub(super) fn of(tally: &Tally) -> Self {
        let sum = |(flow, sum): (&Flow, &u128)| (flow.currency.into(), flow.kind.into(), sum.to_string());
        Self { count: tally.count, sums: tally.sums.iter().map(sum).collect() }
    }

    pub(super) fn tally(&self) -> Option<Tally> {
        let mut tally = Tally { count: self.count, ..Tally::default() };
        for (currency, kind, sum) in &self.sums {
            let flow = Flow::of(Currency::parse(currency).ok()?, TransactionKind::from_code(kind)?);
            tally.put(flow, sum.parse().ok()?);
        }
        Some(tally)
    }
}

pub(super) fn totals_rows(totals: &Totals) -> BTreeMap<String, TallyRow> {
    totals.iter().map(|(status, tally)| (status.code().to_owned(), TallyRow::of(tally))).collect()
}

/// Decodes totals; `None` if a value is not valid.
pub(super) fn totals_of(rows: &BTreeMap<String, TallyRow>) -> Option<Totals> {
    let mut totals = Totals::default();
    for (status, row) in rows {
        totals.set(ItemStatus::from_code(status)?, row.tally()?);
    }
    Some(totals)
}

pub(super) fn operations_row(operations: &OperationCounts) -> BTreeMap<String, u64> {
    operations.iter().map(|(category, count)| (category.to_owned(), count)).collect()
}

pub(super) fn operations_of(row: &BTreeMap<String, u64>) -> OperationCounts {
    let mut operations = OperationCounts::default();
    row.iter().for_each(|(category, count)| operations.add(category, *count));
    operations
}

fn encode(batch: &Batch) -> String {
    let Batch { key: _, on_invalid, document, received_at, phase, hindrance, operations } = batch;
    let phase = match phase {
        Phase::Received => PhaseRow::Received,
        Phase::Splitting => PhaseRow::Splitting,
        Phase::Posting { manifest, progress: Progress { outcomes, totals }, since } => PhaseRow::Posting {
            split: manifest.split,
            manifest: hex::encode(manifest.digest.0),
            chunks: manifest.chunks,
            outcomes: outcomes.iter().map(|(chunk, digest)| (*chunk, hex::encode(digest.0))).collect(),
            totals: totals_rows(totals),
            since: since.unix_ms(),
        },
        Phase::Completed { totals, results, at } => PhaseRow::Completed {
            totals: totals_rows(totals),
            results: hex::encode(results.0),
            at: at.unix_ms(),
        },
        Phase::Cancelled { at } => PhaseRow::Cancelled { at: at.unix_ms() },
    };
    let row = Row {
        v: VERSION,
        on_invalid: on_invalid.code().to_owned(),
        upload: document.upload,
        parts: hex::encode(document.parts.0),
        content: hex::encode(document.content.0),
        valid: TallyRow::of(&document.valid),
        invalid: document.invalid,
        received_at: received_at.unix_ms(),
        phase,
        hindrance: hindrance.as_ref().map(|it| (it.reason.code().to_owned(), it.at.unix_ms())),
        stop: batch.stop(),
        operations: operations_row(operations),
    };
    serde_json::to_string(&row).expect("texts and numbers can be written as JSON")
}

fn decode(key: &BatchKey, body: &str) -> Result<Batch, StoreFault> {
    let row: Row = serde_json::from_str(body).map_err(corrupt)?;
    if row.v != VERSION {
        return Err(corrupt(format!("the batch {key} is of version {}", row.v)));
    }
    batch(key, row).ok_or_else(|| corrupt(format!("the batch {key} has a value that is not valid")))
}

fn batch(key: &BatchKey, row: Row) -> Option<Batch> {
    let time = Timestamp::from_unix_ms;
    let phase = match row.phase {
        PhaseRow::Received => Phase::Received,
        PhaseRow::Splitting => Phase::Splitting,
        PhaseRow::Posting { split, manifest, chunks, outcomes, totals, since } => {
            let outcomes = outcomes.into_iter().map(|(chunk, text)| Some((chunk, digest(&text)?)));
            let progress =
                Progress { outcomes: outcomes.collect::<Option<_>>()?, totals: totals_of(&totals)? };
            let manifest = Manifest { split, digest: digest(&manifest)?, chunks };
            Phase::Posting { manifest, progress, since: time(since) }
        }
        PhaseRow::Completed { totals, results, at } => {
            Phase::Completed { totals: totals_of(&totals)?, results: digest(&results)?, at: time(at) }
        }
        PhaseRow::Cancelled { at } => Phase::Cancelled { at: time(at) },
    };
    let hindrance = row.hindrance.map(|(code, at)| Hindrance {
        reason: HindranceReason::from_code(&code),
        at: time(at),
        stop: row.stop,
    });
    Some(Batch {
        key: key.clone(),
        on_invalid: OnInvalid::from_code(&row.on_invalid)?,
        document: Document {
            upload: row.upload,
            parts: digest(&row.parts)?,
            content: digest(&row.content)?,
            valid: row.valid.tally()?,
            invalid: row.invalid,
        },
        received_at: time(row.received_at),
        phase,
        hindrance,
        operations: operations_of(&row.operations),
    })
}

pub(super) fn digest(text: &str) -> Option<Digest> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(Digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::item;

    #[test]
    fn every_phase_is_read_as_it_was_written() {
        let key = BatchKey {
            partner: PartnerId::parse("shop_1").unwrap(),
            batch: BatchId::from_uuid(Uuid::from_u128(5)),
        };
        assert_eq!(parse_id(&id(&key)).unwrap(), key);
        let mut totals = Totals::default();
        for (status, line) in ItemStatus::ALL.into_iter().zip(1..) {
            let instruction = item(line, 1, i64::from(line)).instruction;
            totals.record(status, instruction.kind, instruction.amount);
        }
        let document = Document {
            upload: Uuid::from_u128(8),
            parts: Digest([1; 32]),
            content: Digest([2; 32]),
            valid: totals.sum(),
            invalid: 3,
        };
        let at = Timestamp::from_unix_ms(1_800_000_000_123);
        let mut operations = OperationCounts::default();
        operations.add("table", 7);
        let none = OperationCounts::default();
        let received = Batch::received(key.clone(), OnInvalid::Skip, document, at, operations);
        let splitting = received.clone().split().unwrap();
        let manifest = Manifest { split: Uuid::from_u128(9), digest: Digest([3; 32]), chunks: 2 };
        let mut posting = splitting.clone().post(manifest, at, &none).unwrap();
        assert_eq!(posting.count(1, Digest([4; 32]), &totals, &none), Ok(true));
        let hindered =
            |reason, stop| Batch { hindrance: Some(Hindrance { reason, at, stop }), ..posting.clone() };
        let mut hindered: Vec<Batch> = HindranceReason::ALL
            .into_iter()
            .map(|reason| hindered(reason, None))
            .chain([hindered(HindranceReason::ProcessesEnded, Some(Uuid::from_u128(10)))])
            .collect();
        assert_eq!(posting.count(0, Digest([5; 32]), &Totals::default(), &none), Ok(true));
        let completed = posting.clone().complete(Digest([6; 32]), at, &none).unwrap();
        let cancelled = splitting.clone().cancel(at).unwrap();
        hindered.extend([received, splitting, posting, completed, cancelled]);
        for batch in hindered {
            assert_eq!(decode(&key, &encode(&batch)).unwrap(), batch);
            let reason_of = |text: &str| decode(&key, text).unwrap().hindrance.map(|it| (it.reason, it.stop));
            if let Some(Hindrance { reason, stop, .. }) = batch.hindrance {
                let newer =
                    encode(&batch).replace(&format!("\"{}\"", reason.code()), "\"of_a_newer_version\"");
                assert_eq!(reason_of(&newer), Some((HindranceReason::Unknown, stop)), "{newer}");
            }
        }
    }

    #[test]
    fn other_content_is_refused() {
        let key = BatchKey {
            partner: PartnerId::parse("shop").unwrap(),
            batch: BatchId::from_uuid(Uuid::from_u128(5)),
        };
        for wrong in ["", "{}", "[]"] {
            assert!(matches!(decode(&key, wrong), Err(StoreFault::Corrupt { .. })), "{wrong}");
        }
        assert!(parse_id("shop").is_err() && parse_id("shop-x").is_err());
    }
}
