//! The ledger table: accounts, transactions and journal pages. All rows of an account are in one partition, so that a
//! commit is one batch. This module contains the reads and the marks; [`super::accept`] and [`super::commit`] contain
//! the two steps of the protocol.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::account_row;
use super::attempt::{RequestFault, Retries, UnexpectedResponse};
use super::keys::{self, Key};
use super::table::{Found, Scanned, Table};
use super::transaction_row::{self, MarksRow, TransactionRow};
use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::{AccountCommit, Submission, UnknownAccountCommit};
use crate::domain::ids::{AccountKey, Nonce, TransactionKey};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{AcceptOutcome, Committed, Ledger, Marks, READS_AT_ONCE, StoredTransaction};
use crate::ports::world::{World, WorldExt as _};

/// Minimum number of transactions that are read with a scan. A scan request costs as much as a single read.
const SCANNED_MIN: usize = 8;
/// Maximum number of scanned rows per wanted transaction, because other transactions may lie in between.
const ROWS_EACH_MAX: usize = 4;
/// Maximum number of requests for one such scan.
const SCANS_MAX: usize = 4;

#[derive(Clone)]
pub(super) struct AzureLedger {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

impl AzureLedger {
    /// Reads a row, with retries.
    pub(super) async fn read(
        &self,
        key: &Key,
        retries: &mut Retries,
        doing: &'static str,
    ) -> Result<Option<Found>, StoreFault> {
        let found = retries.retry_read(|| self.table.get(key)).await;
        found.map_err(|failure| retries.fault(failure, doing))
    }

    /// Scans the range of some transactions of one account. The result contains all of these transactions, unless too
    /// many other rows lie in between.
    async fn scanned(
        &self,
        keys: &[TransactionKey],
    ) -> Result<BTreeMap<TransactionKey, Option<StoredTransaction>>, StoreFault> {
        let doing = "reading transactions";
        let wanted: BTreeMap<String, &TransactionKey> =
            keys.iter().map(|key| (keys::transaction_row(key), key)).collect();
        let (Some((first, key)), Some((last, _))) = (wanted.first_key_value(), wanted.last_key_value())
        else {
            return Ok(BTreeMap::new());
        };
        debug_assert!(keys.iter().all(|other| other.account == key.account), "they are of one account");
        let partition = keys::partition(key.account);
        let filter = format!("PartitionKey eq '{partition}' and RowKey ge '{first}' and RowKey le '{last}'");
        let rows_max = keys.len().saturating_mul(ROWS_EACH_MAX);
        let Scanned { rows, next } = self.scan_rows(&filter, (rows_max, SCANS_MAX), doing).await?;
        // Rows are ordered by key. So a wanted key up to the last row does not exist if no row has it.
        let reached = rows.last().map(|last| last.key.row());
        let is_covered = |row: &str| next.is_none() || reached.is_some_and(|reached| row <= reached);
        let covered = wanted.iter().filter(|(row, _)| is_covered(row));
        let mut stored: BTreeMap<_, _> = covered.map(|(_, key)| ((*key).clone(), None)).collect();
        for row in &rows {
            if let Some(key) = wanted.get(row.key.row()) {
                stored.insert((*key).clone(), Some(transaction_row::read(row, doing)?));
            }
        }
        Ok(stored)
    }

    /// Reads an account, with retries.
    pub(super) async fn read_account(
        &self,
        key: AccountKey,
        retries: &mut Retries,
        doing: &'static str,
    ) -> Result<Option<Versioned<Account>>, StoreFault> {
        let found = self.read(&Key::account(key), retries, doing).await?;
        found.map(|found| account_row::read(&found, doing)).transpose()
    }
}

fn unclear_mark(doing: &'static str) -> StoreFault {
    let source = Box::new(UnexpectedResponse("newer marks over some without a response".to_owned()));
    StoreFault::Unavailable { doing, source }
}

#[async_trait]
impl Ledger for AzureLedger {
    async fn accept(&self, group: &[Submission], nonce: Nonce) -> Result<Vec<AcceptOutcome>, StoreFault> {
        self.accept_group(group, nonce).await
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.commit_account(commit).await
    }

    async fn reject_unknown(&self, commit: &UnknownAccountCommit) -> Result<Committed, StoreFault> {
        self.insert_rejections(commit).await
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        self.read_account(key, &mut Retries::new(&self.world), "reading an account").await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        let doing = "reading a transaction";
        let found = self.read(&Key::transaction(key), &mut Retries::new(&self.world), doing).await?;
        found.map(|found| transaction_row::read(&found, doing)).transpose()
    }

    async fn transactions(
        &self,
        keys: &[TransactionKey],
    ) -> Result<Vec<Option<StoredTransaction>>, StoreFault> {
        let mut found = if keys.len() >= SCANNED_MIN { self.scanned(keys).await? } else { BTreeMap::new() };
        let known: Vec<_> = keys.iter().map(|key| found.remove(key)).collect();
        let reads: Vec<_> = known
            .into_iter()
            .zip(keys)
            .map(async |(known, key)| match known {
                Some(row) => Ok(row),
                None => self.transaction(key).await,
            })
            .collect();
        stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        revision: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        let doing = "marking a transaction";
        let mut retries = Retries::new(&self.world);
        let row_key = Key::transaction(key);
        let nonce = self.world.nonce();
        let row = MarksRow::of(marks, nonce);
        loop {
            // Detects a final row. The merge checks only the ETag and not the status.
            let Some(found) = self.read(&row_key, &mut retries, doing).await? else { return Ok(None) };
            let read = TransactionRow::parse(&found, doing)?;
            let stored = read.to_stored(&found, doing)?;
            if stored.status().is_final() {
                return Ok(None);
            }
            if stored.revision != *revision {
                return match (retries.is_unclear(), read.was_marked_by(nonce)) {
                    (true, true) => Ok(Some(stored.revision)),
                    (false, _) => Ok(None),
                    // Another process marked the transaction, instead of this call or after it. The result is unknown.
                    (true, false) => Err(unclear_mark(doing)),
                };
            }
            match self.table.merge(&row_key, &row, revision).await {
                Ok(revision) => return Ok(Some(revision)),
                // The row changed since it was read. The next iteration reads it again.
                Err(failure @ RequestFault::Answered(_)) if !failure.has_status(412) => {
                    return Err(retries.fault(failure, doing));
                }
                Err(failure) => {
                    retries.record_failure(&failure);
                    if !retries.wait_for_retry().await {
                        return Err(retries.fault(failure, doing));
                    }
                }
            }
        }
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        let key = Key::new("probe", "probe");
        self.read(&key, &mut Retries::new(&self.world), "probing the ledger").await.map(drop)
    }
}
