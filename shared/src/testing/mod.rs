//! Support for tests of adapters and of the protocol: decorators of ports ([`decorators`], [`faults`],
//! [`changed_accounts`]), sealed bodies ([`sealed`]), registry entries ([`registered`]), and a recording writer
//! ([`captured_output`]). It belongs to this crate because its own unit tests need it. The tests of the ports are in
//! `postonce-conformance`.

use uuid::Uuid;

use crate::adapters::system::SystemWorld;
use crate::domain::account::{Account, AccountStatus};
use crate::domain::decision::{AccountDecision, NewTerms, TermsContext, change_terms, open};
use crate::domain::ids::Nonce;
use crate::domain::money::OverdraftLimit;
use crate::domain::time::Timestamp;
use crate::ports::world::WorldExt as _;

pub mod captured_output;
pub mod changed_accounts;
pub mod decorators;
pub mod faults;
pub mod pending;
pub mod prelude;
pub mod registered;
pub mod sealed;

/// Returns a change of the terms of an account. Panics if it closes an account that is in use.
pub fn change_of_terms(account: &Account, limit: OverdraftLimit, status: AccountStatus) -> AccountDecision {
    let terms = NewTerms { overdraft_limit: limit, status, holder: None };
    change_terms(account, terms, &terms_context()).expect("an account without a balance can be closed")
}

/// Returns the opening of a new account.
pub fn opening(account: Account) -> AccountDecision {
    open(account, &terms_context())
}

/// Returns a random nonce.
pub fn fresh_nonce() -> Nonce {
    SystemWorld::new().nonce()
}

fn terms_context() -> TermsContext {
    let nonce = Nonce::from_uuid(Uuid::from_u128(7));
    TermsContext { nonce, now: Timestamp::from_unix_ms(1_700_000_000_000) }
}
