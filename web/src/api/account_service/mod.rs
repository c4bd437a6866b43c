//! Operations on accounts, and reads of accounts and transactions, independent of HTTP.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use postonce_shared::access::partner_cache::Standing;
use postonce_shared::backoff::ACCOUNT_WRITE;
use postonce_shared::bank::Bank;
use postonce_shared::domain::account::{Account, Versioned};
use postonce_shared::domain::decision::{NewTerms, TermsContext, change_terms, open};
use postonce_shared::domain::ids::{AccountId, AccountKey, TransactionKey, UserId};
use postonce_shared::domain::journal::Entry;
use postonce_shared::domain::money::{AmountError, OverdraftLimit};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::ledger::{Listing, Opened, StoredTransaction};
use postonce_shared::ports::world::{World, WorldExt as _};
use postonce_shared::posting::waiting::OpenWork;
use postonce_shared::protocol::enquire;
use postonce_shared::protocol::recover::Repair;
use postonce_shared::protocol::rejections::rejections;

use crate::access::credit::{self, CreditError};
use crate::access::keyring::Grant;
use crate::access::view::View;
use crate::api::statement_query::{Order, StatementQuery};
use crate::api::translate::{AccountChange, AccountTerms};

/// Number of accounts that are read concurrently.
const READS_AT_ONCE: usize = 8;
/// Maximum number of store pages to read for one page of a response.
const STORE_PAGES_MAX: u32 = 10;

/// Result of opening an account.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenOutcome {
    /// This request opened the account.
    Created(Account),
    /// The account exists with the same terms.
    Same(Account),
    /// The account exists with different terms.
    Different(Account),
    /// The account does not exist, and the key may not grant it this overdraft limit.
    CreditRefused(CreditError),
}

/// Result of changing an account.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The account has the requested terms.
    Done(Account),
    /// The account does not exist.
    Unknown,
    /// The account does not have the expected version.
    AnotherVersion(Account),
    /// The key may not grant the account this overdraft limit.
    CreditRefused(CreditError),
    /// The account cannot be closed, because its balance is not zero.
    BalanceNotZero(Account),
    /// The overdraft limit is not a valid amount in the currency of the account.
    LimitInvalid(AmountError),
    /// Every attempt conflicted with a concurrent change.
    Busy,
}

/// Accounts of the bank and their transactions.
#[derive(Clone)]
pub struct AccountService {
    store: Store,
    world: Arc<dyn World>,
    repair: Repair,
    open_work: Arc<OpenWork>,
    standing: Standing,
}

impl AccountService {
    /// Creates the service for a bank.
    pub fn new(bank: &Bank) -> Self {
        Self {
            store: bank.store.clone(),
            world: Arc::clone(&bank.world),
            repair: bank.repair.clone(),
            open_work: Arc::clone(&bank.open_work),
            standing: Standing::ALWAYS,
        }
    }

    /// Returns the service for a caller, which writes nothing once the rights of the caller have changed.
    pub fn acting_on(&self, standing: &Standing) -> Self {
        Self { standing: standing.clone(), ..self.clone() }
    }

    /// Opens an account for a key, at most once. A repeated request with the same terms succeeds, even after postings.
    /// The terms are compared with the current ones, because the original ones are not stored: after a change
    /// of the limit, a repetition of the first request counts as different.
    ///
    /// # Errors
    /// [`StoreFault`]: the outcome is unknown. It is safe to retry. The other methods return the same error.
    pub async fn open(
        &self,
        key: AccountKey,
        terms: AccountTerms,
        grant: &Grant,
    ) -> Result<OpenOutcome, StoreFault> {
        let AccountTerms { currency, overdraft_limit, holder } = terms;
        let requested = Account::open(key, currency, overdraft_limit, holder, self.world.now());
        if let Err(refusal) = credit::check(grant, overdraft_limit, OverdraftLimit::none(currency)) {
            // A repeated request grants no new limit to an existing account.
            let existing = self.account(key).await?;
            return Ok(existing.map_or(OpenOutcome::CreditRefused(refusal), |it| compared(it, &requested)));
        }
        let opening = open(requested.clone(), &self.terms_context());
        self.standing.check("opening an account")?;
        Ok(match self.store.accounts.open(&opening).await? {
            Opened::Created(Versioned { value, revision: _ }) => OpenOutcome::Created(value),
            Opened::Existing(Versioned { value, revision: _ }) => compared(value, &requested),
        })
    }

    /// Changes an account with the rights of a key. The write is conditional: after a concurrent posting, the change is
    /// validated again against the current account. `is_expected` returns whether the account may be changed at a version.
    ///
    /// # Errors
    /// [`StoreFault`]; see [`Self::open`].
    pub async fn change(
        &self,
        key: AccountKey,
        requested: &AccountChange,
        grant: &Grant,
        is_expected: impl Fn(u64) -> bool,
    ) -> Result<ChangeOutcome, StoreFault> {
        for attempt in 1..=ACCOUNT_WRITE.attempts {
            let Some(found) = self.store.ledger.account(key).await? else {
                return Ok(ChangeOutcome::Unknown);
            };
            let account = found.value;
            if !is_expected(account.version) {
                return Ok(ChangeOutcome::AnotherVersion(account));
            }
            let limit = requested.overdraft_limit.as_deref();
            let limit = limit.map(|text| OverdraftLimit::parse(text, account.currency)).transpose();
            let limit = match limit {
                Ok(limit) => limit.unwrap_or(account.overdraft_limit),
                Err(error) => return Ok(ChangeOutcome::LimitInvalid(error)),
            };
            if let Err(refusal) = credit::check(grant, limit, account.overdraft_limit) {
                return Ok(ChangeOutcome::CreditRefused(refusal));
            }
            let status = requested.status.unwrap_or(account.status);
            let terms = NewTerms { overdraft_limit: limit, status, holder: requested.holder.clone() };
            if terms.are_those_of(&account) {
                return Ok(ChangeOutcome::Done(account));
            }
            let Ok(change) = change_terms(&account, terms, &self.terms_context()) else {
                return Ok(ChangeOutcome::BalanceNotZero(account));
            };
            self.standing.check("changing an account")?;
            if self.store.accounts.change(&found.revision, &change).await?.is_some() {
                return Ok(ChangeOutcome::Done(change.after));
            }
            ACCOUNT_WRITE.pause(attempt, &*self.world).await;
        }
        Ok(ChangeOutcome::Busy)
    }

    fn terms_context(&self) -> TermsContext {
        TermsContext { nonce: self.world.nonce(), now: self.world.now() }
    }

    /// Reads an account.
    ///
    /// # Errors
    /// [`StoreFault`] when the store cannot be read. The following methods return the same error.
    pub async fn account(&self, key: AccountKey) -> Result<Option<Account>, StoreFault> {
        Ok(self.store.ledger.account(key).await?.map(|found| found.value))
    }

    /// Lists the accounts of a user with ids above `after`, ordered by id.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn accounts(
        &self,
        user: UserId,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Listing<Account>, StoreFault> {
        // One more than requested, to detect another page.
        let mut items = self.store.accounts.list(user, after, limit.saturating_add(1)).await?;
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|account| account.key.account.to_string());
        Ok(Listing { items, next })
    }

    /// Lists the existing accounts among `names`, with ids above `after`, ordered by id. Reads at most `limit` accounts, so a
    /// page can contain fewer before the end.
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
        let selected: Vec<AccountId> = left.by_ref().take(limit).collect();
        let reads = stream::iter(selected.clone()).map(|account| self.account(AccountKey { user, account }));
        let found: Vec<Option<Account>> = reads.buffered(READS_AT_ONCE).try_collect().await?;
        let next = selected.last().filter(|_| left.next().is_some()).map(ToString::to_string);
        Ok(Listing { items: found.into_iter().flatten().collect(), next })
    }

    /// Reads a transaction. If its queue message was lost, enqueues the transaction again.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        let Some(stored) = enquire::transaction(&self.store, key).await? else { return Ok(None) };
        if stored.outcome.is_some() {
            self.open_work.end(key);
        }
        if let Err(fault) = self.repair.enqueue_if_due(&stored).await {
            // The result is known, and the next read tries the repair again.
            tracing::warn!(transaction = %key, "The repair of {key} is postponed: {}", chain(&fault));
        }
        Ok(Some(stored))
    }

    /// Lists the posted transactions of an account in the order of the query. Returns `None` when the account does not exist. A
    /// page can contain fewer than `limit` items before the end. `position` is the sequence number of the first entry to read,
    /// or with the newest first, the number after it; `None` starts with the first page.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn statement(
        &self,
        (key, view): (AccountKey, View<'_>),
        StatementQuery { order, filter, .. }: &StatementQuery,
        position: Option<u64>,
        limit: usize,
    ) -> Result<Option<Listing<Entry>>, StoreFault> {
        let page = |next: Option<String>| {
            let position = next.and_then(|next| next.parse().ok()).or(position);
            match order {
                Order::OldestFirst | Order::ByDecision => {
                    self.posted(key, position.unwrap_or(1), limit).boxed()
                }
                Order::NewestFirst => self.posted_before(key, position, limit).boxed(),
            }
        };
        let is_visible = |entry: &Entry| view.partner().is_none_or(|own| *own == entry.partner);
        next_visible(page, |entry| is_visible(entry) && filter.accepts_entry(entry)).await
    }

    /// Lists posted transactions of all partners before a sequence number, newest first. `None` starts with the newest.
    async fn posted_before(
        &self,
        key: AccountKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Option<Listing<Entry>>, StoreFault> {
        let Some(account) = self.account(key).await? else { return Ok(None) };
        let before = before.unwrap_or(u64::MAX).min(account.sequence.saturating_add(1));
        let count = limit.min(usize::try_from(before.saturating_sub(1)).unwrap_or(limit));
        let first = before.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
        let mut items = match count {
            0 => Vec::new(),
            count => enquire::statement(&self.store, key, first, count).await?,
        };
        items.reverse();
        Ok(Some(Listing { items, next: (first > 1).then(|| first.to_string()) }))
    }

    /// Lists posted transactions of all partners from a sequence number on, oldest first.
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
        // An empty page can mean an unknown account, and a full page need not be the last one.
        let Some(account) = self.account(key).await? else { return Ok(None) };
        let last = items.last().map(|entry| entry.sequence).filter(|last| *last < account.sequence);
        let next = last.and_then(|last| last.checked_add(1)).map(|next| next.to_string());
        Ok(Some(Listing { items, next }))
    }

    /// Lists the transactions of an account in one status, ordered by key, or rejected ones in the order of their decisions.
    /// Returns `None` when the account does not exist. A page can contain fewer than `limit` items before the end.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn by_status(
        &self,
        (key, view): (AccountKey, View<'_>),
        StatementQuery { status, order, filter }: &StatementQuery,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<Listing<StoredTransaction>>, StoreFault> {
        let page = |from: Option<String>| {
            async move {
                let from = from.as_deref().or(cursor);
                if *order == Order::ByDecision {
                    return rejections(&self.store, key, view.partner(), from, limit).await;
                }
                let listing = self.store.log.by_status(key, *status, view.partner(), from, limit).await?;
                let known = !listing.items.is_empty() || self.account(key).await?.is_some();
                Ok(known.then_some(listing))
            }
            .boxed()
        };
        next_visible(page, |stored| filter.accepts_transaction(stored)).await
    }
}

/// Compares an existing account with the request to open it.
fn compared(existing: Account, requested: &Account) -> OpenOutcome {
    let is_same = existing.currency == requested.currency
        && existing.overdraft_limit == requested.overdraft_limit
        && existing.holder == requested.holder;
    if is_same { OpenOutcome::Same(existing) } else { OpenOutcome::Different(existing) }
}

/// Returns the visible items of the next page. Skips pages without visible items, at most [`STORE_PAGES_MAX`]; after
/// that, returns an empty page with a cursor.
async fn next_visible<'a, T>(
    page: impl Fn(Option<String>) -> BoxFuture<'a, Result<Option<Listing<T>>, StoreFault>>,
    is_visible: impl Fn(&T) -> bool,
) -> Result<Option<Listing<T>>, StoreFault> {
    let mut from = None;
    for _ in 0..STORE_PAGES_MAX {
        let Some(Listing { mut items, next }) = page(from).await? else { return Ok(None) };
        items.retain(&is_visible);
        if !items.is_empty() || next.is_none() {
            return Ok(Some(Listing { items, next }));
        }
        from = next;
    }
    Ok(Some(Listing { items: Vec::new(), next: from }))
}

#[cfg(test)]
mod tests;
