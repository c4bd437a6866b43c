//! Decides the opening of an account, and changes of its terms.

use crate::domain::account::{Account, AccountStatus, Holder};
use crate::domain::ids::Nonce;
use crate::domain::journal::{Decided, JournalPage};
use crate::domain::money::OverdraftLimit;
use crate::domain::time::Timestamp;

/// A decision about an account that moves no money: applied completely, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountDecision {
    /// The account after the decision.
    pub after: Account,
    /// The journal page that records the decision.
    pub page: JournalPage,
}

/// The inputs of an [`AccountDecision`] besides the account and its terms.
#[derive(Debug, Clone, Copy)]
pub struct TermsContext {
    /// Identifies the decision.
    pub nonce: Nonce,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The terms of an account after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTerms {
    /// The new overdraft limit.
    pub overdraft_limit: OverdraftLimit,
    /// The new status.
    pub status: AccountStatus,
    /// The new holder; `None` keeps the current one.
    pub holder: Option<Holder>,
}

impl NewTerms {
    /// Returns whether the account already has these terms.
    pub fn are_those_of(&self, account: &Account) -> bool {
        let Self { overdraft_limit, status, holder } = self;
        let has_holder = holder.is_none() || *holder == account.holder;
        (*overdraft_limit, *status) == (account.overdraft_limit, account.status) && has_holder
    }
}

/// Error: an account can be closed only when its balance is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an account can be closed only when its balance is zero")]
pub struct ClosingError;

/// Decides the opening of a new account.
pub fn open(account: Account, context: &TermsContext) -> AccountDecision {
    let opened = Decided::Opened {
        currency: account.currency,
        overdraft_limit: account.overdraft_limit,
        holder: account.holder.clone(),
        opened_at: account.opened_at,
    };
    with_page(account, opened, context.nonce)
}

/// Decides a change of the terms, which increments the version of the account.
///
/// # Errors
/// [`ClosingError`] when the account would be closed while its balance is not zero.
pub fn change_terms(
    before: &Account,
    terms: NewTerms,
    context: &TermsContext,
) -> Result<AccountDecision, ClosingError> {
    let NewTerms { overdraft_limit, status, holder } = terms;
    if status == AccountStatus::Closed && !before.balance.is_zero() {
        return Err(ClosingError);
    }
    let version = before.version.checked_add(1).expect("no account changes 2^64 times");
    let after = Account {
        overdraft_limit,
        status,
        holder: holder.clone().or_else(|| before.holder.clone()),
        version,
        ..before.clone()
    };
    let changed = Decided::TermsChanged { status, overdraft_limit, holder, changed_at: context.now };
    Ok(with_page(after, changed, context.nonce))
}

/// Builds the page of a decision and makes its hash the head of the account.
fn with_page(mut after: Account, decided: Decided, nonce: Nonce) -> AccountDecision {
    let page = JournalPage::seal(&after, Vec::new(), vec![decided], (after.head, nonce));
    after.head = page.hash;
    AccountDecision { after, page }
}
