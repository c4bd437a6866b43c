//! The row of an account. Opening the account writes all properties except the marks of a change of terms. A change of
//! terms writes the terms, the holder and the head of the journal; a commit writes the terms and the state.

use serde::{Deserialize, Serialize};

use super::invalid_property::InvalidProperty;
use super::rows::{corrupt, number, parse, properties, time};
use super::table::{Found, Properties};
use crate::domain::account::{Account, AccountStatus, Holder, Versioned};
use crate::domain::decision::AccountDecision;
use crate::domain::ids::Nonce;
use crate::domain::journal::PageHash;
use crate::domain::money::{Balance, Currency, OverdraftLimit};
use crate::ports::fault::StoreFault;

/// Properties that are written only when the account is opened.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OpeningRow {
    currency: String,
    opened_at: String,
    /// Identifies the call that opened the account. Later changes do not overwrite it.
    open_nonce: String,
}

/// Properties that are written when the account is opened or its holder changes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HolderRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    given_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family_name: Option<String>,
}

impl HolderRow {
    fn of(holder: Option<&Holder>) -> Self {
        let given_name = holder.map(|holder| holder.given_name.clone());
        Self { given_name, family_name: holder.map(|holder| holder.family_name.clone()) }
    }

    fn holder(self) -> Result<Option<Holder>, InvalidProperty> {
        Holder::of_names(self.given_name, self.family_name).ok_or(InvalidProperty("FamilyName"))
    }
}

/// The terms and the version, which openings, changes of terms and commits write.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TermsRow {
    status: String,
    overdraft_limit: String,
    version: String,
}

/// Properties that only a change of terms writes: its nonce, and the account version that it produced.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TermsMarkRow {
    #[serde(default)]
    terms_nonce: String,
    /// Empty if the terms were never changed.
    #[serde(default)]
    terms_version: String,
}

/// Result of a change of terms whose response was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TermsChangeOutcome {
    /// The change was written.
    Done,
    /// The change was not written.
    NotDone,
    /// The terms were changed again since then. The later change overwrote the nonce, so the result is unknown.
    Overwritten,
}

/// The state of the account, which commits write. It contains no nonce, because the next commit would overwrite it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StateRow {
    balance: String,
    sequence: String,
    head: String,
}

pub(super) fn opening(account: &Account, nonce: Nonce) -> Properties {
    let mut row = properties(&OpeningRow {
        currency: account.currency.code().to_owned(),
        opened_at: account.opened_at.unix_ms().to_string(),
        open_nonce: nonce.simple(),
    });
    row.extend(properties(&HolderRow::of(account.holder.as_ref())));
    row.extend(commit(account));
    row
}

pub(super) fn change(AccountDecision { after, page }: &AccountDecision, nonce: Nonce) -> Properties {
    let (terms_nonce, terms_version) = (nonce.simple(), after.version.to_string());
    let mut row = properties(&TermsMarkRow { terms_nonce, terms_version });
    row.extend(terms(after));
    // If the holder is unchanged, no property is sent, and the merge keeps the stored holder.
    row.extend(properties(&HolderRow::of(after.holder.as_ref())));
    row.insert("Head".to_owned(), page.hash.to_string().into());
    row
}

/// Returns the result of the change of terms to `version` with this nonce, from the row after the guard failed.
pub(super) fn change_outcome(
    found: &Found,
    version: u64,
    nonce: Nonce,
    doing: &'static str,
) -> Result<TermsChangeOutcome, StoreFault> {
    let row: TermsMarkRow = parse(found, doing)?;
    if row.terms_nonce == nonce.simple() {
        return Ok(TermsChangeOutcome::Done);
    }
    let changed_to: u64 = match row.terms_version.as_str() {
        "" => 0,
        text => number(text, "TermsVersion").map_err(|invalid| corrupt(found, doing, invalid))?,
    };
    // Versions only increase, so a change to a lower version was written before this one.
    Ok(if changed_to <= version { TermsChangeOutcome::NotDone } else { TermsChangeOutcome::Overwritten })
}

fn terms(account: &Account) -> Properties {
    properties(&TermsRow {
        status: account.status.code().to_owned(),
        overdraft_limit: account.overdraft_limit.minor_units().to_string(),
        version: account.version.to_string(),
    })
}

/// Returns the properties that a commit writes: the state and the terms.
pub(super) fn commit(account: &Account) -> Properties {
    let mut row = properties(&StateRow {
        balance: account.balance.minor_units().to_string(),
        sequence: account.sequence.to_string(),
        head: account.head.to_string(),
    });
    row.extend(terms(account));
    row
}

/// Returns whether the call with this nonce inserted the row.
pub(super) fn was_opened_by(found: &Found, nonce: Nonce, doing: &'static str) -> Result<bool, StoreFault> {
    let row: OpeningRow = parse(found, doing)?;
    Ok(row.open_nonce == nonce.simple())
}

/// Decodes an account from its row.
pub(super) fn read(found: &Found, doing: &'static str) -> Result<Versioned<Account>, StoreFault> {
    let (opening, terms, state) = (parse(found, doing)?, parse(found, doing)?, parse(found, doing)?);
    let holder: HolderRow = parse(found, doing)?;
    let value = assemble(found, opening, &terms, &state)
        .and_then(|account| Ok(Account { holder: holder.holder()?, ..account }));
    let value = value.map_err(|invalid| corrupt(found, doing, invalid))?;
    Ok(Versioned { value, revision: found.revision.clone() })
}

fn assemble(
    found: &Found,
    opening: OpeningRow,
    terms: &TermsRow,
    state: &StateRow,
) -> Result<Account, InvalidProperty> {
    let OpeningRow { currency, opened_at, open_nonce: _ } = opening;
    let TermsRow { status, overdraft_limit, version } = terms;
    let StateRow { balance, sequence, head } = state;
    let currency = Currency::parse(&currency).map_err(|_| InvalidProperty("Currency"))?;
    let limit = number(overdraft_limit, "OverdraftLimit")?;
    Ok(Account {
        key: found.key.to_account()?,
        currency,
        status: AccountStatus::from_code(status).ok_or(InvalidProperty("Status"))?,
        overdraft_limit: OverdraftLimit::try_new(limit, currency)
            .map_err(|_| InvalidProperty("OverdraftLimit"))?,
        holder: None,
        opened_at: time(&opened_at, "OpenedAt")?,
        balance: Balance::try_new(number(balance, "Balance")?, currency).ok_or(InvalidProperty("Balance"))?,
        version: number(version, "Version")?,
        sequence: number(sequence, "Sequence")?,
        head: PageHash::parse(head).ok_or(InvalidProperty("Head"))?,
    })
}
