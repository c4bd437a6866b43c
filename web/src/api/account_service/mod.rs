//! What the API does with accounts and reads of transactions, without HTTP: opening, changing,
//! finding and listing.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use postonce_shared::backoff::ACCOUNT_WRITE;
use postonce_shared::domain::account::{Account, Versioned};
use postonce_shared::domain::ids::{AccountId, AccountKey, TransactionKey, UserId};
use postonce_shared::domain::journal::Entry;
use postonce_shared::domain::money::{AmountError, OverdraftLimit};
use postonce_shared::domain::transaction::{Transaction, TransactionStatus};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Listing, Opened, StoredTransaction};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::enquire;
use postonce_shared::protocol::recover::Repair;

use crate::access::view::View;
use crate::api::translate::{AccountChange, AccountTerms};
use postonce_shared::ports::fault::chain;

/// Accounts that are read at the same time.
const READS_AT_ONCE: usize = 8;
/// Most pages of the store that one page of an answer passes over.
const STORE_PAGES_MAX: u32 = 10;

/// What became of the wish to open an account.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenOutcome {
    /// It is open now, and this request opened it.
    Created(Account),
    /// It existed with these terms.
    Same(Account),
    /// It exists with other terms.
    Different(Account),
}

/// What became of the wish to change an account.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It is as was wished.
    Done(Account),
    /// There is no such account.
    Unknown,
    /// It cannot be closed while money is left or owed.
    BalanceNotZero(Account),
    /// The limit is not an amount of its currency.
    LimitInvalid(AmountError),
    /// It was changed by others, every time.
    Busy,
}

/// The accounts of the bank and what was posted on them.
pub struct AccountService {
    store: Store,
    world: Arc<dyn World>,
    repair: Repair,
}

impl AccountService {
    /// The books of a store.
    pub const fn new(store: Store, world: Arc<dyn World>, repair: Repair) -> Self {
        Self { store, world, repair }
    }

    /// Opens an account, at most once. The same terms again are the same wish, however often it was
    /// posted on since; terms are compared with those that hold now, as the first ones are not kept:
    /// after a change of its limit, the first request is one with other content.
    ///
    /// # Errors
    /// [`StoreFault`] when it may not have been opened; asking again is safe. So with all methods.
    pub async fn open(&self, key: AccountKey, terms: AccountTerms) -> Result<OpenOutcome, StoreFault> {
        let AccountTerms { currency, overdraft_limit, holder } = terms;
        let wished = Account::open(key, currency, overdraft_limit, holder, self.world.now());
        Ok(match self.store.accounts.open(&wished).await? {
            Opened::Created(Versioned { value, revision: _ }) => OpenOutcome::Created(value),
            Opened::Existing(Versioned { value, revision: _ }) => {
                let same = value.currency == wished.currency
                    && value.overdraft_limit == wished.overdraft_limit
                    && value.holder == wished.holder;
                if same { OpenOutcome::Same(value) } else { OpenOutcome::Different(value) }
            }
        })
    }

    /// Changes an account. The wish is checked against the account as it is at the moment of the
    /// write: a deposit in between makes the write stale, and then it is checked again.
    ///
    /// # Errors
    /// [`StoreFault`]; see [`Self::open`].
    pub async fn change(&self, key: AccountKey, wish: &AccountChange) -> Result<ChangeOutcome, StoreFault> {
        for attempt in 1..=ACCOUNT_WRITE.attempts {
            let Some(found) = self.store.ledger.account(key).await? else {
                return Ok(ChangeOutcome::Unknown);
            };
            let account = found.value;
            let limit = wish.overdraft_limit.as_deref();
            let limit = limit.map(|text| OverdraftLimit::parse(text, account.currency)).transpose();
            let limit = match limit {
                Ok(limit) => limit.unwrap_or(account.overdraft_limit),
                Err(error) => return Ok(ChangeOutcome::LimitInvalid(error)),
            };
            let status = wish.status.unwrap_or(account.status);
            if (limit, status) == (account.overdraft_limit, account.status) {
                return Ok(ChangeOutcome::Done(account));
            }
            let Ok(after) = account.changed(limit, status) else {
                return Ok(ChangeOutcome::BalanceNotZero(account));
            };
            if self.store.accounts.change(&found.revision, &after).await?.is_some() {
                return Ok(ChangeOutcome::Done(after));
            }
            ACCOUNT_WRITE.pause(attempt, &*self.world).await;
        }
        Ok(ChangeOutcome::Busy)
    }

    /// An account.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read; so with all that follow.
    pub async fn account(&self, key: AccountKey) -> Result<Option<Account>, StoreFault> {
        Ok(self.store.ledger.account(key).await?.map(|found| found.value))
    }

    /// Accounts of a user after the given one, by account id.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn accounts(
        &self,
        user: UserId,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Listing<Account>, StoreFault> {
        // One more than asked for, to know whether there is more.
        let mut items = self.store.accounts.list(user, after, limit.saturating_add(1)).await?;
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|account| account.key.account.to_string());
        Ok(Listing { items, next })
    }

    /// Those of the named accounts of a user that exist, after the given one, by account id. Looks at `limit`
    /// names at most, so that there may be fewer before the end.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn named_accounts(
        &self,
        user: UserId,
        names: &BTreeSet<AccountId>,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Listing<Account>, StoreFault> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = names.range((from, Bound::Unbounded)).copied();
        let looked_at: Vec<AccountId> = left.by_ref().take(limit).collect();
        let reads = stream::iter(looked_at.clone()).map(|account| self.account(AccountKey { user, account }));
        let found: Vec<Option<Account>> = reads.buffered(READS_AT_ONCE).try_collect().await?;
        let next = looked_at.last().filter(|_| left.next().is_some()).map(ToString::to_string);
        Ok(Listing { items: found.into_iter().flatten().collect(), next })
    }

    /// One transaction. Work that was forgotten is enqueued again on the way.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn transaction(&self, key: &TransactionKey) -> Result<Option<Transaction>, StoreFault> {
        let Some(stored) = enquire::transaction(&self.store, key).await? else { return Ok(None) };
        if let Err(fault) = self.repair.enqueue_if_due(&stored).await {
            // What was asked is known; the next look tries to repair again.
            tracing::warn!(transaction = %key, "Repair of {key} has to wait: {}", chain(&fault));
        }
        Ok(Some(stored.transaction))
    }

    /// Posted transactions of an account from a sequence on, oldest first; `None` when there is no
    /// such account. There may be fewer than `limit` before the end.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn statement(
        &self,
        (key, view): (AccountKey, View<'_>),
        from: u64,
        limit: usize,
    ) -> Result<Option<Listing<Entry>>, StoreFault> {
        let first = from;
        let page = async |from: Option<String>| {
            let from = from.and_then(|from| from.parse().ok()).unwrap_or(first);
            self.posted(key, from, limit).await
        };
        shown(page, |entry| view.partner().is_none_or(|own| *own == entry.partner)).await
    }

    /// As [`Self::statement`], of all partners.
    async fn posted(
        &self,
        key: AccountKey,
        from: u64,
        limit: usize,
    ) -> Result<Option<Listing<Entry>>, StoreFault> {
        let items = enquire::statement(&self.store, key, from, limit).await?;
        if !items.is_empty() && items.len() < limit {
            return Ok(Some(Listing { items, next: None }));
        }
        // Nothing tells whether the account exists; a full page, whether there is more.
        let Some(account) = self.account(key).await? else { return Ok(None) };
        let last = items.last().map(|entry| entry.sequence).filter(|last| *last < account.sequence);
        let next = last.and_then(|last| last.checked_add(1)).map(|next| next.to_string());
        Ok(Some(Listing { items, next }))
    }

    /// Transactions of an account in one status, by key; `None` when there is no such account. There may be
    /// fewer than `limit` before the end.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn by_status(
        &self,
        (key, view): (AccountKey, View<'_>),
        status: TransactionStatus,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<Listing<StoredTransaction>>, StoreFault> {
        let listing = self.store.log.by_status(key, status, view.partner(), cursor, limit).await?;
        let known = !listing.items.is_empty() || self.account(key).await?.is_some();
        Ok(known.then_some(listing))
    }
}

/// What is shown of the next page. One of which nothing is shown is passed over, though not for ever: then it
/// is empty, and the next one goes on behind it.
async fn shown<T>(
    page: impl AsyncFn(Option<String>) -> Result<Option<Listing<T>>, StoreFault>,
    shows: impl Fn(&T) -> bool,
) -> Result<Option<Listing<T>>, StoreFault> {
    let mut from = None;
    for _ in 0..STORE_PAGES_MAX {
        let Some(Listing { mut items, next }) = page(from).await? else { return Ok(None) };
        items.retain(&shows);
        if !items.is_empty() || next.is_none() {
            return Ok(Some(Listing { items, next }));
        }
        from = next;
    }
    Ok(Some(Listing { items: Vec::new(), next: from }))
}

#[cfg(test)]
mod tests;
