//! Removes bodies of batches that are no longer needed: after interrupted uploads, unused splits, and completed or
//! cancelled batches, whose result pages are kept. Young bodies are kept, to protect uploads in progress.

use std::collections::BTreeMap;

use super::blobs::{self, BATCHES};
use super::{BatchFault, Batches};
use crate::domain::batch::{Batch, BatchKey};
use crate::messaging::sweep::{AGE_MIN, Swept};
use crate::ports::fault::StoreFault;

const LISTING_LEN: usize = 500;

impl Batches {
    /// Examines every batch body in the store, and removes those that are no longer needed.
    ///
    /// # Errors
    /// [`BatchFault`]; bodies removed so far stay removed, and the next sweep continues.
    pub async fn sweep(&self) -> Result<Swept, BatchFault> {
        let (now, mut swept, mut cursor) = (self.world.now(), Swept::default(), None);
        loop {
            let listing = self.payloads.list(BATCHES, cursor.as_deref(), LISTING_LEN).await?;
            let mut records = BTreeMap::new();
            for entry in &listing.items {
                let count = if now.since(entry.stored_at) < AGE_MIN {
                    &mut swept.young
                } else if self.is_needed(&entry.name, &mut records).await? {
                    &mut swept.open
                } else {
                    self.payloads.delete(&entry.name).await?;
                    &mut swept.removed
                };
                *count = count.saturating_add(1);
            }
            match listing.next {
                Some(next) => cursor = Some(next),
                None => return Ok(swept),
            }
        }
    }

    async fn is_needed(
        &self,
        name: &str,
        records: &mut BTreeMap<BatchKey, Option<Batch>>,
    ) -> Result<bool, StoreFault> {
        let Some(named) = blobs::parse(name) else { return Ok(true) };
        if !records.contains_key(&named.key) {
            let found = match self.records.find(&named.key).await {
                Ok(found) => found.map(|found| found.value),
                Err(fault) if fault.is_transient() => return Err(fault),
                // A damaged record, or one of a newer version, may refer to the body.
                Err(_) => return Ok(true),
            };
            records.insert(named.key.clone(), found);
        }
        let record = records.get(&named.key).and_then(Option::as_ref);
        Ok(record.is_some_and(|batch| {
            batch.document.upload == named.upload && (named.is_result || !batch.phase.is_final())
        }))
    }
}
