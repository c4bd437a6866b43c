//! Dead letters: messages that could not be posted, kept for an operator.
//!
//! A letter has two rows in one partition: `letter-{id}` is permanent, and `open-{id}` is a copy that exists until the
//! letter is resolved. Both are inserted in one batch. Resolving a letter changes the first row and deletes the second
//! in one batch. So a crash cannot leave a letter half resolved, adding a letter again cannot reopen it, and a listing
//! of open letters does not read resolved ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::attempt::{RequestFault, Retries};
use super::batch::Batch;
use super::cursor;
use super::keys::Key;
use super::letter_row::{self, ResolutionRow};
use super::parts::PARTS_BYTES_MAX;
use super::table::{Found, Scanned, Table};
use crate::ports::dead_letters::{DeadLetter, DeadLetters, Resolution};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::queue::QueueName;
use crate::ports::world::World;

const PARTITION: &str = "letters";
/// Row key prefixes of the two kinds of rows, each with the first text after all keys with the prefix (`.` follows `-`).
const LETTERS: (&str, &str) = ("letter-", "letter.");
const OPEN: (&str, &str) = ("open-", "open.");

/// Maximum number of letters per page. Their bodies may be large, and a response of the service has at most 4 MiB.
const LIST_MAX: usize = 50;

pub(super) struct AzureDeadLetters {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

impl AzureDeadLetters {
    async fn read(
        &self,
        key: &Key,
        retries: &mut Retries,
        doing: &'static str,
    ) -> Result<Option<Found>, StoreFault> {
        let found = retries.retry_read(|| self.table.get(key)).await;
        found.map_err(|failure| retries.fault(failure, doing))
    }
}

fn filter((first, end): (&str, &str)) -> String {
    format!("PartitionKey eq '{PARTITION}' and RowKey ge '{first}' and RowKey lt '{end}'")
}

#[async_trait]
impl DeadLetters for AzureDeadLetters {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault> {
        assert!(letter.body.len() <= PARTS_BYTES_MAX, "a letter of {} bytes", letter.body.len());
        let row = letter_row::write(letter);
        let mut batch = Batch::new(PARTITION);
        batch.insert(&Key::new(PARTITION, format!("{}{}", LETTERS.0, letter.id)), &row);
        if letter.resolution.is_none() {
            batch.insert(&Key::new(PARTITION, format!("{}{}", OPEN.0, letter.id)), &row);
        }
        let mut retries = Retries::new(&self.world);
        match retries.retry_write(|| self.table.send_inserts(&batch)).await {
            Ok(_) => Ok(()),
            // The letter exists. An earlier call wrote it, or this call if a response was lost.
            Err(failure) if failure.has_status(409) => Ok(()),
            Err(failure) => Err(retries.fault(failure, "keeping a dead letter")),
        }
    }

    async fn find(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault> {
        let doing = "reading a dead letter";
        let Some(key) = Key::named(PARTITION, &format!("{}{id}", LETTERS.0)) else { return Ok(None) };
        let found = self.read(&key, &mut Retries::new(&self.world), doing).await?;
        found.map(|found| letter_row::read(&found, id, doing)).transpose()
    }

    async fn list(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault> {
        let doing = "listing dead letters";
        let range @ (prefix, _) = if open_only { OPEN } else { LETTERS };
        let from = cursor::read(prefix, cursor, doing)?;
        if limit == 0 {
            return Ok(Listing { items: Vec::new(), next: cursor.map(str::to_owned) });
        }
        let top = u32::try_from(limit.min(LIST_MAX)).unwrap_or(1);
        let filter = filter(range);
        let mut retries = Retries::new(&self.world);
        let scanned = retries.retry_read(|| self.table.scan(&filter, top, from.as_ref())).await;
        let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
        let items = rows.iter().map(|found| {
            let id = found.key.row().strip_prefix(prefix).unwrap_or_default();
            letter_row::read(found, id, doing)
        });
        Ok(Listing {
            items: items.collect::<Result<_, _>>()?,
            next: next.map(|next| cursor::write(prefix, next)),
        })
    }

    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault> {
        let doing = "resolving a dead letter";
        let letter = Key::named(PARTITION, &format!("{}{id}", LETTERS.0));
        let open = Key::named(PARTITION, &format!("{}{id}", OPEN.0));
        let (Some(letter), Some(open)) = (letter, open) else { return Ok(false) };
        let row = ResolutionRow::of(resolution);
        let mut retries = Retries::new(&self.world);
        loop {
            let Some(found) = self.read(&letter, &mut retries, doing).await? else { return Ok(false) };
            let decided = letter_row::read(&found, id, doing)?.resolution;
            if decided.is_some() {
                // After a lost response, this call or an identical one wrote this decision.
                return Ok(retries.is_unclear() && decided.as_ref() == Some(resolution));
            }
            let copy = self.read(&open, &mut retries, doing).await?;
            let mut batch = Batch::new(PARTITION);
            batch.merge(&letter, &row, &found.revision);
            // If the copy is missing, either another process resolved the letter between the two reads, which the guard
            // of the letter detects, or the copy was lost, and only the letter is open.
            if let Some(copy) = copy {
                batch.delete(&open, &copy.revision);
            }
            let Err(failure) = self.table.send(&batch).await else { return Ok(true) };
            retries.record_failure(&failure);
            // Another process changed the letter first. The next iteration reads its decision.
            let changed = failure.has_status(412) || failure.has_status(404);
            if (matches!(failure, RequestFault::Answered(_)) && !changed) || !retries.wait_for_retry().await {
                return Err(retries.fault(failure, doing));
            }
        }
    }

    async fn count_open(&self) -> Result<Vec<(QueueName, u64)>, StoreFault> {
        let doing = "counting dead letters";
        let mut counts: BTreeMap<QueueName, u64> = BTreeMap::new();
        let filter = filter(OPEN);
        let mut continuation = None;
        loop {
            let mut retries = Retries::new(&self.world);
            // Reads only the queue names, and not the bodies.
            let scan = || self.table.scan_property("Queue", &filter, continuation.as_ref());
            let scanned = retries.retry_read(scan).await;
            let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
            for found in &rows {
                let count = counts.entry(letter_row::queue(found, doing)?).or_default();
                *count = count.saturating_add(1);
            }
            match next {
                Some(next) => continuation = Some(next),
                None => return Ok(counts.into_iter().collect()),
            }
        }
    }
}
