//! Reads the rows of many accounts in one job, account by account in the order of their names.

use rusqlite::Connection;

use super::{
    NameCursor, RowCursor, decision_pages, names_after, pages, rows_without_name, to_readable, transactions,
};
use crate::adapters::sqlite::accounts;
use crate::adapters::sqlite::fault::SqlFault;
use crate::domain::ids::AccountKey;
use crate::ports::archive::{Readable, RowContent, StoredRow, UserRange};
use crate::ports::ledger::Listing;

/// Maximum number of journal pages in one listing. A page has up to 98 entries.
const PAGES_MAX: usize = 100;

/// The position of the next row, within an account or between accounts.
pub(super) enum RowsCursor {
    /// The decision pages of the account after this version.
    DecisionPages(AccountKey, Option<i64>),
    /// The journal pages of the account after the page with this first sequence.
    Pages(AccountKey, Option<i64>),
    /// The transactions of the account after this row.
    Transactions(AccountKey, Option<RowCursor>),
    /// The accounts after this name.
    After(NameCursor),
}

impl RowsCursor {
    pub(super) fn parse(cursor: &str) -> Result<Self, SqlFault> {
        let read = || {
            let (stage, rest) = cursor.split_once('.')?;
            if stage == "a" {
                return NameCursor::parse(rest).ok().map(Self::After);
            }
            let (key, position) = rest.split_once('.')?;
            let (user, account) = key.split_once('/')?;
            let key = AccountKey { user: user.parse().ok()?, account: account.parse().ok()? };
            match (stage, position) {
                ("d", "") => Some(Self::DecisionPages(key, None)),
                ("d", version) => version.parse().ok().map(|it| Self::DecisionPages(key, Some(it))),
                ("p", "") => Some(Self::Pages(key, None)),
                ("p", first) => first.parse().ok().map(|first| Self::Pages(key, Some(first))),
                ("t", "") => Some(Self::Transactions(key, None)),
                ("t", row) => RowCursor::parse(key, row).ok().map(|row| Self::Transactions(key, Some(row))),
                _ => None,
            }
        };
        read().ok_or(SqlFault::ForeignCursor)
    }

    fn write(stage: char, key: AccountKey, position: Option<&str>) -> String {
        format!("{stage}.{key}.{}", position.unwrap_or_default())
    }

    fn after(name: &NameCursor) -> String {
        format!("a.{}", name.to_text())
    }
}

/// The rows that a listing has read. Methods return the cursor of the next row if the listing is full within an account.
struct Rows<'a> {
    connection: &'a Connection,
    limit: usize,
    items: Vec<Readable<StoredRow>>,
}

impl Rows<'_> {
    fn missing(&self) -> usize {
        self.limit.saturating_sub(self.items.len())
    }

    fn add(&mut self, account: AccountKey, content: RowContent) {
        self.items.push(Ok(StoredRow { account, content }));
    }

    fn account(&mut self, key: AccountKey) -> Result<Option<String>, SqlFault> {
        let read = accounts::find(self.connection, key).map(|found| found.map(|found| found.value));
        let account = to_readable(read, || format!("account {key}"))?;
        if let Some(account) = account.transpose() {
            self.add(key, RowContent::Account(Box::new(account)));
        }
        self.decision_pages(key, None)
    }

    fn decision_pages(&mut self, key: AccountKey, after: Option<i64>) -> Result<Option<String>, SqlFault> {
        if self.missing() == 0 {
            let position = after.map(|version| version.to_string());
            return Ok(Some(RowsCursor::write('d', key, position.as_deref())));
        }
        let limit = self.missing().min(PAGES_MAX);
        let Listing { items, next } = decision_pages(self.connection, key, after, limit)?;
        items.into_iter().for_each(|page| self.add(key, RowContent::DecisionPage(page)));
        match next {
            Some(version) => Ok(Some(RowsCursor::write('d', key, Some(&version)))),
            None => self.pages_and_transactions(key, None),
        }
    }

    fn pages_and_transactions(
        &mut self,
        key: AccountKey,
        after: Option<i64>,
    ) -> Result<Option<String>, SqlFault> {
        if self.missing() == 0 {
            let position = after.map(|first| first.to_string());
            return Ok(Some(RowsCursor::write('p', key, position.as_deref())));
        }
        let Listing { items, next } = pages(self.connection, key, after, self.missing().min(PAGES_MAX))?;
        items.into_iter().for_each(|page| self.add(key, RowContent::Page(page)));
        match next {
            Some(first) => Ok(Some(RowsCursor::write('p', key, Some(&first)))),
            None => self.transactions(key, None),
        }
    }

    fn transactions(
        &mut self,
        key: AccountKey,
        after: Option<RowCursor>,
    ) -> Result<Option<String>, SqlFault> {
        if self.missing() == 0 {
            return Ok(Some(RowsCursor::write('t', key, None)));
        }
        let Listing { items, next } = transactions(self.connection, key, after, self.missing())?;
        items.into_iter().for_each(|stored| self.add(key, RowContent::Transaction(Box::new(stored))));
        Ok(next.map(|row| RowsCursor::write('t', key, Some(&row))))
    }

    /// Reads the rows of all accounts after the name `after`.
    fn accounts(
        &mut self,
        range: UserRange,
        mut after: Option<NameCursor>,
    ) -> Result<Option<String>, SqlFault> {
        loop {
            // Each account in use has at least one row.
            let names = names_after(self.connection, range, after, "true", self.missing())?;
            for (key, name) in names.items {
                let next = match key {
                    Ok(key) => self.account(key)?,
                    Err(damaged) => {
                        self.items.push(Err(damaged));
                        None
                    }
                };
                if next.is_some() {
                    return Ok(next);
                }
                if self.missing() == 0 {
                    return Ok(Some(RowsCursor::after(&name)));
                }
            }
            let Some(last) = names.next else { break };
            after = Some(NameCursor::parse(&last)?);
        }
        if range.to.is_none() {
            self.items.extend(rows_without_name(self.connection)?.into_iter().map(Err));
        }
        Ok(None)
    }
}

pub(super) fn rows(
    connection: &Connection,
    range: UserRange,
    from: Option<RowsCursor>,
    limit: usize,
) -> Result<Listing<Readable<StoredRow>>, SqlFault> {
    let mut rows = Rows { connection, limit: limit.max(1), items: Vec::new() };
    let (after, full) = match from {
        None => (None, None),
        Some(RowsCursor::After(name)) => (Some(name), None),
        Some(RowsCursor::DecisionPages(key, version)) => {
            (Some(NameCursor::of(key)), rows.decision_pages(key, version)?)
        }
        Some(RowsCursor::Pages(key, first)) => {
            (Some(NameCursor::of(key)), rows.pages_and_transactions(key, first)?)
        }
        Some(RowsCursor::Transactions(key, row)) => (Some(NameCursor::of(key)), rows.transactions(key, row)?),
    };
    let next = match full {
        Some(next) => Some(next),
        None if rows.missing() == 0 => after.as_ref().map(RowsCursor::after),
        None => rows.accounts(range, after)?,
    };
    Ok(Listing { items: rows.items, next })
}
