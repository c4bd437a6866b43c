//! Data that the auditor of batches reads from the store, and conclusions from the rows of transactions.

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::batches::blobs::{BATCHES, Blob, Blobs, Named, parse};
use postonce_shared::batches::chunks::ChunkEntry;
use postonce_shared::batches::items::{self, ResultLine, Stored};
use postonce_shared::batches::results::PageEntry;
use postonce_shared::domain::batch::{BatchKey, Digest, Item, ItemOutcome, ItemResult, ItemStatus};
use postonce_shared::testing::prelude::*;
use serde_json::Value;
use uuid::Uuid;

use super::documents::{Sent, Sums, key_of};
use crate::simulation::network::now;
use crate::simulation::records::{Checked, Content, check};

/// Limit for listings of payloads, more than any run leaves.
const PAYLOADS_MAX: usize = 100_000;

/// The phase in a stored record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StoredPhase {
    /// There is no record.
    #[default]
    None,
    /// The document is stored.
    Received,
    /// It is being split.
    Splitting,
    /// Chunks are being posted.
    Posting {
        /// The split that created the chunks.
        split: Uuid,
        /// The digest of the manifest.
        manifest: String,
        /// The number of chunks.
        chunks: u64,
        /// The digests of the results of the counted chunks.
        outcomes: BTreeMap<u32, String>,
        /// Totals of these chunks by status.
        totals: BTreeMap<String, Sums>,
    },
    /// Every item is final.
    Completed {
        /// Totals by status.
        totals: BTreeMap<String, Sums>,
        /// The digest of the list of pages.
        results: String,
    },
    /// It was cancelled.
    Cancelled,
}

impl StoredPhase {
    /// Parses the stored form, without the decoder of the bank.
    pub fn read(row: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (name, content) = match row {
            Value::String(name) => (name.as_str(), &Value::Null),
            Value::Object(members) => {
                members.iter().next().map(|(name, content)| (name.as_str(), content))?
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
        };
        Some(match name {
            "received" => Self::Received,
            "splitting" => Self::Splitting,
            "cancelled" => Self::Cancelled,
            "completed" => Self::Completed {
                totals: Sums::read_by_status(&content["totals"]),
                results: text(&content["results"])?,
            },
            "posting" => {
                let outcomes = content["outcomes"].as_object()?.iter();
                let outcomes = outcomes.map(|(chunk, digest)| Some((chunk.parse().ok()?, text(digest)?)));
                Self::Posting {
                    split: Uuid::try_parse(content["split"].as_str()?).ok()?,
                    manifest: text(&content["manifest"])?,
                    chunks: content["chunks"].as_u64()?,
                    outcomes: outcomes.collect::<Option<_>>()?,
                    totals: Sums::read_by_status(&content["totals"]),
                }
            }
            _ => return None,
        })
    }

    /// Returns the code that the bank shows.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Received => "received",
            Self::Splitting => "splitting",
            Self::Posting { .. } => "posting",
            Self::Completed { .. } => "completed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether the phase is final.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Completed { .. } | Self::Cancelled)
    }

    /// Returns whether items are being posted, or were posted.
    pub const fn is_posted(&self) -> bool {
        matches!(self, Self::Posting { .. } | Self::Completed { .. })
    }

    /// Returns whether the other phase may follow.
    pub fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::None => *next == Self::Received,
            Self::Received => matches!(next, Self::Received | Self::Splitting | Self::Cancelled),
            Self::Splitting => matches!(next, Self::Splitting | Self::Posting { .. } | Self::Cancelled),
            Self::Posting { .. } => next.is_posted(),
            Self::Completed { .. } | Self::Cancelled => self == next,
        }
    }
}

/// A stored manifest.
#[derive(Debug)]
pub struct Manifest {
    /// The split that created it.
    pub split: Uuid,
    /// For each chunk, the chunk that it waits for, and its items.
    pub chunks: Vec<(Option<u32>, Vec<Item>)>,
}

impl Manifest {
    /// Reads a manifest and its chunks.
    pub fn read(
        raw: &Store,
        key: &BatchKey,
        upload: Uuid,
        (split, digest): (Uuid, &str),
    ) -> Result<Self, String> {
        let entries: Vec<ChunkEntry> = load(raw, key, upload, (Blob::Manifest(split), digest))?;
        let chunk = |(number, entry): (u32, &ChunkEntry)| {
            let digest = hex::encode(entry.digest);
            Ok((entry.after, load(raw, key, upload, (Blob::Chunk(split, number), &digest))?))
        };
        let chunks = (0..).zip(&entries).map(chunk).collect::<Result<_, String>>()?;
        Ok(Self { split, chunks })
    }

    /// Checks that the chunks contain each item once, and the items of each account in order.
    pub fn check(&self, sent: &Sent) -> Checked {
        let all = self.chunks.iter().flat_map(|(_, items)| items);
        let by_line: BTreeMap<u32, Item> = all.clone().map(|item| (item.line, item.clone())).collect();
        check(by_line == sent.items && all.count() == sent.items.len(), || {
            format!("it contains {by_line:?}, and {:?} were sent", sent.items)
        })?;
        let mut last: BTreeMap<AccountKey, (u32, u32)> = BTreeMap::new();
        for (number, (after, items)) in (0..).zip(&self.chunks) {
            for item in items {
                let Some((chunk, line)) = last.insert(item.account, (number, item.line)) else { continue };
                let waits = chunk == number || *after == Some(chunk);
                check(waits && line < item.line, || format!("line {} is before line {line}", item.line))?;
            }
        }
        Ok(())
    }

    /// Returns whether any chunk waits for another one.
    pub fn has_chain(&self) -> bool {
        self.chunks.iter().any(|(after, _)| after.is_some())
    }

    /// Returns the lines of a chunk.
    pub fn lines(&self, chunk: u32) -> Option<Vec<u32>> {
        let (_, items) = self.chunks.get(usize::try_from(chunk).ok()?)?;
        let mut lines: Vec<u32> = items.iter().map(|item| item.line).collect();
        lines.sort_unstable();
        Some(lines)
    }

    /// Returns the chunk that the chunk of a line waits for.
    pub fn after(&self, line: u32) -> Option<u32> {
        let of_line = self.chunks.iter().find(|(_, items)| items.iter().any(|item| item.line == line));
        of_line.and_then(|(after, _)| *after)
    }
}

/// Reads and decodes a stored body.
fn load<T: Stored>(
    raw: &Store,
    key: &BatchKey,
    upload: Uuid,
    (blob, digest): (Blob, &str),
) -> Result<Vec<T>, String> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(digest, &mut bytes).map_err(|error| error.to_string())?;
    let blobs = Blobs::new(std::sync::Arc::clone(&raw.payloads), key, upload);
    let body = now(blobs.get(blob, Digest(bytes))).map_err(|fault| fault.to_string())?;
    let body = body.ok_or_else(|| format!("{blob:?} of {key} is missing, or has another content"))?;
    items::decode(&body).map_err(|error| format!("{blob:?} of {key}: {error}"))
}

/// Reads the results of a chunk.
pub fn outcome(
    raw: &Store,
    key: &BatchKey,
    upload: Uuid,
    (split, chunk, digest): (Uuid, u32, &str),
) -> Result<Vec<ItemResult>, String> {
    load(raw, key, upload, (Blob::Outcome(split, chunk), digest))
}

/// Reads the results of a batch.
pub fn results(raw: &Store, key: &BatchKey, upload: Uuid, digest: &str) -> Result<Vec<ResultLine>, String> {
    let pages: Vec<PageEntry> = load(raw, key, upload, (Blob::Pages, digest))?;
    let pages = (0..)
        .zip(pages)
        .map(|(number, page)| load(raw, key, upload, (Blob::Page(number), &hex::encode(page.digest))));
    let pages: Vec<Vec<ResultLine>> = pages.collect::<Result<_, String>>()?;
    Ok(pages.concat())
}

/// Returns the result of an item according to its row.
pub fn proven(raw: &Store, batch: &BatchKey, item: &Item) -> Result<ItemResult, String> {
    let key = key_of(batch, item);
    let row = now(raw.ledger.transaction(&key)).map_err(|fault| fault.to_string())?;
    let row = row.ok_or_else(|| format!("line {} of {batch} has no row {key}", item.line))?;
    let result = |status, outcome| ItemResult { line: item.line, message: item.message, status, outcome };
    if Content::of(&row.submission.instruction) != Content::of(&item.instruction) {
        return Ok(result(ItemStatus::Refused, ItemOutcome::KeyReused));
    }
    let is_own = row.submission.batch_line == Some(BatchLine { batch: batch.batch, line: item.line });
    let status = |own| if is_own { own } else { ItemStatus::Replayed };
    match row.outcome {
        Some(Outcome::Posted { order_number, balance_after, .. }) => {
            Ok(result(status(ItemStatus::Posted), ItemOutcome::Posted { order_number, balance_after }))
        }
        Some(Outcome::Rejected { reason, .. }) => {
            Ok(result(status(ItemStatus::Rejected), ItemOutcome::Rejected(reason)))
        }
        None => Err(format!("line {} of {batch} is not final", item.line)),
    }
}

/// Returns the totals of items by the status according to their rows.
pub fn totals<'a>(
    raw: &Store,
    batch: &BatchKey,
    items: impl IntoIterator<Item = &'a Item>,
) -> Result<BTreeMap<String, Sums>, String> {
    let mut totals: BTreeMap<String, Sums> = BTreeMap::new();
    for item in items {
        let status = match proven(raw, batch, item)?.status {
            ItemStatus::Posted => "posted",
            ItemStatus::Rejected => "rejected",
            ItemStatus::Replayed => "replayed",
            ItemStatus::Refused => "refused",
        };
        totals.entry(status.to_owned()).or_default().add(item);
    }
    Ok(totals)
}

/// Returns the expected results of all lines of a document, in order.
pub fn expected_results(raw: &Store, batch: &BatchKey, sent: &Sent) -> Result<Vec<ResultLine>, String> {
    let mut lines: BTreeMap<u32, ResultLine> = BTreeMap::new();
    for (line, item) in &sent.items {
        lines.insert(*line, ResultLine::Item(proven(raw, batch, item)?));
    }
    lines.extend(sent.invalid.iter().map(|(line, item)| (*line, ResultLine::Invalid(item.clone()))));
    Ok(lines.into_values().collect())
}

/// Returns the names of results in the event counts.
pub fn names_of(results: &[ResultLine]) -> Vec<String> {
    let name = |line: &ResultLine| {
        let ResultLine::Item(item) = line else { return None };
        Some(match (item.status, item.outcome) {
            (ItemStatus::Rejected, ItemOutcome::Rejected(reason)) => {
                format!("item: rejected, {}", reason.code())
            }
            (status, _) => format!("item: {}", status.code()),
        })
    };
    results.iter().filter_map(name).collect()
}

/// Returns the number of items with the key of an earlier item.
pub fn repeated(batch: &BatchKey, sent: &Sent) -> u64 {
    let mut keys = BTreeSet::new();
    let repeated = sent.items.values().filter(|item| !keys.insert(key_of(batch, item)));
    u64::try_from(repeated.count()).unwrap_or(u64::MAX)
}

/// Checks that only the results of these batches are stored.
pub fn only_results_are_kept(raw: &Store, kept: &BTreeSet<(BatchKey, Uuid)>) -> Checked {
    let listing = now(raw.payloads.list(BATCHES, None, PAYLOADS_MAX)).map_err(|fault| fault.to_string())?;
    for entry in listing.items {
        let is_kept = parse(&entry.name)
            .is_some_and(|Named { key, upload, is_result }| is_result && kept.contains(&(key, upload)));
        check(is_kept, || format!("the payload {} remains after a sweep", entry.name))?;
    }
    Ok(())
}

/// Parses the batch, the split and the kind in the name of a body of a split.
fn of_split(name: &str) -> Option<(BatchKey, Uuid, &str)> {
    let Named { key, .. } = parse(name)?;
    let mut rest = name.split('-').skip(4);
    Some((key, Uuid::try_parse(rest.next()?).ok()?, rest.next()?))
}

/// Parses the name of a chunk.
pub fn chunk_of(name: &str) -> Option<(BatchKey, Uuid, u32)> {
    let (key, split, kind) = of_split(name)?;
    Some((key, split, kind.strip_prefix('c')?.parse().ok()?))
}

/// Parses the name of a manifest.
pub fn manifest_of(name: &str) -> Option<(BatchKey, Uuid)> {
    let (key, split, kind) = of_split(name)?;
    (kind == "manifest").then_some((key, split))
}

/// Returns the chunk whose outcome a message reports, without the decoder of the bank.
pub fn reported(body: &[u8]) -> Option<(BatchKey, Uuid, u32)> {
    let row: Value = serde_json::from_slice(body).ok()?;
    let uuid = |name: &str| Uuid::try_parse(row[name].as_str()?).ok();
    let key = BatchKey {
        partner: PartnerId::parse(row["partner"].as_str()?).ok()?,
        batch: BatchId::from_uuid(uuid("batch")?),
    };
    Some((key, uuid("split")?, u32::try_from(row["chunk"].as_u64()?).ok()?))
}
