//! The auditor of batches. It reads the stored records, manifests and results itself, and compares them with the documents of the
//! clients and with the rows of the transactions. It shares no counting rule with the bank.
//!
//! 1. A record has the content of a document that a client sent, its phases follow each other, and its description of the
//!    document never changes. A batch that got a response has a record, and is final at the end of the run.
//! 2. A manifest contains each item of the document once. The items of an account are in order, in one chunk or in chunks that
//!    each wait for the previous one.
//! 3. A row with the number of a batch is written only under the stored manifest, with the item of its line, after the chunk
//!    that its own chunk waits for, and after the earlier items of the account. Nothing is written for a cancelled batch.
//! 4. The totals are those of the counted chunks, each counted once, to the cent.
//! 5. Every result follows from the row of the item: a row of this batch and line means posted or rejected, another row with
//!    the same content means replayed, and a row with other content means refused.
//! 6. A completed batch has results for all lines, in order. After a sweep they remain readable, and nothing else remains.

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::batches::intake::{Cancelled, Submitted};
use postonce_shared::domain::decision::Decided;
use postonce_shared::testing::prelude::*;
use serde_json::Value;
use uuid::Uuid;

use super::checks::{self, Manifest, StoredPhase};
use super::documents::{Sent, Sums, key_of};
use crate::simulation::event_counts::EventCounts;
use crate::simulation::network::now;
use crate::simulation::records::{Checked, Content, check};

/// The recorded state of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchRecord {
    /// The documents that clients sent, by the digest of their content.
    offers: BTreeMap<String, Sent>,
    /// The parts of the stored record that never change.
    document: Option<Value>,
    phase: StoredPhase,
    is_acknowledged: bool,
    manifest: Option<Manifest>,
    /// The counted chunks, with the digests of their results.
    counted: BTreeMap<u32, String>,
    results: Vec<ResultLine>,
    /// Whether a client read the results.
    is_read: bool,
    /// The splits whose manifests were stored.
    splits: BTreeSet<Uuid>,
    /// Number of reports of the outcome of each chunk.
    reported: BTreeMap<(Uuid, u32), u64>,
}

/// The auditor of batches.
#[derive(Debug, Default)]
pub struct BatchAudit {
    batches: BTreeMap<BatchKey, BatchRecord>,
    /// Counts of events.
    pub counts: EventCounts,
}

impl BatchRecord {
    /// Returns the document that is stored.
    fn sent(&self) -> Result<&Sent, String> {
        let content = self.document.as_ref().map(|it| it["content"].as_str().unwrap_or_default());
        let content = content.ok_or("the batch has no record")?;
        self.offers.get(content).ok_or_else(|| "no client sent the content of the record".to_owned())
    }

    fn upload(&self) -> Uuid {
        let upload = self.document.as_ref().and_then(|it| it["upload"].as_str());
        upload.and_then(|it| Uuid::try_parse(it).ok()).unwrap_or_default()
    }
}

impl BatchAudit {
    fn record(&mut self, key: &BatchKey) -> &mut BatchRecord {
        self.batches.entry(key.clone()).or_default()
    }

    /// Records that a client sends this document, now or later.
    pub fn offered(&mut self, key: &BatchKey, content: String, sent: Sent) -> Checked {
        self.record(key).offers.insert(content, sent);
        Ok(())
    }

    /// Checks a record after an attempt to write it.
    pub fn saved(&mut self, raw: &Store, id: &str) -> Checked {
        let key = key_of_record(id)?;
        let stored = now(raw.records.find(Collection::Batches, id)).map_err(|fault| fault.to_string())?;
        let record = self.batches.entry(key.clone()).or_default();
        let Some(stored) = stored else {
            return check(record.document.is_none(), || format!("the record of batch {key} is gone"));
        };
        let row: Value = serde_json::from_str(&stored.value).map_err(|error| error.to_string())?;
        let phase = StoredPhase::read(&row["phase"]).ok_or_else(|| format!("{key}: {row}"))?;
        let document = ["v", "on_invalid", "upload", "parts", "content", "valid", "invalid", "received_at"];
        let document =
            Value::Object(document.map(|name| (name.to_owned(), row[name].clone())).into_iter().collect());
        let is_same = record.document.as_ref().is_none_or(|before| *before == document);
        check(is_same, || format!("the document of {key} changed from {:?} to {document}", record.document))?;
        let is_first = record.document.replace(document).is_none();
        if is_first {
            self.first_saved(&key, &row)?;
        }
        if !row["hindrance"].is_null() {
            self.counts.add("batch: hindered", 1);
        }
        self.advance(raw, &key, phase)
    }

    fn first_saved(&mut self, key: &BatchKey, row: &Value) -> Checked {
        let sent = self.record(key).sent().map_err(|why| format!("{key}: {why}"))?;
        let (valid, invalid) = (Sums::of(sent.items.values()), sent.invalid.len());
        check(Sums::read(&row["valid"]) == valid, || {
            format!("{key} has {}, and {valid:?} were sent", row["valid"])
        })?;
        let is_same = row["invalid"].as_u64() == u64::try_from(invalid).ok();
        check(is_same, || format!("{key} has {} invalid items, and {invalid} were sent", row["invalid"]))?;
        self.counts.add("batch: with an invalid item", u64::from(invalid > 0));
        Ok(())
    }

    /// Checks the change of a phase.
    fn advance(&mut self, raw: &Store, key: &BatchKey, phase: StoredPhase) -> Checked {
        let record = self.batches.entry(key.clone()).or_default();
        let before = std::mem::replace(&mut record.phase, phase.clone());
        check(before.may_become(&phase), || format!("{key} went from {before:?} to {phase:?}"))?;
        match phase {
            _ if before == phase => Ok(()),
            StoredPhase::None | StoredPhase::Received | StoredPhase::Splitting => Ok(()),
            StoredPhase::Cancelled => {
                self.counts.add("batch: cancelled", 1);
                Ok(())
            }
            StoredPhase::Posting { split, manifest, chunks, outcomes, totals } => {
                if record.manifest.is_none() {
                    let read = Manifest::read(raw, key, record.upload(), (split, &manifest))?;
                    read.check(record.sent()?).map_err(|why| format!("the manifest of {key}: {why}"))?;
                    self.counts.add("batch: of several chunks", u64::from(read.chunks.len() > 1));
                    self.counts.add("batch: with a chain of chunks", u64::from(read.has_chain()));
                    record.manifest = Some(read);
                }
                self.counted(raw, key, (split, chunks), outcomes, &totals)
            }
            StoredPhase::Completed { totals, results } => self.completed(raw, key, &totals, &results),
        }
    }

    /// Checks the counted chunks of a record.
    fn counted(
        &mut self,
        raw: &Store,
        key: &BatchKey,
        (split, chunks): (Uuid, u64),
        outcomes: BTreeMap<u32, String>,
        totals: &BTreeMap<String, Sums>,
    ) -> Checked {
        let record = self.batches.entry(key.clone()).or_default();
        let upload = record.upload();
        let (sent, manifest) = (record.sent()?.clone(), record.manifest.as_ref().ok_or("no manifest")?);
        let is_same = manifest.split == split && u64::try_from(manifest.chunks.len()) == Ok(chunks);
        check(is_same, || format!("the manifest of {key} changed"))?;
        let is_kept = record.counted.iter().all(|(chunk, digest)| outcomes.get(chunk) == Some(digest));
        check(is_kept, || format!("{key} does not contain the outcomes {:?} any more", record.counted))?;
        for (chunk, digest) in outcomes.iter().filter(|(chunk, _)| !record.counted.contains_key(chunk)) {
            let lines = manifest.lines(*chunk).ok_or_else(|| format!("{key} has no chunk {chunk}"))?;
            let results = checks::outcome(raw, key, upload, (split, *chunk, digest))?;
            let expected = lines.iter().filter_map(|line| sent.items.get(line));
            let expected: Result<Vec<_>, String> =
                expected.map(|item| checks::proven(raw, key, item)).collect();
            let expected = expected?;
            check(results == expected, || {
                format!("chunk {chunk} of {key} was counted with {results:?}; its rows prove {expected:?}")
            })?;
        }
        let counted = outcomes.keys().filter_map(|chunk| manifest.lines(*chunk)).flatten();
        let items = counted.filter_map(|line| sent.items.get(&line));
        let expected = checks::totals(raw, key, items)?;
        check(*totals == expected, || {
            format!("{key} has the totals {totals:?}; its rows give {expected:?}")
        })?;
        record.counted = outcomes;
        Ok(())
    }

    fn completed(
        &mut self,
        raw: &Store,
        key: &BatchKey,
        totals: &BTreeMap<String, Sums>,
        digest: &str,
    ) -> Checked {
        let record = self.batches.entry(key.clone()).or_default();
        let (sent, manifest) = (record.sent()?.clone(), record.manifest.as_ref().ok_or("no manifest")?);
        let missing = manifest.chunks.len().saturating_sub(record.counted.len());
        check(missing == 0, || format!("{key} was completed, and {missing} chunk(s) were not counted"))?;
        let expected = checks::totals(raw, key, sent.items.values())?;
        check(*totals == expected, || {
            format!("{key} has the totals {totals:?}; its rows give {expected:?}")
        })?;
        let results = checks::results(raw, key, record.upload(), digest)?;
        let expected = checks::expected_results(raw, key, &sent)?;
        check(results == expected, || {
            format!("the results of {key} are {results:?}; its rows prove {expected:?}")
        })?;
        record.results = results;
        self.counts.add("batch: completed", 1);
        for name in checks::names_of(&expected) {
            self.counts.add(&name, 1);
        }
        self.counts.add("item: of a key that occurs again", checks::repeated(key, &sent));
        Ok(())
    }

    /// Checks the rows that a commit wrote.
    pub fn posted(&mut self, raw: &Store, insertions: &[Decided]) -> Checked {
        for insertion in insertions {
            let Some(of) = insertion.pending.submission.batch_line else { continue };
            let key = BatchKey { partner: insertion.pending.submission.key.partner.clone(), batch: of.batch };
            let name = || format!("{} as line {} of {key}", insertion.pending.submission.key, of.line);
            let record = self
                .batches
                .get(&key)
                .ok_or_else(|| format!("{} was posted, which no client sent", name()))?;
            let Some(manifest) = &record.manifest else {
                return Err(format!("{} was posted while the batch is {:?}", name(), record.phase));
            };
            let sent = record.sent()?;
            let item =
                sent.items.get(&of.line).ok_or_else(|| format!("{} was posted; no such line", name()))?;
            let is_same = key_of(&key, item) == insertion.pending.submission.key
                && Content::of(&item.instruction) == Content::of(&insertion.pending.submission.instruction);
            check(is_same, || format!("{} was posted as {insertion:?}; it was sent as {item:?}", name()))?;
            let after = manifest.after(of.line);
            let is_next = after.is_none_or(|after| record.counted.contains_key(&after));
            check(is_next, || format!("{} was posted before the chunk {after:?} was counted", name()))?;
            let of_account = sent.items.range(..of.line).filter(|(_, before)| before.account == item.account);
            for (line, before) in of_account {
                let proven = checks::proven(raw, &key, before);
                check(proven.is_ok(), || format!("{} was posted before line {line}", name()))?;
            }
        }
        Ok(())
    }

    /// Checks the response to a document.
    pub fn answered(&mut self, key: &BatchKey, content: &str, answer: &Submitted) -> Checked {
        let record = self.batches.entry(key.clone()).or_default();
        let stored = record.document.as_ref().and_then(|it| it["content"].as_str());
        let (name, is_same) = match answer {
            Submitted::New(_) => ("batch: new", true),
            Submitted::Existing(_) => ("batch: sent again", true),
            Submitted::KeyReused => ("batch: other content", false),
        };
        check(stored.is_some_and(|stored| (stored == content) == is_same), || {
            format!("{key} with {content} was answered with {answer:?}, and {stored:?} is stored")
        })?;
        record.is_acknowledged |= is_same;
        self.counts.add(name, 1);
        Ok(())
    }

    /// Checks the response to a cancellation.
    pub fn answered_cancel(&mut self, key: &BatchKey, answer: &Cancelled) -> Checked {
        let phase = self.record(key).phase.clone();
        let is_right = match answer {
            Cancelled::Done(_) => phase == StoredPhase::Cancelled,
            Cancelled::TooLate(_) => phase.is_posted(),
            // The batch may have been stored since.
            Cancelled::Unknown => true,
        };
        self.counts.add("batch: cancelled too late", u64::from(matches!(answer, Cancelled::TooLate(_))));
        check(is_right, || format!("the cancellation of {key} was answered with {answer:?}; it is {phase:?}"))
    }

    /// Checks a batch that was shown to a client.
    pub fn shown(&mut self, key: &BatchKey, shown: Option<&Batch>) -> Checked {
        let record = self.record(key);
        let Some(shown) = shown else {
            return check(!record.is_acknowledged, || format!("{key} was acknowledged, and is unknown"));
        };
        let is_right = !shown.phase.is_final() || record.phase.code() == shown.phase.code();
        check(is_right, || format!("{key} was shown as {:?}; it is {:?}", shown.phase, record.phase))
    }

    /// Checks results that were shown to a client.
    pub fn read(&mut self, key: &BatchKey, lines: &[ResultLine]) -> Checked {
        self.counts.add("batch: results were read", 1);
        let record = self.record(key);
        record.is_read = true;
        check(record.results == lines, || format!("a client read other results of {key}: {lines:?}"))
    }

    /// Checks that a process reads a chunk only under the stored manifest.
    pub fn reads_chunk(&mut self, name: &str) -> Checked {
        let Some((key, split, chunk)) = checks::chunk_of(name) else { return Ok(()) };
        let manifest = self.record(&key).manifest.as_ref().map(|manifest| manifest.split);
        check(manifest == Some(split), || {
            format!("chunk {chunk} of the split {split} of {key} is used; the manifest is of {manifest:?}")
        })
    }

    /// Records that a manifest is stored.
    pub fn splits(&mut self, name: &str) -> Checked {
        let Some((key, split)) = checks::manifest_of(name) else { return Ok(()) };
        let record = self.batches.entry(key).or_default();
        let is_other = record.splits.insert(split) && record.splits.len() > 1;
        self.counts.add("initiator: another one was first", u64::from(is_other));
        let is_cancelled = record.phase == StoredPhase::Cancelled;
        self.counts.add("initiator: the batch was cancelled", u64::from(is_cancelled));
        Ok(())
    }

    /// Counts a message that reports the outcome of a chunk to the controller.
    pub fn reports(&mut self, body: &[u8]) -> Checked {
        let Some((key, split, chunk)) = checks::reported(body) else { return Ok(()) };
        let record = self.batches.entry(key).or_default();
        let reported = record.reported.entry((split, chunk)).or_default();
        *reported = reported.saturating_add(1);
        let is_again = *reported > 1;
        let is_counted = record.counted.contains_key(&chunk);
        self.counts.add("chunk: posted again", u64::from(is_again));
        self.counts.add("chunk: its outcome was counted before", u64::from(is_counted));
        Ok(())
    }

    /// Counts the end of a process while a batch is posted.
    pub fn process_ended(&mut self) -> Checked {
        let is_posting = |record: &BatchRecord| matches!(record.phase, StoredPhase::Posting { .. });
        let posting = self.batches.values().any(is_posting);
        self.counts.add("chunk: a process ended while it posted", u64::from(posting));
        Ok(())
    }

    /// Adds to the count of an event.
    pub fn count(&mut self, name: &str, more: u64) -> Checked {
        self.counts.add(name, more);
        Ok(())
    }

    /// Returns the acknowledged batches that are not final.
    pub fn unfinished(&self) -> Vec<BatchKey> {
        let is_open = |record: &BatchRecord| record.is_acknowledged && !record.phase.is_final();
        self.batches.iter().filter(|(_, record)| is_open(record)).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the completed batches whose results no client read.
    pub fn unread(&self) -> Vec<BatchKey> {
        let is_unread =
            |record: &BatchRecord| !record.is_read && matches!(record.phase, StoredPhase::Completed { .. });
        self.batches.iter().filter(|(_, record)| is_unread(record)).map(|(key, _)| key.clone()).collect()
    }

    /// Checks all batches at the end of the run, after a sweep.
    pub fn close(&self, raw: &Store) -> Checked {
        if let Some(key) = self.unfinished().first() {
            return Err(format!("batch {key} was acknowledged and never became final"));
        }
        let mut kept = BTreeSet::new();
        for (key, record) in &self.batches {
            if let StoredPhase::Completed { results, .. } = &record.phase {
                let read = checks::results(raw, key, record.upload(), results)?;
                let expected = checks::expected_results(raw, key, record.sent()?)?;
                check(read == expected, || format!("the results of {key} changed to {read:?}"))?;
                kept.insert((key.clone(), record.upload()));
            }
        }
        checks::only_results_are_kept(raw, &kept)
    }
}

fn key_of_record(id: &str) -> Result<BatchKey, String> {
    let key = id.split_once('-').and_then(|(partner, batch)| {
        let batch = BatchId::from_uuid(Uuid::try_parse(batch).ok()?);
        Some(BatchKey { partner: PartnerId::parse(partner).ok()?, batch })
    });
    key.ok_or_else(|| format!("{id:?} is not the id of a batch"))
}
