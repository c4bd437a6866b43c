//! The row of an account, in three parts: what its opening writes once, what a change of terms writes,
//! and what a commit writes besides.

use serde::{Deserialize, Serialize};

use super::flaw::Flaw;
use super::rows::{corrupt, number, parse, properties, time};
use super::table::{Found, Properties};
use crate::domain::account::{Account, AccountStatus, Holder, Versioned};
use crate::domain::ids::Nonce;
use crate::domain::journal::PageHash;
use crate::domain::money::{Balance, Currency, OverdraftLimit};
use crate::ports::fault::StoreFault;

/// What its opening writes once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OpeningRow {
    currency: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    family_name: Option<String>,
    opened_at: String,
    /// Marks the opening; no later change touches it.
    open_nonce: String,
}

/// What a change of terms writes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TermsRow {
    status: String,
    overdraft_limit: String,
    version: String,
}

/// What a change of terms writes besides, and nothing else does: by whom the terms were changed last,
/// and to which version of the account.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TermsMarkRow {
    #[serde(default)]
    terms_nonce: String,
    /// Empty when they were never changed.
    #[serde(default)]
    terms_version: String,
}

/// What became of a change of terms whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TermsChange {
    /// It was written.
    Done,
    /// It was not.
    NotDone,
    /// The terms were changed again since, and with them the mark of this change, if it was there.
    Overwritten,
}

/// What a commit writes besides. No nonce: the next commit would overwrite it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StateRow {
    balance: String,
    sequence: String,
    head: String,
}

/// The properties of a new account.
pub(super) fn opening(account: &Account, nonce: Nonce) -> Properties {
    let holder = account.holder.as_ref();
    let mut row = properties(&OpeningRow {
        currency: account.currency.code().to_owned(),
        given_name: holder.map(|holder| holder.given_name.clone()),
        family_name: holder.map(|holder| holder.family_name.clone()),
        opened_at: account.opened_at.unix_ms().to_string(),
        open_nonce: nonce.simple(),
    });
    row.extend(commit(account));
    row
}

/// The properties that a change of terms writes.
pub(super) fn change(account: &Account, nonce: Nonce) -> Properties {
    let (terms_nonce, terms_version) = (nonce.simple(), account.version.to_string());
    let mut row = properties(&TermsMarkRow { terms_nonce, terms_version });
    row.extend(terms(account));
    row
}

/// What the row tells about the change of terms to `version` with that nonce, whose guard does not hold
/// any more.
pub(super) fn what_became_of(
    found: &Found,
    version: u64,
    nonce: Nonce,
    doing: &'static str,
) -> Result<TermsChange, StoreFault> {
    let row: TermsMarkRow = parse(found, doing)?;
    if row.terms_nonce == nonce.simple() {
        return Ok(TermsChange::Done);
    }
    let changed_to: u64 = match row.terms_version.as_str() {
        "" => 0,
        text => number(text, "TermsVersion").map_err(|flaw| corrupt(found, doing, flaw))?,
    };
    // Versions only grow, so a change to an earlier version was there before.
    Ok(if changed_to <= version { TermsChange::NotDone } else { TermsChange::Overwritten })
}

/// The terms themselves.
fn terms(account: &Account) -> Properties {
    properties(&TermsRow {
        status: account.status.code().to_owned(),
        overdraft_limit: account.overdraft_limit.minor_units().to_string(),
        version: account.version.to_string(),
    })
}

/// The properties that a commit writes.
pub(super) fn commit(account: &Account) -> Properties {
    let mut row = properties(&StateRow {
        balance: account.balance.minor_units().to_string(),
        sequence: account.sequence.to_string(),
        head: account.head.to_string(),
    });
    row.extend(terms(account));
    row
}

/// Whether the opening with that nonce inserted the row.
pub(super) fn was_opened_by(found: &Found, nonce: Nonce, doing: &'static str) -> Result<bool, StoreFault> {
    let row: OpeningRow = parse(found, doing)?;
    Ok(row.open_nonce == nonce.simple())
}

/// Reads an account.
pub(super) fn read(found: &Found, doing: &'static str) -> Result<Versioned<Account>, StoreFault> {
    let (opening, terms, state) = (parse(found, doing)?, parse(found, doing)?, parse(found, doing)?);
    let value = assemble(found, opening, &terms, &state).map_err(|flaw| corrupt(found, doing, flaw))?;
    Ok(Versioned { value, revision: found.revision.clone() })
}

fn assemble(found: &Found, opening: OpeningRow, terms: &TermsRow, state: &StateRow) -> Result<Account, Flaw> {
    let OpeningRow { currency, given_name, family_name, opened_at, open_nonce: _ } = opening;
    let TermsRow { status, overdraft_limit, version } = terms;
    let StateRow { balance, sequence, head } = state;
    let currency = Currency::parse(&currency).map_err(|_| Flaw("Currency"))?;
    let limit = number(overdraft_limit, "OverdraftLimit")?;
    let holder = match (given_name, family_name) {
        (Some(given_name), Some(family_name)) => Some(Holder { given_name, family_name }),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(Flaw("FamilyName")),
    };
    Ok(Account {
        key: found.key.to_account()?,
        currency,
        status: AccountStatus::from_code(status).ok_or(Flaw("Status"))?,
        overdraft_limit: OverdraftLimit::try_new(limit, currency).map_err(|_| Flaw("OverdraftLimit"))?,
        holder,
        opened_at: time(&opened_at, "OpenedAt")?,
        balance: Balance::try_new(number(balance, "Balance")?, currency).ok_or(Flaw("Balance"))?,
        version: number(version, "Version")?,
        sequence: number(sequence, "Sequence")?,
        head: PageHash::parse(head).ok_or(Flaw("Head"))?,
    })
}
