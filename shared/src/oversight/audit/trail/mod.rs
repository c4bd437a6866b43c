//! The rows of the audit trail: one for each administrative act that was done, chained by hash.
//!
//! A row is written after its act and before the act is answered, by inserting the next sequence if it is free; of
//! several processes one succeeds, and the others take the sequence after it. A shared value names a last row: so it
//! is noticed if the last rows are removed, which the chain alone does not show.
//!
//! If the store does not answer, the act is answered as done all the same, because it was. An error is logged, the act
//! is counted in [`AuditTrail::missing`], and the process continues to write the row until it ends. A process that ends
//! between an act and its row leaves only what the act itself stored.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use tokio::sync::Mutex;

use super::body::{self, UnreadableRow};
use super::{AuditTarget, Event, OPERATOR, Outcome};
use crate::backoff::{AUDIT_APPEND, SHARED_VALUE_WRITE};
use crate::domain::account::Versioned;
use crate::domain::audit_row::{AuditRow, DoneAct};
use crate::domain::journal::PageHash;
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::records::{Collection, Record, Records};
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::{World, WorldExt as _};

/// Name of the shared value with the sequence and the hash of a last row.
pub(crate) const HEAD: &str = "audit-head";
/// Longest time for which an act waits for its row.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The sequence and the hash of a row. Before the first row, it is 0 and [`PageHash::GENESIS`].
pub type AuditHead = (u64, PageHash);

/// A row as it is stored.
#[derive(Debug)]
pub struct StoredAuditRow {
    /// The id of its record.
    pub id: String,
    /// Its sequence, if the id is valid.
    pub sequence: Option<u64>,
    /// The row, without any check of its hashes.
    pub row: Result<AuditRow, UnreadableRow>,
}

/// The audit trail of one store.
pub struct AuditTrail {
    records: Arc<dyn Records>,
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
    /// The last row, if it is known. Held during an append: those of one process would only be in each other's way.
    known: Mutex<Option<AuditHead>>,
    missing: AtomicU64,
    /// Details about the person whose commands this process runs.
    operator: OnceLock<AuditTarget>,
}

impl AuditTrail {
    /// Returns the audit trail of a store.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        let (records, sync) = (Arc::clone(&store.records), Arc::clone(&store.sync));
        let (known, missing, operator) = (Mutex::default(), AtomicU64::new(0), OnceLock::new());
        Self { records, sync, world, known, missing, operator }
    }

    /// Adds details about the person to all later events of commands: who is [`OPERATOR`] in them, on every machine. Only the
    /// first call has an effect.
    pub fn name_operator(&self, details: AuditTarget) {
        let _named_before = self.operator.set(details);
    }

    /// Returns who runs a command, as one text: `command`, and the details about the person.
    pub fn command(&self) -> String {
        let details = self.operator.get().map(|details| format!(" {details}"));
        format!("command{}", details.unwrap_or_default())
    }

    /// Writes an event to the log. If the act was done, also writes its row, and waits for it at most five seconds; then
    /// the row is written in the background.
    pub async fn record(self: &Arc<Self>, event: &Event<'_>) {
        let mut event = event.clone();
        if let Some(details) = self.operator.get().filter(|_| event.who == OPERATOR) {
            event.on = event.on.with(details.clone());
        }
        event.log();
        if event.outcome != Outcome::Done {
            return;
        }
        let done = event.done_at(self.world.now(), self.world.nonce());
        let (who, act) = (done.actor.clone(), done.act.clone());
        let trail = Arc::clone(self);
        let appending = self.world.start(async move { trail.append(done).await });
        let late = match select(appending, self.world.sleep(WAIT_MAX)).await {
            Either::Left((Ok(_), _)) => return,
            Either::Left((Err(fault), _)) => {
                self.missing.fetch_add(1, Ordering::Relaxed);
                return tracing::error!(
                    act,
                    "{act} by {who} was done, but its row of the audit trail cannot be written: {}",
                    chain(&fault)
                );
            }
            Either::Right(((), appending)) => appending,
        };
        self.missing.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            act,
            "{act} by {who} was done, but the store did not take its row of the audit trail within {WAIT_MAX:?}; this \
             process continues to write the row until it ends"
        );
        let trail = Arc::clone(self);
        let finish = async move {
            if let Ok((sequence, _)) = late.await {
                trail.missing.fetch_sub(1, Ordering::Relaxed);
                tracing::info!(act, "{act} by {who} is now row {sequence} of the audit trail");
            }
        };
        self.world.spawn(finish.boxed());
    }

    /// Records a command, and returns its result.
    ///
    /// # Errors
    /// The error of the command.
    pub async fn record_command<T, E>(
        self: &Arc<Self>,
        act: &str,
        on: AuditTarget,
        ended: Result<T, E>,
    ) -> Result<T, E> {
        self.record(&Event::of_command(act, on, &ended)).await;
        ended
    }

    /// Returns the number of acts of this process that were done and have no row, because the store did not take it.
    pub fn missing(&self) -> u64 {
        self.missing.load(Ordering::Relaxed)
    }

    /// Returns the sequence and the hash of the last row; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read.
    pub async fn head(&self) -> Result<Option<AuditHead>, StoreFault> {
        let last = self.last().await?;
        Ok(Some(last).filter(|(sequence, _)| *sequence > 0))
    }

    /// Returns rows before a sequence, the last one first, at most `limit`. Fewer are returned only at the end.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn list(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRow>, StoreFault> {
        let stored = self.list_stored(before.map(body::id).as_deref(), limit).await?;
        stored
            .into_iter()
            .map(|stored| stored.row.map_err(|error| corrupt("listing audit rows", error)))
            .collect()
    }

    /// Returns rows after the one with an id, the last one first, at most `limit`, including those that cannot be read.
    /// Fewer are returned only at the end.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn list_stored(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StoredAuditRow>, StoreFault> {
        let records = self.records.list(Collection::AuditRows, "", after, limit).await?;
        let stored = |Record { id, body }| match body::sequence(&id) {
            Ok(sequence) => {
                StoredAuditRow { id, sequence: Some(sequence), row: body::decode(sequence, &body) }
            }
            Err(invalid) => StoredAuditRow { id, sequence: None, row: Err(invalid) },
        };
        Ok(records.into_iter().map(stored).collect())
    }

    /// Returns the row that was announced as the last one. There can be later rows, but not fewer.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read.
    pub async fn announced(&self) -> Result<Option<AuditHead>, StoreFault> {
        let Some(Versioned { value, .. }) = self.sync.get(HEAD).await? else { return Ok(None) };
        body::decode_head(&value).map(Some).map_err(|error| corrupt("reading the last audit row", error))
    }

    /// Appends an act. Retries for as long as the store is unavailable.
    async fn append(&self, done: DoneAct) -> Result<AuditHead, StoreFault> {
        let mut known = self.known.lock().await;
        let (mut failures, mut after) = (0_u32, known.take());
        loop {
            match self.try_append(&mut after, &done).await {
                Ok(Some(head)) => {
                    *known = Some(head);
                    self.announce(head).await;
                    return Ok(head);
                }
                // Another process has appended a row, so all loops end.
                Ok(None) => after = None,
                Err(fault) if fault.is_transient() => {
                    failures = failures.saturating_add(1);
                    AUDIT_APPEND.pause(failures, &*self.world).await;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Inserts a row after the given one, or after the last one, which is given back. Returns `None` if another row is in
    /// its place. After a fault the row may be inserted, or may still be: only the same call can be repeated.
    async fn try_append(
        &self,
        after: &mut Option<AuditHead>,
        done: &DoneAct,
    ) -> Result<Option<AuditHead>, StoreFault> {
        let previous = match *after {
            Some(previous) => previous,
            None => *after.insert(self.last().await?),
        };
        let row = AuditRow::after(previous, done.clone());
        let (id, encoded) = (body::id(row.sequence), body::encode(&row));
        let inserted = match self.records.save(Collection::AuditRows, &id, &encoded, None).await? {
            Swapped::Done(_) => true,
            // An earlier attempt may have inserted it.
            Swapped::Conflict => {
                let found = self.records.find(Collection::AuditRows, &id).await?;
                found.is_some_and(|found| found.value == encoded)
            }
        };
        Ok(inserted.then_some((row.sequence, row.hash)))
    }

    /// Returns the last row. If the announced one is missing or was changed, the trail continues after what was
    /// announced, so that the damage remains visible.
    async fn last(&self) -> Result<AuditHead, StoreFault> {
        let newest = self.list_stored(None, 1).await?.pop();
        // Read later, so that it is not older than the rows.
        let announced = match self.announced().await {
            Ok(announced) => announced.unwrap_or((0, PageHash::GENESIS)),
            // The audit reports it. The rows are enough to continue.
            Err(StoreFault::Corrupt { .. }) => (0, PageHash::GENESIS),
            Err(fault) => return Err(fault),
        };
        let Some(StoredAuditRow { sequence, row, .. }) = newest else { return Ok(announced) };
        if sequence.is_some_and(|sequence| sequence <= announced.0) {
            return Ok(announced);
        }
        let row = row.map_err(|error| corrupt("reading the last audit row", error))?;
        Ok((row.sequence, row.hash))
    }

    /// Announces the last row, unless a later one is announced. If this fails, the next append does it.
    async fn announce(&self, head: AuditHead) {
        for attempt in 1..=SHARED_VALUE_WRITE.attempts {
            match self.try_announce(head).await {
                Ok(true) => return,
                Ok(false) => SHARED_VALUE_WRITE.pause(attempt, &*self.world).await,
                Err(fault) => {
                    return tracing::warn!("Could not announce the last audit row: {}", chain(&fault));
                }
            }
        }
    }

    async fn try_announce(&self, head: AuditHead) -> Result<bool, StoreFault> {
        let found = self.sync.get(HEAD).await?;
        let is_earlier = |found: &Versioned<String>| {
            body::decode_head(&found.value).is_ok_and(|(sequence, _)| sequence < head.0)
        };
        // A damaged value is not replaced, so that the damage remains visible.
        if !found.as_ref().is_none_or(is_earlier) {
            return Ok(true);
        }
        let revision = found.as_ref().map(|found| &found.revision);
        let swapped = self.sync.swap(HEAD, revision, &body::encode_head(head)).await?;
        Ok(matches!(swapped, Swapped::Done(_)))
    }
}

fn corrupt(doing: &'static str, error: UnreadableRow) -> StoreFault {
    StoreFault::Corrupt { doing, source: error.into() }
}

#[cfg(test)]
mod tests;
