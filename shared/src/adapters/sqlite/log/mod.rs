//! Lists journal pages and transactions.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::names;
use super::transaction_row::{self, COLUMNS, COLUMNS_COUNT};
use crate::adapters::page_body;
use crate::domain::ids::{AccountKey, MessageId, Nonce, PartnerId, TransactionKey};
use crate::domain::journal::JournalPage;
use crate::domain::transaction::TransactionStatus;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Listing, StoredTransaction, TransactionLog};

pub(super) struct SqliteLog {
    database: Arc<Database>,
}

impl SqliteLog {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl TransactionLog for SqliteLog {
    async fn pages(
        &self,
        account: AccountKey,
        from: u64,
        entries: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        let job = move |connection: &_| pages(connection, account, from, entries);
        self.database.read(meter::TABLE_QUERY, "reading the journal of an account", job).await
    }

    async fn decision_pages(
        &self,
        account: AccountKey,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        let job = move |connection: &_| decision_pages(connection, account, from, limit);
        self.database.read(meter::TABLE_QUERY, "reading decisions of an account", job).await
    }

    async fn by_status(
        &self,
        account: AccountKey,
        status: TransactionStatus,
        partner: Option<&PartnerId>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredTransaction>, StoreFault> {
        let doing = "listing the transactions of an account";
        let after = cursor.map(|cursor| StatusCursor::parse(account, status, cursor)).transpose();
        let after = after.map_err(|fault| fault.doing(doing))?;
        if after.as_ref().is_some_and(|after| partner.is_some_and(|partner| *partner != after.partner)) {
            return Err(SqlFault::ForeignCursor.doing(doing));
        }
        let partner = partner.cloned();
        let job = move |connection: &_| {
            by_status(connection, (account, status, partner.as_ref()), after.as_ref(), limit)
        };
        self.database.read(meter::TABLE_QUERY, doing, job).await
    }
}

fn pages(
    connection: &Connection,
    key: AccountKey,
    from: u64,
    entries_wanted: usize,
) -> Result<Vec<JournalPage>, SqlFault> {
    let Some(account) = names::account(connection, key)? else { return Ok(Vec::new()) };
    // Every assigned sequence fits into the column, so a larger one matches no page.
    let Ok(start) = i64::try_from(from) else { return Ok(Vec::new()) };
    let sql = "SELECT first_sequence, entries, previous_hash, hash, nonce FROM journal_pages
               WHERE account = ?1 AND first_sequence >= coalesce((SELECT max(first_sequence)
                   FROM journal_pages WHERE account = ?1 AND first_sequence <= ?2), 0)
               ORDER BY first_sequence";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((account, start))?;
    let mut pages: Vec<JournalPage> = Vec::new();
    let mut found: usize = 0;
    while found < entries_wanted {
        let Some(row) = rows.next()? else { break };
        let page = page(row, key)?;
        if let Some(previous) = pages.last() {
            page_body::check_link(previous, &page).map_err(|flaw| SqlFault::Unsound(flaw.into()))?;
        }
        let wanted = page.entries.iter().filter(|entry| entry.sequence >= from).count();
        // The last page of the journal may end before `from`.
        if wanted > 0 {
            found = found.saturating_add(wanted);
            pages.push(page);
        }
    }
    Ok(pages)
}

fn decision_pages(
    connection: &Connection,
    key: AccountKey,
    from: u64,
    limit: usize,
) -> Result<Vec<JournalPage>, SqlFault> {
    let Some(account) = names::account(connection, key)? else { return Ok(Vec::new()) };
    // Every assigned version fits into the column, so a larger one matches no page.
    let Ok(start) = i64::try_from(from) else { return Ok(Vec::new()) };
    let sql = "SELECT first_sequence, content, previous_hash, hash, nonce FROM decision_pages
               WHERE account = ?1 AND version >= ?2 ORDER BY version LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_and_then((account, start, columns::limit(limit)), |row| page(row, key))?.collect()
}

fn page(row: &Row<'_>, account: AccountKey) -> Result<JournalPage, SqlFault> {
    let page = unchecked_page(row, account)?;
    page.check().map_err(|flaw| SqlFault::Unsound(flaw.into()))?;
    Ok(page)
}

/// Reads a page without checking it. The columns of the page are the first columns of the row.
pub(super) fn unchecked_page(row: &Row<'_>, account: AccountKey) -> Result<JournalPage, SqlFault> {
    let text = row.get_ref(1)?.as_str().map_err(|_| SqlFault::Column("entries"))?;
    let (version, entries, decided) =
        page_body::decode(text).map_err(|flaw| SqlFault::Unsound(flaw.into()))?;
    Ok(JournalPage {
        account,
        version,
        first_sequence: columns::unsigned(row.get(0)?, "first_sequence")?,
        entries,
        decided,
        previous_hash: columns::page_hash(row, 2)?,
        hash: columns::page_hash(row, 3)?,
        nonce: Nonce::from_uuid(columns::uuid(row, 4)?),
    })
}

/// Position in a listing by status: the partner and the message of the last returned row.
struct StatusCursor {
    partner: PartnerId,
    message: MessageId,
}

impl StatusCursor {
    /// Parses a cursor. A cursor of another account or status is refused, because it would skip rows.
    fn parse(account: AccountKey, status: TransactionStatus, cursor: &str) -> Result<Self, SqlFault> {
        let read = || {
            let position = cursor.strip_prefix(&Self::listing(account, status))?;
            let (partner, message) = position.split_once('.')?;
            Some(Self { partner: PartnerId::parse(partner).ok()?, message: message.parse().ok()? })
        };
        read().ok_or(SqlFault::ForeignCursor)
    }

    fn after(status: TransactionStatus, last: &TransactionKey) -> String {
        format!("{}{}.{}", Self::listing(last.account, status), last.partner, last.message.simple())
    }

    fn listing(account: AccountKey, status: TransactionStatus) -> String {
        format!("{}.{}.{}.", account.user.simple(), account.account.simple(), status.code())
    }
}

fn by_status(
    connection: &Connection,
    (key, status, only): (AccountKey, TransactionStatus, Option<&PartnerId>),
    after: Option<&StatusCursor>,
    limit: usize,
) -> Result<Listing<StoredTransaction>, SqlFault> {
    let Some(account) = names::account(connection, key)? else {
        return Ok(Listing { items: Vec::new(), next: None });
    };
    let partner = after.map_or("", |cursor| cursor.partner.as_str());
    let message = after.map_or_else(Vec::new, |cursor| cursor.message.as_uuid().into_bytes().to_vec());
    let sql = by_status_sql(status);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_and_then(
        (account, partner, message, columns::limit(limit.saturating_add(1)), only.map(PartnerId::as_str)),
        |row| {
            let name: String = row.get(COLUMNS_COUNT.saturating_add(1))?;
            let partner = PartnerId::parse(&name).map_err(|_| SqlFault::Column("name"))?;
            let message = MessageId::from_uuid(columns::uuid(row, COLUMNS_COUNT)?);
            transaction_row::read(row, TransactionKey { account: key, partner, message })
        },
    )?;
    let items = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(Listing::first_of(items, limit, |last| StatusCursor::after(status, &last.submission.key)))
}

/// Returns the query. Keys are ordered by the names and not by the numbers of partners, so the outer loop iterates over the
/// few partners. Rare statuses have partial indexes. Without INDEXED BY, SQLite would scan the whole history of the account.
fn by_status_sql(status: TransactionStatus) -> String {
    let index = match status {
        TransactionStatus::Accepted => "INDEXED BY transactions_accepted",
        TransactionStatus::Rejected => "INDEXED BY transactions_rejected",
        TransactionStatus::Posted => "",
    };
    format!(
        "SELECT {COLUMNS}, t.message, p.name FROM partners p CROSS JOIN transactions t {index}
         WHERE t.account = ?1 AND t.partner = p.id AND t.status = '{}'
             AND p.name >= ?2 AND (?5 IS NULL OR p.name = ?5) AND t.message > CASE p.name WHEN ?2 THEN ?3 ELSE x'' END
         ORDER BY p.name, t.message LIMIT ?4",
        status.code()
    )
}

#[cfg(test)]
pub(super) mod tests;
