//! Copies the records of batches, and the bodies that they refer to.
//!
//! Some bodies of a batch are removed when it ends. After the bodies were copied, the records of open batches are
//! therefore read again; if a phase changed, the bodies of the new phase are copied as well.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::Copier;
use crate::batches::BLOBS_AT_ONCE;
use crate::batches::blobs::BATCHES;
use crate::batches::records::{BatchRecords, StoredBatch};
use crate::domain::batch::{Batch, Phase};
use crate::ports::fault::{StoreFault, chain};
use crate::ports::ledger::Listing;
use crate::ports::payload_store::PayloadStore;
use crate::ports::records::{Collection, Record};

/// Number of records per read. A record can have 720 KB.
const RECORDS_LIMIT: usize = 50;
const NAMES_LIMIT: usize = 5000;
/// Maximum number of times that the bodies are copied because batches changed meanwhile.
const ROUNDS_MAX: u32 = 5;

/// Returns the parts of the record that determine which bodies exist.
fn needs(batch: &Batch) -> (&'static str, Option<uuid::Uuid>, uuid::Uuid) {
    let split = match &batch.phase {
        Phase::Posting { manifest, .. } => Some(manifest.split),
        Phase::Received | Phase::Splitting | Phase::Completed { .. } | Phase::Cancelled { .. } => None,
    };
    (batch.phase.code(), split, batch.document.upload)
}

impl Copier<'_> {
    pub(super) async fn copy_batches(&self) -> Result<(), StoreFault> {
        let mut open = self.copy_batch_records().await?;
        for _ in 0..ROUNDS_MAX {
            let names = self.copy_bodies().await?;
            let changed = self.copy_changed(&mut open).await?;
            if !changed {
                self.remove_bodies_except(&names).await?;
                return self.copy_open_list(&open).await;
            }
        }
        self.watcher.noticed("batches changed while their bodies were copied: the next pass copies the rest");
        self.copy_open_list(&open).await
    }

    /// Copies all records that differ. Returns the open batches.
    async fn copy_batch_records(&self) -> Result<Vec<Batch>, StoreFault> {
        let (mut open, mut after) = (Vec::new(), None::<String>);
        loop {
            let read = || self.source.records.list(Collection::Batches, "", after.as_deref(), RECORDS_LIMIT);
            let found = self.step(read).await?;
            for record in &found {
                self.put_record(Collection::Batches, record).await?;
                open.extend(self.open_batch(record));
            }
            after = found.last().map(|record| record.id.clone());
            if found.len() < RECORDS_LIMIT {
                return Ok(open);
            }
        }
    }

    /// Returns the batch in a record if it is open.
    fn open_batch(&self, record: &Record) -> Option<Batch> {
        let StoredBatch { id, batch, .. } = BatchRecords::decoded(record);
        match batch {
            Ok(batch) => (!batch.phase.is_final()).then_some(batch),
            Err(fault) => {
                let why = chain(&fault);
                self.watcher.noticed(&format!("the record {id} of a batch is copied as it is: {why}"));
                None
            }
        }
    }

    /// Copies the records of open batches again if their bodies may have changed. Returns whether any did.
    async fn copy_changed(&self, open: &mut Vec<Batch>) -> Result<bool, StoreFault> {
        let (mut still_open, mut changed) = (Vec::new(), false);
        for batch in std::mem::take(open) {
            let id = BatchRecords::id_of(&batch.key);
            let found = self.step(|| self.source.records.find(Collection::Batches, &id)).await?;
            let Some(found) = found else { continue };
            let record = Record { id, body: found.value };
            let now = BatchRecords::decoded(&record).batch.ok();
            if now.as_ref().is_some_and(|now| needs(now) != needs(&batch)) {
                changed = true;
                self.put_record(Collection::Batches, &record).await?;
                still_open.extend(now.filter(|now| !now.phase.is_final()));
            } else {
                still_open.push(batch);
            }
        }
        *open = still_open;
        Ok(changed)
    }

    /// Copies the bodies that the target does not have. Returns the names of all bodies in the source.
    async fn copy_bodies(&self) -> Result<BTreeSet<String>, StoreFault> {
        let copied = self.names(false).await?;
        let names = self.names(true).await?;
        let new = names.difference(&copied).map(|name| self.copy_payload(name));
        let new: Vec<_> = new.collect();
        stream::iter(new).buffer_unordered(BLOBS_AT_ONCE).try_collect::<()>().await?;
        Ok(names)
    }

    async fn remove_bodies_except(&self, names: &BTreeSet<String>) -> Result<(), StoreFault> {
        for name in self.names(false).await?.difference(names) {
            self.target.payloads.delete(name).await?;
        }
        Ok(())
    }

    /// Returns the names of the batch bodies in the source or the target.
    async fn names(&self, of_source: bool) -> Result<BTreeSet<String>, StoreFault> {
        let payloads: &dyn PayloadStore =
            if of_source { &*self.source.payloads } else { &*self.target.payloads };
        let (mut names, mut cursor) = (BTreeSet::new(), None::<String>);
        loop {
            let read = || payloads.list(BATCHES, cursor.as_deref(), NAMES_LIMIT);
            let Listing { items, next } = self.step(read).await?;
            names.extend(items.into_iter().map(|entry| entry.name));
            let Some(next) = next else { return Ok(names) };
            cursor = Some(next);
        }
    }

    /// Copies a payload if it still exists.
    pub(super) async fn copy_payload(&self, name: &str) -> Result<(), StoreFault> {
        let body = match self.step(|| self.source.payloads.get(name)).await {
            Ok(body) => body,
            Err(fault @ StoreFault::Corrupt { .. }) => {
                self.watcher.noticed(&format!("the payload {name} is not copied: {}", chain(&fault)));
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        let Some(body) = body else { return Ok(()) };
        self.step(|| self.target.payloads.put(name, &body)).await?;
        self.note(|totals| totals.payloads = totals.payloads.saturating_add(1));
        self.progress();
        Ok(())
    }

    /// Derives the list of open batches from the copied records: the list in the source may be newer.
    async fn copy_open_list(&self, open: &[Batch]) -> Result<(), StoreFault> {
        let records = BatchRecords::new(std::sync::Arc::clone(&self.target.records));
        for batch in open {
            records.open(&batch.key, batch.received_at).await?;
        }
        let mut after = None;
        loop {
            let listed = records.list_open(after.as_ref(), NAMES_LIMIT).await?;
            for (key, _) in listed.iter().filter(|(key, _)| open.iter().all(|batch| batch.key != *key)) {
                records.close(key).await?;
            }
            if listed.len() < NAMES_LIMIT {
                return Ok(());
            }
            after = listed.last().map(|(key, _)| key.clone());
        }
    }
}
