//! Reads all rows, including damaged ones.
//!
//! One scan returns up to 1,000 rows and continues where the previous scan ended. A range of users is a range of partitions.

use async_trait::async_trait;

use super::account_row;
use super::accounts::name_key;
use super::attempt::Retries;
use super::cursor;
use super::invalid_property::InvalidProperty;
use super::keys::{ACCOUNT, DECISION_PAGES, PAGES, TRANSACTIONS, partition};
use super::ledger::AzureLedger;
use super::page_row;
use super::table::{Found, ROWS_MAX, Scanned, Table};
use super::transaction_row;
use crate::domain::ids::AccountKey;
use crate::domain::time::Timestamp;
use crate::domain::transaction::TransactionStatus;
use crate::ports::archive::{
    Archive, Damaged, Readable, RowContent, StoredDecisionPage, StoredPage, StoredRow, UserRange,
};
use crate::ports::fault::{Cause, StoreFault, causes};
use crate::ports::ledger::{Listing, StoredTransaction};

/// Maximum number of journal pages in one listing. A page has up to 98 entries.
const PAGES_MAX: usize = 100;
/// Prefix of cursors that continue within the journal pages of an account.
const AMONG_PAGES: &str = "pages.";

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

    /// Reads one page of the rows of a table within a range.
    async fn range(
        &self,
        table: &Table,
        (listing, range): (&str, UserRange),
        condition: Option<String>,
        (cursor, limit): (Option<&str>, usize),
        doing: &'static str,
    ) -> Result<Listing<Found>, StoreFault> {
        let listing = format!("{listing}/{}", bounds(range).join("/"));
        let from = cursor::read(&listing, cursor, doing)?;
        let top = u32::try_from(limit).unwrap_or(ROWS_MAX).max(1);
        let filter = filter(range, condition);
        let mut retries = Retries::new(&self.ledger.world);
        let scanned = retries.retry_read(|| table.scan(&filter, top, from.as_ref())).await;
        let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
        Ok(Listing { items: rows, next: next.map(|next| cursor::write(&listing, next)) })
    }

    /// Reads one page of the rows of the ledger within a range.
    async fn rows_where(
        &self,
        listing: &str,
        condition: Option<String>,
        range: UserRange,
        (cursor, limit): (Option<&str>, usize),
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        let doing = "reading all rows";
        // Journal pages are large, and the pages of an account are consecutive rows.
        let among_pages = cursor.and_then(|cursor| cursor.strip_prefix(AMONG_PAGES));
        let limit = if among_pages.is_some() { limit.min(PAGES_MAX) } else { limit };
        let position = (among_pages.or(cursor), limit);
        let rows = self.range(&self.ledger.table, (listing, range), condition, position, doing).await?;
        let ends_with_page = rows.items.last().is_some_and(|last| {
            [PAGES.0, DECISION_PAGES.0].into_iter().any(|kind| last.key.row().starts_with(kind))
        });
        let prefix = if ends_with_page { AMONG_PAGES } else { "" };
        Ok(Listing {
            items: rows.items.iter().filter_map(|found| stored_row(found, doing)).collect(),
            next: rows.next.map(|next| format!("{prefix}{next}")),
        })
    }
}

#[async_trait]
impl Archive for AzureArchive {
    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        let (doing, position) = ("listing all accounts", (cursor, limit));
        let names = self.range(&self.names, ("listed", range), None, position, doing).await?;
        Ok(Listing { items: names.items.iter().map(named_account).collect(), next: names.next })
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        self.rows_where("rows", None, range, (cursor, limit)).await
    }

    async fn rows_since(
        &self,
        since: Timestamp,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        // The service updates `Timestamp` at every change of a row.
        let (listing, condition) =
            (format!("since-{}", since.unix_ms()), format!("Timestamp ge datetime'{since}'"));
        self.rows_where(&listing, Some(condition), range, (cursor, limit)).await
    }

    fn has_index_of_accepted(&self) -> bool {
        false
    }

    async fn accepted(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        let (doing, position) = ("listing accepted transactions", (cursor, limit));
        let ((first, end), status) = (TRANSACTIONS, TransactionStatus::Accepted.code());
        let condition = format!("RowKey ge '{first}' and RowKey lt '{end}' and Status eq '{status}'");
        let found =
            self.range(&self.ledger.table, ("accepted", range), Some(condition), position, doing).await?;
        Ok(Listing {
            items: found.items.iter().map(|found| transaction(found, doing)).collect(),
            next: found.next,
        })
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
        let mut from = None;
        loop {
            let mut retries = Retries::new(&self.ledger.world);
            let scanned = retries.retry_read(|| self.ledger.table.scan_keys(&filter, from.as_ref())).await;
            let Scanned { rows, next } =
                scanned.map_err(|failure| failure.into_fault("searching a posting"))?;
            // A response may be empty although more rows follow.
            if !rows.is_empty() || next.is_none() {
                return Ok(!rows.is_empty());
            }
            from = next;
        }
    }

    async fn stored_decision_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredDecisionPage>, StoreFault> {
        let doing = "reading all decisions of an account";
        let Listing { items, next } = self.rows(account, DECISION_PAGES, cursor, limit, doing).await?;
        Ok(Listing { items: items.iter().map(|found| decision_page(found, doing)).collect(), next })
    }

    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault> {
        let doing = "reading all pages of an account";
        let Listing { items, next } = self.rows(account, PAGES, cursor, limit, doing).await?;
        Ok(Listing { items: items.iter().map(|found| page(found, doing)).collect(), next })
    }

    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        let doing = "reading all transactions of an account";
        let Listing { items, next } = self.rows(account, TRANSACTIONS, cursor, limit, doing).await?;
        Ok(Listing { items: items.iter().map(|found| transaction(found, doing)).collect(), next })
    }
}

/// Returns the account of a row in the list of accounts.
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

fn page(found: &Found, doing: &'static str) -> StoredPage {
    StoredPage {
        first_sequence: found.key.to_first_sequence().ok(),
        page: page_row::read_unchecked(found, doing).map_err(|fault| unreadable(found, &fault)),
    }
}

fn decision_page(found: &Found, doing: &'static str) -> StoredDecisionPage {
    StoredDecisionPage {
        version: found.key.to_version().ok(),
        page: page_row::read_unchecked(found, doing).map_err(|fault| unreadable(found, &fault)),
    }
}

fn transaction(found: &Found, doing: &'static str) -> Readable<StoredTransaction> {
    transaction_row::read(found, doing).map_err(|fault| unreadable(found, &fault))
}

/// Decodes a row of the ledger. Returns `None` for a kind of row that only a newer version knows.
fn stored_row(found: &Found, doing: &'static str) -> Option<Readable<StoredRow>> {
    let account = match found.key.to_account() {
        Ok(account) => account,
        Err(invalid) => return Some(Err(damaged(found, invalid.into()))),
    };
    let row = found.key.row();
    let content = if row == ACCOUNT {
        let read = account_row::read(found, doing).map(|read| read.value);
        RowContent::Account(Box::new(read.map_err(|fault| unreadable(found, &fault))))
    } else if row.starts_with(DECISION_PAGES.0) {
        RowContent::DecisionPage(decision_page(found, doing))
    } else if row.starts_with(PAGES.0) {
        RowContent::Page(page(found, doing))
    } else if row.starts_with(TRANSACTIONS.0) {
        RowContent::Transaction(Box::new(transaction(found, doing)))
    } else {
        return None;
    };
    Some(Ok(StoredRow { account, content }))
}

/// Returns the partition keys at which a range begins and ends, as empty texts where it is unbounded.
fn bounds(range: UserRange) -> [String; 2] {
    [range.from, range.to].map(|user| user.map(|user| user.simple()).unwrap_or_default())
}

/// Returns the filter for a range and a further condition. Partition keys begin with the id of the user.
fn filter(range: UserRange, condition: Option<String>) -> String {
    let [from, to] = bounds(range);
    let from = (!from.is_empty()).then(|| format!("PartitionKey ge '{from}'"));
    let to = (!to.is_empty()).then(|| format!("PartitionKey lt '{to}'"));
    [from, to, condition].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}
