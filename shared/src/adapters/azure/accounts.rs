//! Opening, changing and listing accounts. The table `accounts` lists the accounts of each user, so that a listing need
//! not scan the ledger. Its rows have only keys. The list row is written before the account, so that every account is
//! listed. After a crash, the list may contain an account that does not exist; readers skip it.

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Serialize;

use super::account_row::{self, TermsChangeOutcome};
use super::attempt::{RequestFault, Retries, UnexpectedResponse};
use super::batch::Batch;
use super::keys::Key;
use super::ledger::AzureLedger;
use super::page_row;
use super::rows::corrupt;
use super::table::{Properties, ROWS_MAX, Scanned, Table};
use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::AccountDecision;
use crate::domain::ids::{AccountId, AccountKey, Nonce, UserId};
use crate::domain::journal::JournalPage;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Accounts, Opened};
use crate::ports::world::WorldExt as _;

const CONCURRENT_READS_MAX: usize = 8;

pub(super) struct AzureAccounts {
    pub(super) ledger: AzureLedger,
    pub(super) names: Table,
}

/// A row of the list of accounts. It has no properties except its key.
#[derive(Serialize)]
pub(super) struct NameRow {}

/// Returns the key of an account's row in the list of its user.
pub(super) fn name_key(key: AccountKey) -> Key {
    Key::new(key.user.simple(), key.account.simple())
}

impl AzureAccounts {
    async fn write_name(&self, key: AccountKey, retries: &mut Retries) -> Result<(), RequestFault> {
        let name = name_key(key);
        match retries.retry_write(|| self.names.insert(&name, &NameRow {})).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.has_status(409) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Inserts the row of an account and the page of its opening.
    async fn insert(
        &self,
        key: &Key,
        row: &Properties,
        page: &JournalPage,
    ) -> Result<Revision, RequestFault> {
        let mut batch = Batch::new(key.partition());
        batch.insert(key, row);
        batch.insert(&Key::page(page), &page_row::write(page));
        first(self.ledger.table.send_inserts(&batch).await?)
    }

    /// Changes the row of an account and inserts the page of the change.
    async fn merge(
        &self,
        key: &Key,
        row: &Properties,
        guard: &Revision,
        page: &JournalPage,
    ) -> Result<Revision, RequestFault> {
        let mut batch = Batch::new(key.partition());
        batch.merge(key, row, guard);
        batch.insert(&Key::page(page), &page_row::write(page));
        first(self.ledger.table.send(&batch).await?)
    }

    /// Reads the account back, and determines whether this call inserted it.
    async fn read_back(
        &self,
        key: AccountKey,
        nonce: Nonce,
        retries: &mut Retries,
        doing: &'static str,
    ) -> Result<Option<Opened>, StoreFault> {
        let Some(found) = self.ledger.read(&Key::account(key), retries, doing).await? else {
            return Ok(None);
        };
        let account = account_row::read(&found, doing)?;
        let ours = account_row::was_opened_by(&found, nonce, doing)?;
        Ok(Some(if ours { Opened::Created(account) } else { Opened::Existing(account) }))
    }

    /// Returns whether a change without a response was written. Called after its guard failed.
    async fn read_change_back(
        &self,
        guard: &Revision,
        after: &Account,
        nonce: Nonce,
        retries: &mut Retries,
    ) -> Result<Option<Revision>, StoreFault> {
        let doing = "changing an account";
        let Some(found) = self.ledger.read(&Key::account(after.key), retries, doing).await? else {
            return Ok(None);
        };
        match account_row::change_outcome(&found, after.version, nonce, doing)? {
            TermsChangeOutcome::NotDone => Ok(None),
            TermsChangeOutcome::Done if account_row::read(&found, doing)?.value.version == after.version => {
                Ok(Some(found.revision))
            }
            // Later commits changed the row. The revision that this change produced is unknown and no longer current.
            // The revision of the guard is returned instead, which is not current either.
            TermsChangeOutcome::Done => Ok(Some(guard.clone())),
            TermsChangeOutcome::Overwritten => {
                let source =
                    Box::new(UnexpectedResponse("a newer change over one without a response".to_owned()));
                Err(StoreFault::Unavailable { doing, source })
            }
        }
    }

    /// Returns the keys of the user's accounts after `after` from one scan, and whether there are more.
    async fn names_after(
        &self,
        user: UserId,
        after: Option<AccountId>,
        limit: usize,
        doing: &'static str,
    ) -> Result<(Vec<AccountKey>, bool), StoreFault> {
        let partition = user.simple();
        let filter = match after {
            Some(after) => format!("PartitionKey eq '{partition}' and RowKey gt '{}'", after.simple()),
            None => format!("PartitionKey eq '{partition}'"),
        };
        let top = u32::try_from(limit).unwrap_or(ROWS_MAX);
        let mut continuation = None;
        loop {
            let mut retries = Retries::new(&self.ledger.world);
            let scanned = retries.retry_read(|| self.names.scan(&filter, top, continuation.as_ref())).await;
            let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
            // A scan may return no rows although more follow.
            if rows.is_empty() && next.is_some() {
                continuation = next;
                continue;
            }
            let ids = rows.iter().map(|found| {
                let account: AccountId =
                    found.key.row().parse().map_err(|error| corrupt(found, doing, error))?;
                Ok(AccountKey { user, account })
            });
            return Ok((ids.collect::<Result<_, StoreFault>>()?, next.is_some()));
        }
    }
}

/// Returns the revision of the first row of a batch. If it is missing, the outcome must be read back.
fn first(revisions: Vec<Option<Revision>>) -> Result<Revision, RequestFault> {
    let first = revisions.into_iter().next().flatten();
    first.ok_or_else(|| {
        RequestFault::Unclear(Box::new(UnexpectedResponse("a batch without an ETag".to_owned())))
    })
}

#[async_trait]
impl Accounts for AzureAccounts {
    async fn open(&self, opening: &AccountDecision) -> Result<Opened, StoreFault> {
        let AccountDecision { after: account, page } = opening;
        let doing = "opening an account";
        let mut retries = Retries::new(&self.ledger.world);
        let named = self.write_name(account.key, &mut retries).await;
        named.map_err(|failure| retries.fault(failure, doing))?;
        let nonce = self.ledger.world.nonce();
        let (key, row) = (Key::account(account.key), account_row::opening(account, nonce));
        loop {
            let failure = match self.insert(&key, &row, page).await {
                Ok(revision) => return Ok(Opened::Created(Versioned { value: account.clone(), revision })),
                Err(failure) => failure,
            };
            retries.record_failure(&failure);
            // If an earlier response was lost, this call itself may have inserted the row.
            if failure.is_unclear() || failure.has_status(409) {
                if let Some(opened) = self.read_back(account.key, nonce, &mut retries, doing).await? {
                    return Ok(opened);
                }
            } else if matches!(failure, RequestFault::Answered(_)) {
                return Err(retries.fault(failure, doing));
            }
            if !retries.wait_for_retry().await {
                return Err(retries.fault(failure, doing));
            }
        }
    }

    async fn change(
        &self,
        guard: &Revision,
        change: &AccountDecision,
    ) -> Result<Option<Revision>, StoreFault> {
        let AccountDecision { after, page } = change;
        let doing = "changing an account";
        let mut retries = Retries::new(&self.ledger.world);
        let nonce = self.ledger.world.nonce();
        let (key, row) = (Key::account(after.key), account_row::change(change, nonce));
        loop {
            let failure = match self.merge(&key, &row, guard, page).await {
                Ok(revision) => return Ok(Some(revision)),
                Err(failure) => failure,
            };
            // 409: a page of this version exists only if the account was changed.
            if [404, 409, 412].into_iter().any(|status| failure.has_status(status)) {
                if !retries.is_unclear() {
                    return Ok(None);
                }
                return self.read_change_back(guard, after, nonce, &mut retries).await;
            }
            retries.record_failure(&failure);
            if matches!(failure, RequestFault::Answered(_)) || !retries.wait_for_retry().await {
                return Err(retries.fault(failure, doing));
            }
        }
    }

    async fn list(
        &self,
        user: UserId,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Vec<Account>, StoreFault> {
        let doing = "listing accounts";
        let (mut accounts, mut after) = (Vec::new(), after);
        // Entries without an account make a page short, so further pages are read.
        loop {
            let wanted = limit.saturating_sub(accounts.len());
            if wanted == 0 {
                return Ok(accounts);
            }
            let (keys, more) = self.names_after(user, after, wanted, doing).await?;
            let reads: Vec<_> = keys
                .iter()
                .map(|key| async move {
                    let mut retries = Retries::new(&self.ledger.world);
                    self.ledger.read_account(*key, &mut retries, doing).await
                })
                .collect();
            let found: Vec<Option<Versioned<Account>>> =
                futures::stream::iter(reads).buffered(CONCURRENT_READS_MAX).try_collect().await?;
            accounts.extend(found.into_iter().flatten().map(|found| found.value));
            after = keys.last().map(|key| key.account).or(after);
            if !more {
                return Ok(accounts);
            }
        }
    }
}
