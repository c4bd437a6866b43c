//! Copies what is independent of the ledger: dead letters, partners, API keys, used signatures and the audit trail.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;

use super::Copier;
use crate::messaging::envelope;
use crate::oversight::audit::HEAD as AUDIT_HEAD;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::dead_letters::DeadLetter;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::records::{Collection, Record};
use crate::ports::sync_store::Swapped;

/// Number of records per read. A record can have 720 KB.
const RECORDS_LIMIT: usize = 50;
const SMALL_RECORDS_LIMIT: usize = 1000;
const LETTERS_LIMIT: usize = 50;
/// Maximum number of attempts to replace a record. They suffice, because nothing else writes to the target.
const ATTEMPTS_MAX: u32 = 5;

impl Copier<'_> {
    pub(super) async fn copy_documents(&self, is_first: bool) -> Result<(), StoreFault> {
        self.copy_dead_letters().await?;
        self.mirror(Collection::Partners, RECORDS_LIMIT).await?;
        self.copy_keys().await?;
        self.mirror(Collection::UsedSignatures, SMALL_RECORDS_LIMIT).await?;
        // Read before the rows, so that the row it names is among them.
        let head = self.step(|| self.source.sync.get(AUDIT_HEAD)).await?;
        self.copy_appended(Collection::AuditRows, is_first).await?;
        if let Some(head) = head {
            let (sync, value) = (&self.target.sync, head.value.as_str());
            self.step(|| super::values::overwrite(sync, AUDIT_HEAD, value).boxed()).await?;
        }
        Ok(())
    }

    /// Copies records that never change and are listed newest first. A later pass copies only records newer than the
    /// newest one in the target, oldest first, so that an interruption leaves no gap.
    pub(super) async fn copy_appended(
        &self,
        collection: Collection,
        is_first: bool,
    ) -> Result<(), StoreFault> {
        let newest = self.target.records.list(collection, "", None, 1).await?.pop();
        let known = newest.filter(|_| !is_first).map(|record| record.id);
        let (mut new, mut after) = (Vec::new(), None::<String>);
        loop {
            let read = || self.source.records.list(collection, "", after.as_deref(), SMALL_RECORDS_LIMIT);
            let found = self.step(read).await?;
            let is_last = found.len() < SMALL_RECORDS_LIMIT;
            after = found.last().map(|record| record.id.clone());
            let count = found.len();
            let newer =
                found.into_iter().take_while(|record| known.as_ref().is_none_or(|id| record.id < *id));
            let before = new.len();
            new.extend(newer);
            if is_first {
                for record in new.drain(..) {
                    self.put_record(collection, &record).await?;
                }
            }
            if is_last || (!is_first && new.len().saturating_sub(before) < count) {
                break;
            }
        }
        for record in new.iter().rev() {
            self.put_record(collection, record).await?;
        }
        Ok(())
    }

    async fn mirror(&self, collection: Collection, limit: usize) -> Result<(), StoreFault> {
        let (mut ids, mut after) = (BTreeSet::new(), None::<String>);
        loop {
            let read = || self.source.records.list(collection, "", after.as_deref(), limit);
            let found = self.step(read).await?;
            for record in &found {
                self.put_record(collection, record).await?;
            }
            let is_last = found.len() < limit;
            ids.extend(found.into_iter().map(|record| record.id));
            after = ids.last().cloned();
            if is_last {
                break;
            }
        }
        let mut after = None::<String>;
        loop {
            let found = self.target.records.list(collection, "", after.as_deref(), limit).await?;
            for record in found.iter().filter(|record| !ids.contains(&record.id)) {
                self.target.records.remove(collection, &record.id).await?;
            }
            if found.len() < limit {
                return Ok(());
            }
            after = found.last().map(|record| record.id.clone());
        }
    }

    /// Writes a record to the target, replacing any existing one.
    pub(super) async fn put_record(
        &self,
        collection: Collection,
        Record { id, body }: &Record,
    ) -> Result<(), StoreFault> {
        self.step(|| self.replace_record(collection, id, body).boxed()).await
    }

    async fn replace_record(&self, collection: Collection, id: &str, body: &str) -> Result<(), StoreFault> {
        let records = &self.target.records;
        let mut found = None;
        for _ in 0..ATTEMPTS_MAX {
            if let Swapped::Done(_) = records.save(collection, id, body, found.as_ref()).await? {
                return Ok(());
            }
            let stored = records.find(collection, id).await?;
            if stored.as_ref().is_some_and(|stored| stored.value == body) {
                return Ok(());
            }
            found = stored.map(|stored| stored.revision);
        }
        let source = format!("another process changes the record {id}").into();
        Err(StoreFault::Refused { doing: "writing a record of a copy", source })
    }

    /// Copies the API keys, which are never removed.
    async fn copy_keys(&self) -> Result<(), StoreFault> {
        let keys = self.step(|| self.source.api_keys.list()).await?;
        let copied = self.target.api_keys.list().await?;
        let copied: BTreeMap<&str, &ApiKeyRecord> = copied.iter().map(|key| (key.id.as_str(), key)).collect();
        let target = &self.target.api_keys;
        for key in keys.iter().filter(|key| copied.get(key.id.as_str()) != Some(key)) {
            self.step(|| target.add(key)).await?;
            if let Some(at) = key.revoked_at {
                self.step(|| target.revoke(&key.id, at)).await?;
            }
            if let Some(at) = key.last_used_at {
                self.step(|| target.mark_used(&key.id, at)).await?;
            }
        }
        Ok(())
    }

    /// Copies the dead letters, and the payloads of open ones, which exist nowhere else.
    async fn copy_dead_letters(&self) -> Result<(), StoreFault> {
        let mut cursor = None::<String>;
        loop {
            let read = || self.source.dead_letters.list(false, cursor.as_deref(), LETTERS_LIMIT);
            let Listing { items, next } = self.step(read).await?;
            for letter in &items {
                self.copy_dead_letter(letter).await?;
            }
            let Some(next) = next else { return Ok(()) };
            cursor = Some(next);
        }
    }

    async fn copy_dead_letter(&self, letter: &DeadLetter) -> Result<(), StoreFault> {
        let target = &self.target.dead_letters;
        self.step(|| target.add(letter)).await?;
        if let Some(resolution) = &letter.resolution {
            return self.step(|| target.resolve(&letter.id, resolution)).await.map(drop);
        }
        match envelope::claimed(&letter.body) {
            Some(claim) => self.copy_payload(&claim.name).await,
            None => Ok(()),
        }
    }
}
