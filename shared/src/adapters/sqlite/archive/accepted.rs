//! Lists accepted transactions through a partial index, without scanning the history of any account.

use rusqlite::Connection;

use super::{bounds, place, to_readable, transaction};
use crate::adapters::sqlite::columns;
use crate::adapters::sqlite::fault::SqlFault;
use crate::adapters::sqlite::transaction_row::{COLUMNS, COLUMNS_COUNT};
use crate::ports::archive::{Readable, UserRange};
use crate::ports::ledger::{Listing, StoredTransaction};

/// Position in the listing: the keys of the last returned row. The message id may be damaged.
pub(super) struct AcceptedCursor {
    account: i64,
    partner: i64,
    message: Vec<u8>,
}

impl AcceptedCursor {
    pub(super) fn parse(cursor: &str) -> Result<Self, SqlFault> {
        let read = || {
            let mut parts = cursor.split('.');
            let cursor = Self {
                account: parts.next()?.parse().ok()?,
                partner: parts.next()?.parse().ok()?,
                message: hex::decode(parts.next()?).ok()?,
            };
            parts.next().is_none().then_some(cursor)
        };
        read().ok_or(SqlFault::ForeignCursor)
    }
}

fn accepted_sql() -> String {
    format!(
        "SELECT {COLUMNS}, t.message, p.name, n.user_id, n.account_id, t.account, t.partner
         FROM transactions t INDEXED BY transactions_accepted
             CROSS JOIN account_names n ON n.id = t.account
             LEFT JOIN partners p ON p.id = t.partner
         WHERE t.status = 'accepted' AND (t.account, t.partner, t.message) > (?1, ?2, ?3)
             AND n.user_id >= ?4 AND (?5 IS NULL OR n.user_id < ?5)
         ORDER BY t.account, t.partner, t.message LIMIT ?6"
    )
}

pub(super) fn accepted(
    connection: &Connection,
    range: UserRange,
    after: Option<AcceptedCursor>,
    limit: usize,
) -> Result<Listing<Readable<StoredTransaction>>, SqlFault> {
    let AcceptedCursor { account, partner, message } =
        after.unwrap_or(AcceptedCursor { account: i64::MIN, partner: i64::MIN, message: Vec::new() });
    let (start, end) = bounds(range);
    let sql = accepted_sql();
    let column = |offset: usize| COLUMNS_COUNT.saturating_add(offset);
    let mut statement = connection.prepare_cached(&sql)?;
    let wanted = columns::limit(limit.saturating_add(1));
    let rows = statement.query_and_then((account, partner, message, start, end, wanted), |row| {
        let (account, partner): (i64, i64) = (row.get(column(4))?, row.get(column(5))?);
        let (message, name): (Vec<u8>, Option<String>) = (row.get(column(0))?, row.get(column(1))?);
        let read = columns::account_key(row, column(2)).and_then(|key| transaction(row, key));
        let stored = to_readable(read, || {
            format!("{} of the account number {account}", place(name, partner, &message))
        })?;
        Ok::<_, SqlFault>((stored, (account, partner, message)))
    })?;
    let items = rows.collect::<Result<Vec<_>, _>>()?;
    let Listing { items, next } = Listing::first_of(items, limit, |(_, (account, partner, message))| {
        format!("{account}.{partner}.{}", hex::encode(message))
    });
    Ok(Listing { items: items.into_iter().map(|(item, _)| item).collect(), next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::sqlite::log::tests::plan;

    #[test]
    fn recovery_reads_accepted_transactions_and_no_history() {
        let plan = plan(&accepted_sql());
        assert!(plan.starts_with("SEARCH t USING INDEX transactions_accepted"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}
