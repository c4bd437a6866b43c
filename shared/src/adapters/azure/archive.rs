//! Reads all rows, including damaged ones.
//!
//! Cost: the list of accounts is read in pages of 1,000 rows. The accounts of the ledger are found by reading the
//! keys of its rows in pages of 1,000; after each page the remaining rows of the last account are skipped. A small
//! account costs as many rows as it has, and a large one a single scan.

use async_trait::async_trait;

use super::accounts::name_key;
use super::attempt::Retries;
use super::cursor;
use super::invalid_property::InvalidProperty;
use super::keys::{PAGES, TRANSACTIONS, partition};
use super::ledger::AzureLedger;
use super::page_row;
use super::table::{Found, ROWS_MAX, Scanned, Table};
use super::transaction_row;
use crate::domain::ids::AccountKey;
use crate::ports::archive::{Archive, Damaged, Readable, StoredPage};
use crate::ports::fault::{Cause, StoreFault, causes};
use crate::ports::ledger::{Listing, StoredTransaction};

/// All rows in the tables of one store.
pub(super) struct AzureArchive {
    pub(super) ledger: AzureLedger,
    pub(super) names: Table,
}

impl AzureArchive {
    /// Reads one page of an account's rows of one kind.
    async fn rows(
        &self,
        account: AccountKey,
        (first, end): (&str, &str),
        cursor: Option<&str>,
        limit: usize,
        doing: &'static str,
    ) -> Result<Listing<Found>, StoreFault> {
        let partition = partition(account);
        let listing = format!("{partition}/{first}");
        let from = cursor::read(&listing, cursor, doing)?;
        let filter = format!("PartitionKey eq '{partition}' and RowKey ge '{first}' and RowKey lt '{end}'");
        let top = u32::try_from(limit).unwrap_or(ROWS_MAX).max(1);
        let Scanned { rows, next } = self.ledger.scan(&filter, top, from.as_ref(), doing).await?;
        Ok(Listing { items: rows, next: next.map(|next| cursor::write(&listing, next)) })
    }

    /// Returns the next keys of a table. It returns none only at the end, although a response of the service may be
    /// empty before the end.
    async fn keys(&self, table: &Table, filter: &str, doing: &'static str) -> Result<Scanned, StoreFault> {
        let mut from = None;
        loop {
            let mut retries = Retries::new(&self.ledger.world);
            let scanned = retries.retry_read(|| table.scan_keys(filter, from.as_ref())).await;
            let scanned = scanned.map_err(|failure| failure.into_fault(doing))?;
            if !scanned.rows.is_empty() || scanned.next.is_none() {
                return Ok(scanned);
            }
            from = scanned.next;
        }
    }
}

#[async_trait]
impl Archive for AzureArchive {
    async fn listed_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        let doing = "listing all accounts";
        let listing = "listed";
        // The key of the last row that was returned: a page of the listing may end within a response.
        let after = cursor::read(listing, cursor, doing)?;
        let filter = after.map_or_else(String::new, |(partition, row)| {
            let (partition, row) = (quoted(&partition), quoted(&row.unwrap_or_default()));
            format!("PartitionKey gt '{partition}' or (PartitionKey eq '{partition}' and RowKey gt '{row}')")
        });
        let Scanned { mut rows, next } = self.keys(&self.names, &filter, doing).await?;
        let more = next.is_some() || rows.len() > limit;
        rows.truncate(limit);
        let position = |found: &Found| (found.key.partition().to_owned(), Some(found.key.row().to_owned()));
        let next = rows.last().filter(|_| more).map(|last| cursor::write(listing, position(last)));
        Ok(Listing { items: rows.iter().map(named_account).collect(), next })
    }

    async fn ledger_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        let doing = "listing the accounts of the ledger";
        let listing = "ledger";
        let after = cursor::read(listing, cursor, doing)?;
        let filter = after
            .map_or_else(String::new, |(partition, _)| format!("PartitionKey gt '{}'", quoted(&partition)));
        let Scanned { mut rows, next } = self.keys(&self.ledger.table, &filter, doing).await?;
        rows.dedup_by(|one, other| one.key.partition() == other.key.partition());
        let more = next.is_some() || rows.len() > limit;
        rows.truncate(limit);
        let position = |found: &Found| (found.key.partition().to_owned(), None);
        let next = rows.last().filter(|_| more).map(|last| cursor::write(listing, position(last)));
        let read = |found: &Found| found.key.to_account().map_err(|invalid| damaged(found, invalid.into()));
        Ok(Listing { items: rows.iter().map(read).collect(), next })
    }

    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault> {
        let doing = "searching an account in the list";
        let (key, mut retries) = (name_key(account), Retries::new(&self.ledger.world));
        let found = retries.retry_read(|| self.names.get(&key)).await;
        Ok(found.map_err(|failure| failure.into_fault(doing))?.is_some())
    }

    async fn has_pages(&self) -> Result<bool, StoreFault> {
        let (first, end) = PAGES;
        let filter = format!("RowKey ge '{first}' and RowKey lt '{end}'");
        let found = self.keys(&self.ledger.table, &filter, "searching a posting").await?;
        Ok(!found.rows.is_empty())
    }

    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault> {
        let doing = "reading all pages of an account";
        let Listing { items, next } = self.rows(account, PAGES, cursor, limit, doing).await?;
        let page = |found: &Found| StoredPage {
            first_sequence: found.key.to_first_sequence().ok(),
            page: page_row::read_unchecked(found, doing).map_err(|fault| unreadable(found, &fault)),
        };
        Ok(Listing { items: items.iter().map(page).collect(), next })
    }

    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        let doing = "reading all transactions of an account";
        let Listing { items, next } = self.rows(account, TRANSACTIONS, cursor, limit, doing).await?;
        let read =
            |found: &Found| transaction_row::read(found, doing).map_err(|fault| unreadable(found, &fault));
        Ok(Listing { items: items.iter().map(read).collect(), next })
    }
}

/// Returns the account that a row of the list names.
fn named_account(found: &Found) -> Readable<AccountKey> {
    let parsed = found.key.partition().parse().ok().zip(found.key.row().parse().ok());
    let Some((user, account)) = parsed else { return Err(damaged(found, InvalidProperty("RowKey").into())) };
    Ok(AccountKey { user, account })
}

fn damaged(found: &Found, cause: Cause) -> Damaged {
    Damaged { place: format!("the row {}", found.key), cause: cause.to_string() }
}

fn unreadable(found: &Found, fault: &StoreFault) -> Damaged {
    Damaged { place: format!("the row {}", found.key), cause: causes(fault) }
}

/// Quotes a key within a filter. The key of a row that another program wrote may contain any character.
fn quoted(key: &str) -> String {
    key.replace('\'', "''")
}
