//! Lists journal pages and transactions by scans of one partition.

use async_trait::async_trait;

use super::attempt::Retries;
use super::cursor;
use super::cursor::Continuation;
use super::keys::{DECISION_PAGES, decision_page_row, page_row, partition, transactions_of};
use super::ledger::AzureLedger;
use super::page_row;
use super::rows::corrupt;
use super::table::{ROWS_MAX, Scanned};
use super::transaction_row;
use crate::adapters::page_body;
use crate::domain::ids::{AccountKey, PartnerId};
use crate::domain::journal::{JournalPage, PAGE_ENTRIES_MAX};
use crate::domain::transaction::TransactionStatus;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Listing, StoredTransaction, TransactionLog};

impl AzureLedger {
    pub(super) async fn scan(
        &self,
        filter: &str,
        top: u32,
        from: Option<&Continuation>,
        doing: &'static str,
    ) -> Result<Scanned, StoreFault> {
        let mut retries = Retries::new(&self.world);
        let scanned = retries.retry_read(|| self.table.scan(filter, top, from)).await;
        scanned.map_err(|failure| failure.into_fault(doing))
    }

    /// Scans up to `rows_max` rows with at most `requests_max` requests, because the service can end a page early.
    pub(super) async fn scan_rows(
        &self,
        filter: &str,
        (rows_max, requests_max): (usize, usize),
        doing: &'static str,
    ) -> Result<Scanned, StoreFault> {
        let mut all = Scanned { rows: Vec::new(), next: None };
        for _ in 0..requests_max {
            let left = rows_max.saturating_sub(all.rows.len());
            if left == 0 {
                break;
            }
            let top = u32::try_from(left).unwrap_or(ROWS_MAX);
            let Scanned { rows, next } = self.scan(filter, top, all.next.as_ref(), doing).await?;
            all.rows.extend(rows);
            all.next = next;
            if all.next.is_none() {
                break;
            }
        }
        Ok(all)
    }

    /// Reads one page of a listing of transactions.
    async fn list(
        &self,
        listing: &str,
        filter: &str,
        cursor: Option<&str>,
        limit: usize,
        doing: &'static str,
    ) -> Result<Listing<StoredTransaction>, StoreFault> {
        let from = cursor::read(listing, cursor, doing)?;
        let top = u32::try_from(limit).unwrap_or(ROWS_MAX);
        if top == 0 {
            return Ok(Listing { items: Vec::new(), next: cursor.map(str::to_owned) });
        }
        let Scanned { rows, next } = self.scan(filter, top, from.as_ref(), doing).await?;
        let items = rows.iter().map(|found| transaction_row::read(found, doing));
        Ok(Listing {
            items: items.collect::<Result<_, _>>()?,
            next: next.map(|next| cursor::write(listing, next)),
        })
    }
}

#[async_trait]
impl TransactionLog for AzureLedger {
    async fn pages(
        &self,
        account: AccountKey,
        from: u64,
        entries: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        let doing = "reading journal pages";
        let entries = u64::try_from(entries).unwrap_or(u64::MAX);
        let Some(before_last) = entries.checked_sub(1) else { return Ok(Vec::new()) };
        // Tables can be read only in ascending order. The page that contains `from` starts at most this far before it.
        // Pages that start after the last wanted entry are not needed.
        let reach = u64::try_from(PAGE_ENTRIES_MAX.saturating_sub(1)).unwrap_or(u64::MAX);
        let first = page_row(from.saturating_sub(reach));
        let last = page_row(from.max(1).saturating_add(before_last));
        let partition = partition(account);
        let filter = format!("PartitionKey eq '{partition}' and RowKey ge '{first}' and RowKey le '{last}'");
        let mut pages: Vec<JournalPage> = Vec::new();
        let mut continuation = None;
        loop {
            let Scanned { rows, next } = self.scan(&filter, ROWS_MAX, continuation.as_ref(), doing).await?;
            for found in rows {
                if page_row::last_sequence(&found, doing)? >= from {
                    let page = page_row::read(&found, doing)?;
                    if let Some(previous) = pages.last() {
                        page_body::check_link(previous, &page)
                            .map_err(|invalid| corrupt(&found, doing, invalid))?;
                    }
                    pages.push(page);
                }
            }
            match next {
                Some(next) => continuation = Some(next),
                None => return Ok(pages),
            }
        }
    }

    async fn decision_pages(
        &self,
        account: AccountKey,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        let doing = "reading decision pages";
        let (partition, first, end) = (partition(account), decision_page_row(from), DECISION_PAGES.1);
        let filter = format!("PartitionKey eq '{partition}' and RowKey ge '{first}' and RowKey lt '{end}'");
        let Scanned { rows, .. } = self.scan_rows(&filter, (limit, usize::MAX), doing).await?;
        rows.iter().map(|found| page_row::read(found, doing)).collect()
    }

    async fn by_status(
        &self,
        account: AccountKey,
        status: TransactionStatus,
        partner: Option<&PartnerId>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredTransaction>, StoreFault> {
        let (partition, status) = (partition(account), status.code());
        let (first, end) = transactions_of(partner);
        let filter = format!(
            "PartitionKey eq '{partition}' and RowKey ge '{first}' and RowKey lt '{end}' and Status eq '{status}'"
        );
        let listing = match partner {
            None => format!("{partition}/{status}"),
            Some(partner) => format!("{partition}/{status}/{partner}"),
        };
        self.list(&listing, &filter, cursor, limit, "listing transactions by status").await
    }
}
