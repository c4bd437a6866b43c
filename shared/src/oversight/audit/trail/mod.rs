//! The rows of the audit trail: one per completed administrative act, chained by hash.
//!
//! A row is written after its act and before the response, by inserting the next sequence if it is free. If several
//! processes insert it, one succeeds and the others take the next sequence. A shared value names a recent row, so that
//! removing the last rows is detected, which the chain alone cannot show.
//!
//! If the store is unavailable, the act is still reported as done. An error is logged, the act is counted in
//! [`AuditTrail::missing`], and the process keeps trying to write the row until it ends. If a process crashes between
//! an act and its row, only the effect of the act is stored.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use tokio::sync::Mutex;

use super::body::{self, AuditBodyError};
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

/// Name of the shared value with the sequence and hash of a recent row.
pub(crate) const HEAD: &str = "audit-head";
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The sequence and hash of a row; 0 and [`PageHash::GENESIS`] before the first row.
pub type AuditHead = (u64, PageHash);

/// A row as stored, which may be unreadable.
#[derive(Debug)]
pub struct StoredAuditRow {
    /// The record id.
    pub id: String,
    /// The sequence, if the id is valid.
    pub sequence: Option<u64>,
    /// The row; its hashes are not verified.
    pub row: Result<AuditRow, AuditBodyError>,
}

/// The audit trail of one store.
pub struct AuditTrail {
    records: Arc<dyn Records>,
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
    /// The last row, if known. Locked during an append, because concurrent appends of one process would conflict.
    known: Mutex<Option<AuditHead>>,
    missing: AtomicU64,
    /// Identity of the operator whose commands this process runs.
    operator: OnceLock<AuditTarget>,
}

impl AuditTrail {
    /// Returns the audit trail of a store.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        let (records, sync) = (Arc::clone(&store.records), Arc::clone(&store.sync));
        let (known, missing, operator) = (Mutex::default(), AtomicU64::new(0), OnceLock::new());
        Self { records, sync, world, known, missing, operator }
    }

    /// Adds details to all later command events, to identify the operator: [`OPERATOR`] is the same for everybody. Only
    /// the first call has an effect.
    pub fn name_operator(&self, details: AuditTarget) {
        let _named_before = self.operator.set(details);
    }

    /// Returns `command`, followed by the details about the operator.
    pub fn command(&self) -> String {
        let details = self.operator.get().map(|details| format!(" {details}"));
        format!("command{}", details.unwrap_or_default())
    }

    /// Logs an event. If the act was done, also writes its row. Waits at most five seconds for the row, which is then
    /// written in the background.
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

    /// Records the event of a command, and returns its result unchanged.
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

    /// Returns the number of acts done by this process that have no row because the store did not accept it.
    pub fn missing(&self) -> u64 {
        self.missing.load(Ordering::Relaxed)
    }

    /// Returns the sequence and hash of the last row; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreFault`] when the row cannot be read.
    pub async fn head(&self) -> Result<Option<AuditHead>, StoreFault> {
        let last = self.last().await?;
        Ok(Some(last).filter(|(sequence, _)| *sequence > 0))
    }

    /// Returns at most `limit` rows before a sequence, newest first. A shorter list means that none follow.
    ///
    /// # Errors
    /// [`StoreFault`] when the rows cannot be read.
    pub async fn list(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRow>, StoreFault> {
        let stored = self.list_stored(before.map(body::id).as_deref(), limit).await?;
        stored
            .into_iter()
            .map(|stored| stored.row.map_err(|error| corrupt("listing audit rows", error)))
            .collect()
    }

    /// Returns at most `limit` rows after a record id, newest first, including unreadable ones. A shorter list means
    /// that none follow.
    ///
    /// # Errors
    /// [`StoreFault`] when the records cannot be read.
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

    /// Returns the announced last row. Later rows may exist; it must exist itself.
    ///
    /// # Errors
    /// [`StoreFault`] when the value cannot be read.
    pub async fn announced(&self) -> Result<Option<AuditHead>, StoreFault> {
        let Some(Versioned { value, .. }) = self.sync.get(HEAD).await? else { return Ok(None) };
        body::decode_head(&value).map(Some).map_err(|error| corrupt("reading the last audit row", error))
    }

    /// Appends an act. Retries while the store is unavailable.
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
                // Another process appended a row first. One of the competing processes always makes progress.
                Ok(None) => after = None,
                Err(fault) if fault.is_transient() => {
                    failures = failures.saturating_add(1);
                    AUDIT_APPEND.pause(failures, &*self.world).await;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Inserts a row after `after`, or after the last row, which is then stored in `after`. Returns `None` if another
    /// row has that sequence. After a fault the row may have been inserted, or may still be; only the same call may be
    /// repeated.
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
            // An earlier attempt may have inserted the row.
            Swapped::Conflict => {
                let found = self.records.find(Collection::AuditRows, &id).await?;
                found.is_some_and(|found| found.value == encoded)
            }
        };
        Ok(inserted.then_some((row.sequence, row.hash)))
    }

    /// Returns the last row. If the announced row is missing or was changed, the trail continues after the announced
    /// sequence and hash, so that the damage stays visible.
    async fn last(&self) -> Result<AuditHead, StoreFault> {
        let newest = self.list_stored(None, 1).await?.pop();
        // Read after the rows, so that it is not older than they are.
        let announced = match self.announced().await {
            Ok(announced) => announced.unwrap_or((0, PageHash::GENESIS)),
            // The audit reports the damage. The rows suffice to continue.
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

    /// Announces the last row, unless a later one is announced. If this fails, the next append announces its row.
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
        // A damaged value is not replaced, so that the damage stays visible.
        if !found.as_ref().is_none_or(is_earlier) {
            return Ok(true);
        }
        let revision = found.as_ref().map(|found| &found.revision);
        let swapped = self.sync.swap(HEAD, revision, &body::encode_head(head)).await?;
        Ok(matches!(swapped, Swapped::Done(_)))
    }
}

fn corrupt(doing: &'static str, error: AuditBodyError) -> StoreFault {
    StoreFault::Corrupt { doing, source: error.into() }
}

#[cfg(test)]
mod tests;
