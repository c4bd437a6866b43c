//! Imports rows of another store.
//!
//! The rows of an account are written in batches of one partition. The account row is in the last batch, and its entry in the
//! user's list is written before, so that every account is listed. Batches replace existing rows, so they can be sent again.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use super::account_row;
use super::accounts::{NameRow, name_key};
use super::attempt::Retries;
use super::batch::{BATCH_ROWS_MAX, Batch};
use super::keys::{Key, partition};
use super::ledger::AzureLedger;
use super::page_row;
use super::table::Table;
use super::transaction_row::ImportedRow;
use crate::domain::ids::{Nonce, UserId};
use crate::ports::fault::StoreFault;
use crate::ports::import::{AccountRows, Import};
use crate::ports::world::WorldExt as _;

const DOING: &str = "importing rows";

/// Maximum number of batches in flight.
const BATCHES_AT_ONCE: usize = 16;
/// Maximum size of the rows in a batch. The service allows 4 MiB including the headers of each row.
const BATCH_BYTES_MAX: usize = 3 * 1024 * 1024;

pub(super) struct AzureImport {
    pub(super) ledger: AzureLedger,
    pub(super) names: Table,
}

impl AzureImport {
    async fn send(&self, table: &Table, batch: &Batch) -> Result<(), StoreFault> {
        let mut retries = Retries::new(&self.ledger.world);
        let sent = retries.retry_write(|| table.send_inserts(batch)).await;
        sent.map(drop).map_err(|failure| retries.fault(failure, DOING))
    }

    /// Adds the accounts that have a row to the lists of their users.
    async fn write_names(&self, accounts: &[AccountRows]) -> Result<(), StoreFault> {
        let mut batches: BTreeMap<UserId, Vec<Batch>> = BTreeMap::new();
        for rows in accounts.iter().filter(|rows| rows.account.is_some()) {
            let key = name_key(rows.key);
            let of_user = batches.entry(rows.key.user).or_default();
            if of_user.last().is_none_or(|batch| batch.len() == BATCH_ROWS_MAX) {
                of_user.push(Batch::new(key.partition()));
            }
            of_user.last_mut().into_iter().for_each(|batch| batch.replace(&key, &NameRow {}));
        }
        let batches: Vec<Batch> = batches.into_values().flatten().collect();
        let sends: Vec<_> = batches.iter().map(|batch| self.send(&self.names, batch)).collect();
        stream::iter(sends).buffer_unordered(BATCHES_AT_ONCE).try_collect().await
    }

    /// Writes the batches of one account sequentially.
    async fn write_account(&self, rows: &AccountRows, nonce: Nonce) -> Result<(), StoreFault> {
        for batch in batches(rows, nonce) {
            self.send(&self.ledger.table, &batch).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Import for AzureImport {
    async fn import(&self, accounts: &[AccountRows]) -> Result<(), StoreFault> {
        self.write_names(accounts).await?;
        let nonce = self.ledger.world.nonce();
        let writes: Vec<_> = accounts.iter().map(|rows| self.write_account(rows, nonce)).collect();
        stream::iter(writes).buffer_unordered(BATCHES_AT_ONCE).try_collect().await
    }
}

/// The batches of an account. Only the last one has free space.
struct Batches {
    partition: String,
    full: Vec<Batch>,
    last: Batch,
    bytes: usize,
}

impl Batches {
    fn add(&mut self, key: &Key, row: &impl Serialize) {
        let bytes = serde_json::to_vec(row).map_or(0, |json| json.len());
        let is_full = self.last.len() == BATCH_ROWS_MAX
            || (self.last.len() > 0 && self.bytes.saturating_add(bytes) > BATCH_BYTES_MAX);
        if is_full {
            self.full.push(std::mem::replace(&mut self.last, Batch::new(self.partition.clone())));
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.last.replace(key, row);
    }
}

fn batches(AccountRows { key, pages, transactions, account }: &AccountRows, nonce: Nonce) -> Vec<Batch> {
    let partition = partition(*key);
    let last = Batch::new(partition.clone());
    let mut batches = Batches { partition, full: Vec::new(), last, bytes: 0 };
    for page in pages {
        batches.add(&Key::page(page), &page_row::write(page));
    }
    for stored in transactions {
        batches.add(&Key::transaction(&stored.submission.key), &ImportedRow::of(stored, nonce));
    }
    if let Some(account) = account {
        batches.add(&Key::account(*key), &account_row::opening(account, nonce));
    }
    let Batches { mut full, last, .. } = batches;
    if last.len() > 0 {
        full.push(last);
    }
    full
}
