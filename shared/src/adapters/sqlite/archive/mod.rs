//! Reads all rows, including damaged ones. Separate queries find the rows that an inner join would drop: accounts,
//! transactions and pages whose account has no name, and transactions whose partner has no name.

mod accepted;
mod rows;

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row};
use uuid::Uuid;

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::log;
use super::meter;
use super::names;
use super::transaction_row::{self, COLUMNS, COLUMNS_COUNT};
use crate::domain::ids::{AccountKey, MessageId, PartnerId, TransactionKey, UserId};
use crate::domain::journal::JournalPage;
use crate::ports::archive::{
    Archive, Damaged, Readable, StoredDecisionPage, StoredPage, StoredRow, UserRange,
};
use crate::ports::fault::{StoreFault, chain};
use crate::ports::ledger::{Listing, StoredTransaction};

/// Maximum number of rows without a name in one listing. If there are more, an operator has to inspect the file.
const ROWS_WITHOUT_NAME_MAX: i64 = 1000;

pub(super) struct SqliteArchive {
    database: Arc<Database>,
}

impl SqliteArchive {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl Archive for SqliteArchive {
    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        let doing = "listing all accounts";
        let after = cursor.map(NameCursor::parse).transpose().map_err(|fault| fault.doing(doing))?;
        let job = move |connection: &Connection| listed(connection, range, after, limit);
        self.database.read(meter::TABLE_QUERY, doing, job).await
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        let doing = "reading all rows";
        let from = cursor.map(rows::RowsCursor::parse).transpose().map_err(|fault| fault.doing(doing))?;
        let job = move |connection: &Connection| rows::rows(connection, range, from, limit);
        self.database.read(meter::TABLE_QUERY, doing, job).await
    }

    fn has_index_of_accepted(&self) -> bool {
        true
    }

    async fn accepted(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        let doing = "listing accepted transactions";
        let after = cursor.map(accepted::AcceptedCursor::parse).transpose();
        let after = after.map_err(|fault| fault.doing(doing))?;
        let job = move |connection: &Connection| accepted::accepted(connection, range, after, limit);
        self.database.read(meter::TABLE_QUERY, doing, job).await
    }

    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault> {
        let job = move |connection: &Connection| {
            let Some(number) = names::account(connection, account)? else { return Ok(false) };
            let sql = "SELECT EXISTS (SELECT 1 FROM accounts WHERE id = ?1)";
            Ok(connection.prepare_cached(sql)?.query_row([number], |row| row.get(0))?)
        };
        self.database.read(meter::TABLE_GET, "searching an account in the list", job).await
    }

    async fn has_pages(&self) -> Result<bool, StoreFault> {
        let job = |connection: &Connection| {
            let sql = "SELECT EXISTS (SELECT 1 FROM journal_pages)";
            Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
        };
        self.database.read(meter::TABLE_QUERY, "searching a posting", job).await
    }

    async fn stored_decision_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredDecisionPage>, StoreFault> {
        let doing = "reading all decisions of an account";
        let after = page_cursor(cursor, doing)?;
        let job = move |connection: &Connection| decision_pages(connection, account, after, limit);
        self.database.read(meter::TABLE_QUERY, doing, job).await
    }

    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault> {
        let doing = "reading all pages of an account";
        let after = page_cursor(cursor, doing)?;
        let job = move |connection: &Connection| pages(connection, account, after, limit);
        self.database.read(meter::TABLE_QUERY, doing, job).await
    }

    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        let doing = "reading all transactions of an account";
        let after = cursor
            .map(|cursor| RowCursor::parse(account, cursor))
            .transpose()
            .map_err(|fault| fault.doing(doing))?;
        let job = move |connection: &Connection| transactions(connection, account, after, limit);
        self.database.read(meter::TABLE_QUERY, doing, job).await
    }
}

/// Position in a listing of names: the last returned name. The values are as stored, and may be damaged.
struct NameCursor {
    user: Vec<u8>,
    account: Vec<u8>,
}

impl NameCursor {
    fn parse(cursor: &str) -> Result<Self, SqlFault> {
        let read = || {
            let (user, account) = cursor.split_once('.')?;
            Some(Self { user: hex::decode(user).ok()?, account: hex::decode(account).ok()? })
        };
        read().ok_or(SqlFault::ForeignCursor)
    }

    fn of(key: AccountKey) -> Self {
        let bytes = |id: Uuid| id.into_bytes().to_vec();
        Self { user: bytes(key.user.as_uuid()), account: bytes(key.account.as_uuid()) }
    }

    fn to_text(&self) -> String {
        format!("{}.{}", hex::encode(&self.user), hex::encode(&self.account))
    }
}

fn listed(
    connection: &Connection,
    range: UserRange,
    after: Option<NameCursor>,
    limit: usize,
) -> Result<Listing<Readable<AccountKey>>, SqlFault> {
    let opened = "EXISTS (SELECT 1 FROM accounts a WHERE a.id = n.id)";
    let names = names_after(connection, range, after, opened, limit)?;
    Ok(Listing { items: names.items.into_iter().map(|(key, _)| key).collect(), next: names.next })
}

/// Returns the names in a range after `after` that meet a condition on the row `n`.
fn names_after(
    connection: &Connection,
    range: UserRange,
    after: Option<NameCursor>,
    condition: &str,
    limit: usize,
) -> Result<Listing<(Readable<AccountKey>, NameCursor)>, SqlFault> {
    let (start, end) = bounds(range);
    // Empty blobs sort before every name.
    let NameCursor { user, account } = after.unwrap_or(NameCursor { user: start, account: Vec::new() });
    let sql = format!(
        "SELECT n.user_id, n.account_id, n.id FROM account_names n
         WHERE (n.user_id, n.account_id) > (?1, ?2) AND (?3 IS NULL OR n.user_id < ?3) AND {condition}
         ORDER BY n.user_id, n.account_id LIMIT ?4"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let wanted = columns::limit(limit.saturating_add(1));
    let rows = statement.query_and_then((user, account, end, wanted), |row| {
        let number: i64 = row.get(2)?;
        let key = to_readable(columns::account_key(row, 0), || format!("row {number} of account_names"))?;
        let name = NameCursor { user: row.get(0)?, account: row.get(1)? };
        Ok::<_, SqlFault>((key, name))
    })?;
    let items = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(Listing::first_of(items, limit, |(_, name)| name.to_text()))
}

/// Returns the first id of a range, and the first id after it.
fn bounds(range: UserRange) -> (Vec<u8>, Option<Vec<u8>>) {
    let bytes = |user: UserId| user.as_uuid().into_bytes().to_vec();
    (range.from.map(bytes).unwrap_or_default(), range.to.map(bytes))
}

/// Reports rows whose account has no name. The query jumps from one account number to the next, so each account costs
/// one index lookup regardless of its history.
fn rows_without_name(connection: &Connection) -> Result<Vec<Damaged>, SqlFault> {
    let mut found = Vec::new();
    for (table, column) in [
        ("accounts", "id"),
        ("journal_pages", "account"),
        ("decision_pages", "account"),
        ("transactions", "account"),
    ] {
        let sql = format!(
            "WITH RECURSIVE numbers (n) AS (
                 SELECT min({column}) FROM {table}
                 UNION ALL
                 SELECT (SELECT min({column}) FROM {table} WHERE {column} > n) FROM numbers WHERE n IS NOT NULL)
             SELECT n FROM numbers
             WHERE n IS NOT NULL AND NOT EXISTS (SELECT 1 FROM account_names WHERE id = n) LIMIT {ROWS_WITHOUT_NAME_MAX}"
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let numbers = statement.query_map([], |row| row.get::<_, i64>(0))?;
        for number in numbers {
            let place = format!("rows of {table} with the account number {}", number?);
            let cause = "there is no such number in account_names".to_owned();
            found.push(Damaged { place, cause });
        }
    }
    Ok(found)
}

fn pages(
    connection: &Connection,
    key: AccountKey,
    after: Option<i64>,
    limit: usize,
) -> Result<Listing<StoredPage>, SqlFault> {
    let sql = "SELECT first_sequence, entries, previous_hash, hash, nonce, first_sequence FROM journal_pages
               WHERE account = ?1 AND first_sequence > ?2 ORDER BY first_sequence LIMIT ?3";
    let place = |first: i64| format!("the page from {first}");
    let pages = numbered_pages(connection, (sql, place), key, after, limit)?;
    let stored = |(first_sequence, page)| StoredPage { first_sequence, page };
    Ok(Listing { items: pages.items.into_iter().map(stored).collect(), next: pages.next })
}

fn decision_pages(
    connection: &Connection,
    key: AccountKey,
    after: Option<i64>,
    limit: usize,
) -> Result<Listing<StoredDecisionPage>, SqlFault> {
    let sql = "SELECT first_sequence, content, previous_hash, hash, nonce, version FROM decision_pages
               WHERE account = ?1 AND version > ?2 ORDER BY version LIMIT ?3";
    let place = |version: i64| format!("the decisions of version {version}");
    let pages = numbered_pages(connection, (sql, place), key, after, limit)?;
    let stored = |(version, page)| StoredDecisionPage { version, page };
    Ok(Listing { items: pages.items.into_iter().map(stored).collect(), next: pages.next })
}

/// A page with its first sequence or its version.
type NumberedPage = (Option<u64>, Readable<JournalPage>);

/// Reads pages in the order of their numbers. The query returns the columns of a page, then its number.
fn numbered_pages(
    connection: &Connection,
    (sql, place): (&str, impl Fn(i64) -> String),
    key: AccountKey,
    after: Option<i64>,
    limit: usize,
) -> Result<Listing<NumberedPage>, SqlFault> {
    let Some(account) = names::account(connection, key)? else {
        return Ok(Listing { items: Vec::new(), next: None });
    };
    let mut statement = connection.prepare_cached(sql)?;
    let wanted = columns::limit(limit.saturating_add(1));
    let rows = statement.query_and_then((account, after.unwrap_or(i64::MIN), wanted), |row| {
        let number: i64 = row.get(5)?;
        let page = to_readable(log::unchecked_page(row, key), || place(number))?;
        Ok::<_, SqlFault>((number, page))
    })?;
    let items = rows.collect::<Result<Vec<_>, _>>()?;
    let Listing { items, next } = Listing::first_of(items, limit, |(number, _)| number.to_string());
    let items = items.into_iter().map(|(number, page)| (u64::try_from(number).ok(), page));
    Ok(Listing { items: items.collect(), next })
}

/// Parses the cursor of a listing of pages.
fn page_cursor(cursor: Option<&str>, doing: &'static str) -> Result<Option<i64>, StoreFault> {
    let number = cursor.map(|text| text.parse().map_err(|_| SqlFault::ForeignCursor));
    number.transpose().map_err(|fault| fault.doing(doing))
}

/// Position in a listing of transactions: the keys of the last returned row. The message id may be damaged.
struct RowCursor {
    partner: i64,
    message: Vec<u8>,
}

impl RowCursor {
    fn parse(account: AccountKey, cursor: &str) -> Result<Self, SqlFault> {
        let read = || {
            let position = cursor.strip_prefix(&format!("{account}."))?;
            let (partner, message) = position.split_once('.')?;
            Some(Self { partner: partner.parse().ok()?, message: hex::decode(message).ok()? })
        };
        read().ok_or(SqlFault::ForeignCursor)
    }
}

fn transactions(
    connection: &Connection,
    key: AccountKey,
    after: Option<RowCursor>,
    limit: usize,
) -> Result<Listing<Readable<StoredTransaction>>, SqlFault> {
    let Some(account) = names::account(connection, key)? else {
        return Ok(Listing { items: Vec::new(), next: None });
    };
    let RowCursor { partner, message } =
        after.unwrap_or(RowCursor { partner: i64::MIN, message: Vec::new() });
    let sql = format!(
        "SELECT {COLUMNS}, t.message, p.name, t.partner FROM transactions t LEFT JOIN partners p ON p.id = t.partner
         WHERE t.account = ?1 AND (t.partner, t.message) > (?2, ?3) ORDER BY t.partner, t.message LIMIT ?4"
    );
    let column = |offset: usize| COLUMNS_COUNT.saturating_add(offset);
    let mut statement = connection.prepare_cached(&sql)?;
    let wanted = columns::limit(limit.saturating_add(1));
    let rows = statement.query_and_then((account, partner, message, wanted), |row| {
        let (partner, message): (i64, Vec<u8>) = (row.get(column(2))?, row.get(column(0))?);
        let name: Option<String> = row.get(column(1))?;
        let stored = to_readable(transaction(row, key), || place(name, partner, &message))?;
        Ok::<_, SqlFault>((stored, partner, message))
    })?;
    let items = rows.collect::<Result<Vec<_>, _>>()?;
    let Listing { items, next } = Listing::first_of(items, limit, |(_, partner, message)| {
        format!("{key}.{partner}.{}", hex::encode(message))
    });
    Ok(Listing { items: items.into_iter().map(|(stored, _, _)| stored).collect(), next })
}

/// Describes a damaged transaction for an operator.
fn place(partner_name: Option<String>, partner: i64, message: &[u8]) -> String {
    // Shown as a UUID if it has the size of one.
    let text = Uuid::from_slice(message).map_or_else(|_| hex::encode(message), |id| id.to_string());
    let name = partner_name.unwrap_or_else(|| format!("partner number {partner}"));
    format!("transaction {name}/{text}")
}

/// Reads a transaction from [`COLUMNS`], followed by its message id and the name of its partner.
fn transaction(row: &Row<'_>, account: AccountKey) -> Result<StoredTransaction, SqlFault> {
    let name: Option<String> = row.get(COLUMNS_COUNT.saturating_add(1))?;
    let partner = name.and_then(|name| PartnerId::parse(&name).ok()).ok_or(SqlFault::Column("partner"))?;
    let message = MessageId::from_uuid(columns::uuid(row, COLUMNS_COUNT)?);
    transaction_row::read(row, TransactionKey { account, partner, message })
}

/// Converts the fault of a single row to [`Damaged`]. A fault of the file is returned as an error.
fn to_readable<T>(
    read: Result<T, SqlFault>,
    place: impl FnOnce() -> String,
) -> Result<Readable<T>, SqlFault> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(fault) if fault.is_of_a_row() => {
            let cause = chain(&fault);
            Ok(Err(Damaged { place: place(), cause }))
        }
        Err(fault) => Err(fault),
    }
}
