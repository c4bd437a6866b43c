//! Opening, changing and listing accounts.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row};

use super::columns;
use super::commit::insert_decision_page;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::names::{self, number_of_account};
use super::writer::Verdict;
use crate::adapters::page_body;
use crate::domain::account::{Account, AccountStatus, Holder, Revision, Versioned};
use crate::domain::decision::AccountDecision;
use crate::domain::ids::{AccountId, AccountKey, UserId};
use crate::domain::money::{Balance, OverdraftLimit};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Accounts, Opened};

pub(super) struct SqliteAccounts {
    database: Arc<Database>,
}

impl SqliteAccounts {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl Accounts for SqliteAccounts {
    async fn open(&self, opening: &AccountDecision) -> Result<Opened, StoreFault> {
        let opening = opening.clone();
        let job = move |connection: &_| open(connection, opening);
        self.database.write(meter::TABLE_BATCH, "opening an account", job).await
    }

    async fn change(
        &self,
        guard: &Revision,
        decision: &AccountDecision,
    ) -> Result<Option<Revision>, StoreFault> {
        let Some(guard) = columns::version(guard) else { return Ok(None) };
        let decision = decision.clone();
        let job = move |connection: &_| change(connection, guard, &decision);
        self.database.write(meter::TABLE_MERGE, "changing an account", job).await
    }

    async fn list(
        &self,
        user: UserId,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Vec<Account>, StoreFault> {
        let job = move |connection: &_| list(connection, user, after, limit);
        self.database.read(meter::TABLE_QUERY, "listing the accounts of a user", job).await
    }
}

/// The columns for [`read`], which follow the user id and the account id. The alias of the table is `a`.
macro_rules! account_columns {
    () => {
        "a.currency, a.status, a.overdraft_limit, a.given_name, a.family_name, a.opened_at, a.balance, a.version,
         a.sequence, a.head"
    };
}

pub(super) fn find(connection: &Connection, key: AccountKey) -> Result<Option<Versioned<Account>>, SqlFault> {
    // A join would make SQLite prepare the statement again for every new pair of bound ids.
    let sql = concat!(
        "SELECT ?1, ?2, ",
        account_columns!(),
        " FROM accounts a WHERE a.id = ",
        number_of_account!()
    );
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(names::parameters(key)?)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let account = read(row)?;
    let revision = columns::revision(columns::signed(account.version)?);
    Ok(Some(Versioned { value: account, revision }))
}

fn read(row: &Row<'_>) -> Result<Account, SqlFault> {
    let currency = columns::currency(row, 2)?;
    let holder = Holder::of_names(row.get(5)?, row.get(6)?).ok_or(SqlFault::Column("given_name"))?;
    Ok(Account {
        key: columns::account_key(row, 0)?,
        currency,
        status: columns::code(row, 3, "status", AccountStatus::from_code)?,
        overdraft_limit: OverdraftLimit::try_new(row.get(4)?, currency)
            .map_err(|_| SqlFault::Column("overdraft_limit"))?,
        holder,
        opened_at: columns::timestamp(row, 7)?,
        balance: Balance::try_new(row.get(8)?, currency).ok_or(SqlFault::Column("balance"))?,
        version: columns::unsigned(row.get(9)?, "version")?,
        sequence: columns::unsigned(row.get(10)?, "sequence")?,
        head: columns::page_hash(row, 11)?,
    })
}

fn open(connection: &Connection, opening: AccountDecision) -> Result<Verdict<Opened>, SqlFault> {
    let AccountDecision { after: account, page } = opening;
    if let Some(existing) = find(connection, account.key)? {
        return Ok(Verdict::Undo(Opened::Existing(existing)));
    }
    let number = names::account_or_new(connection, account.key)?;
    let sql =
        "INSERT INTO accounts (id, currency, status, overdraft_limit, given_name, family_name, opened_at,
                   balance, version, sequence, head)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let version = columns::signed(account.version)?;
    connection.prepare_cached(sql)?.execute((
        number,
        account.currency.code(),
        account.status.code(),
        account.overdraft_limit.minor_units(),
        account.holder.as_ref().map(|holder| holder.given_name.as_str()),
        account.holder.as_ref().map(|holder| holder.family_name.as_str()),
        account.opened_at.unix_ms(),
        account.balance.minor_units(),
        version,
        columns::signed(account.sequence)?,
        account.head.as_bytes(),
    ))?;
    insert_decision_page(connection, number, &page, &page_body::encode(&page))?;
    let revision = columns::revision(version);
    Ok(Verdict::Keep(Opened::Created(Versioned { value: account, revision })))
}

fn change(
    connection: &Connection,
    guard: i64,
    AccountDecision { after, page }: &AccountDecision,
) -> Result<Verdict<Option<Revision>>, SqlFault> {
    let version = columns::signed(after.version)?;
    let Some(number) = names::account(connection, after.key)? else { return Ok(Verdict::Undo(None)) };
    let sql = "UPDATE accounts SET status = ?1, overdraft_limit = ?2, version = ?3, head = ?4,
                   given_name = coalesce(?8, given_name), family_name = coalesce(?9, family_name)
               WHERE id = ?5 AND version = ?6 AND head = ?7";
    let holder = after.holder.as_ref();
    let changed = connection.prepare_cached(sql)?.execute((
        after.status.code(),
        after.overdraft_limit.minor_units(),
        version,
        page.hash.as_bytes(),
        number,
        guard,
        page.previous_hash.as_bytes(),
        holder.map(|holder| &holder.given_name),
        holder.map(|holder| &holder.family_name),
    ))?;
    if changed == 1 && version <= guard {
        return Err(SqlFault::Refused("a change must increase the version of its account".to_owned()));
    }
    if changed != 1 {
        return Ok(Verdict::Undo(None));
    }
    insert_decision_page(connection, number, page, &page_body::encode(page))?;
    Ok(Verdict::Keep(Some(columns::revision(version))))
}

fn list(
    connection: &Connection,
    user: UserId,
    after: Option<AccountId>,
    limit: usize,
) -> Result<Vec<Account>, SqlFault> {
    // An empty blob sorts before every account id.
    let after = after.map_or_else(Vec::new, |account| account.as_uuid().into_bytes().to_vec());
    let sql = concat!(
        "SELECT n.user_id, n.account_id, ",
        account_columns!(),
        " FROM account_names n CROSS JOIN accounts a ON a.id = n.id
         WHERE n.user_id = ?1 AND n.account_id > ?2 ORDER BY n.account_id LIMIT ?3"
    );
    connection
        .prepare_cached(sql)?
        .query_and_then((user.as_uuid().into_bytes(), after, columns::limit(limit)), read)?
        .collect()
}
