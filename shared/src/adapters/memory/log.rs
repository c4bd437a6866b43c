//! Lists accepted and posted transactions. A cursor is the last key of a page, so a listing stays correct while rows change.

use std::ops::Bound;

use async_trait::async_trait;
use uuid::Uuid;

use super::{MemoryStore, Tables};
use crate::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, TransactionKey, UserId};
use crate::domain::journal::JournalPage;
use crate::domain::transaction::TransactionStatus;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Listing, StoredTransaction, TransactionLog};

#[async_trait]
impl TransactionLog for MemoryStore {
    async fn pages(
        &self,
        account: AccountKey,
        from: u64,
        entries: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        self.count_query();
        checked(self.step(|tables| pages_from(tables, account, from, entries)))
    }

    async fn decision_pages(
        &self,
        account: AccountKey,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        self.count_query();
        checked(self.step(|Tables { ledger, .. }| {
            let of_account = ledger.decision_pages.range((account, from)..=(account, u64::MAX));
            of_account.take(limit).map(|(_, page)| page.clone()).collect()
        }))
    }

    async fn by_status(
        &self,
        account: AccountKey,
        status: TransactionStatus,
        partner: Option<&PartnerId>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredTransaction>, StoreFault> {
        self.count_query();
        let last = cursor.map(read_cursor).transpose()?;
        let is_other = |key: &TransactionKey| partner.is_some_and(|partner| *partner != key.partner);
        if last.as_ref().is_some_and(|key| key.account != account || is_other(key)) {
            return Err(foreign_cursor());
        }
        let first = TransactionKey {
            partner: partner.cloned().unwrap_or_else(|| first_key(account).partner),
            ..first_key(account)
        };
        let start = last.map_or(Bound::Included(first), Bound::Excluded);
        let of_account = |key: &TransactionKey| key.account == account && !is_other(key);
        Ok(self.step(|tables| list(tables, start, of_account, status, limit)))
    }
}

fn checked(pages: Vec<JournalPage>) -> Result<Vec<JournalPage>, StoreFault> {
    let doing = "reading the journal";
    let flawed = pages.iter().find_map(|page| page.check().err());
    flawed.map_or(Ok(pages), |flaw| Err(StoreFault::Corrupt { doing, source: Box::new(flaw) }))
}

fn pages_from(
    Tables { ledger, .. }: &Tables,
    account: AccountKey,
    from: u64,
    entries: usize,
) -> Vec<JournalPage> {
    let of_account = ledger.pages.range((account, 0)..=(account, u64::MAX)).map(|(_, page)| page);
    let mut missing = entries;
    let mut found = Vec::new();
    for page in of_account.skip_while(|page| page.last_sequence() < from) {
        if missing == 0 {
            break;
        }
        // The first page may also contain entries before `from`, which do not count.
        let asked_for = page.entries.iter().filter(|entry| entry.sequence >= from).count();
        missing = missing.saturating_sub(asked_for);
        found.push(page.clone());
    }
    found
}

/// Returns the rows with this status from `start` on, up to the first key for which `belongs` is false.
fn list(
    Tables { ledger, .. }: &Tables,
    start: Bound<TransactionKey>,
    belongs: impl Fn(&TransactionKey) -> bool,
    status: TransactionStatus,
    limit: usize,
) -> Listing<StoredTransaction> {
    let rows = ledger.transactions.range((start, Bound::Unbounded)).take_while(|(key, _)| belongs(key));
    let found = rows.filter(|(_, row)| row.status() == status).map(|(_, row)| row.stored.clone());
    Listing::first_of(found, limit, |stored| write_cursor(&stored.submission.key))
}

pub(super) fn first_key(account: AccountKey) -> TransactionKey {
    let partner = PartnerId::parse("a").expect("the first possible id is valid");
    TransactionKey { account, partner, message: MessageId::from_uuid(Uuid::nil()) }
}

pub(super) fn write_cursor(key: &TransactionKey) -> String {
    let TransactionKey { account: AccountKey { user, account }, partner, message } = key;
    format!("{}-{}-{partner}-{}", user.simple(), account.simple(), message.simple())
}

pub(super) fn read_cursor(cursor: &str) -> Result<TransactionKey, StoreFault> {
    let mut parts = cursor.split('-');
    let mut next = || parts.next().unwrap_or_default();
    let user = next().parse().map(UserId::from_uuid);
    let account = next().parse().map(AccountId::from_uuid);
    let partner = PartnerId::parse(next());
    let message = next().parse().map(MessageId::from_uuid);
    let (Ok(user), Ok(account), Ok(partner), Ok(message), None) =
        (user, account, partner, message, parts.next())
    else {
        return Err(foreign_cursor());
    };
    Ok(TransactionKey { account: AccountKey { user, account }, partner, message })
}

pub(super) fn foreign_cursor() -> StoreFault {
    StoreFault::ForeignCursor { doing: "continuing a listing" }
}
