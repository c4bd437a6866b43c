//! From the members of a document to the domain. Options, wrong types and texts of the wire end here;
//! every violation of a document is told at once, by the names of the members.

use std::collections::BTreeMap;

use postonce_schemas::json as wire;
use postonce_shared::domain::account::{AccountStatus, Holder};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::money::{Amount, AmountError, Currency, OverdraftLimit};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::gate::GateState;
use validator::{Validate as _, ValidationErrors, ValidationErrorsKind};

use super::{AccountChange, AccountTerms};
use crate::error::ApiError;
use crate::formats::members::{Members, Wanted};

/// The instruction in a document.
///
/// # Errors
/// [`ApiError`] of status 422, with every violation.
pub(super) fn instruction(kind: TransactionKind, mut members: Members) -> Result<Instruction, ApiError> {
    let amount = members.text("amount", Wanted::Amount);
    let currency = members.text("currency", Wanted::Currency);
    let reference = members.optional_text("reference", Wanted::Text);
    let metadata = members.optional_texts("metadata");
    members.refuse_members(wire::Transaction::MEMBERS, "is a member of answers; it cannot be sent");
    let unknown_members = members.take_the_rest();

    let currency = currency.and_then(|code| parse_currency(&mut members, &code));
    let amount = amount.and_then(|text| parse_amount(&mut members, &text, currency));
    let details = Details::try_new(reference, metadata, &unknown_members)
        .map_err(|violations| violations.into_iter().for_each(|it| members.refuse(&it.field, it.rule)));
    let parts = amount.zip(details.ok());
    members.finish(parts.map(|(amount, details)| Instruction { kind, amount, details }))
}

/// The terms of a new account in a document.
///
/// # Errors
/// [`ApiError`] of status 422, with every violation.
pub(super) fn account_terms(mut members: Members) -> Result<AccountTerms, ApiError> {
    let currency = members.text("currency", Wanted::Currency);
    let overdraft_limit = members.optional_text("overdraft_limit", Wanted::Amount);
    let holder = holder(&mut members);
    members.refuse_the_rest();

    let currency = currency.and_then(|code| parse_currency(&mut members, &code));
    let overdraft_limit = match overdraft_limit {
        None => currency.map(OverdraftLimit::none),
        Some(text) => parse_limit(&mut members, &text, currency),
    };
    let parts = currency.zip(overdraft_limit);
    members.finish(parts.map(|(currency, overdraft_limit)| AccountTerms {
        currency,
        overdraft_limit,
        holder,
    }))
}

/// The change of an account in a document.
///
/// # Errors
/// [`ApiError`] of status 422, with every violation.
pub(super) fn account_change(mut members: Members) -> Result<AccountChange, ApiError> {
    let overdraft_limit = members.optional_text("overdraft_limit", Wanted::Amount);
    let status = members.optional_text("status", Wanted::Text);
    members.refuse_the_rest();

    if overdraft_limit.is_none() && status.is_none() {
        members.refuse("body", "must say what to change: the limit, the status, or both");
    }
    if let Some(text) = &overdraft_limit {
        // Its decimals are checked later, when the currency of the account is known.
        parse_limit(&mut members, text, None);
    }
    let status = status.and_then(|code| {
        let status = AccountStatus::from_code(&code);
        if status.is_none() {
            members.refuse("status", "must be \"open\" or \"closed\"");
        }
        status
    });
    members.finish(Some(AccountChange { overdraft_limit, status }))
}

/// The state of the gate in a document.
///
/// # Errors
/// [`ApiError`] of status 422, with every violation.
pub(super) fn gate_state(mut members: Members, now: Timestamp) -> Result<GateState, ApiError> {
    let state = members.text("state", Wanted::Text);
    let release_at = members.optional_text("release_at", Wanted::Text);
    members.refuse_the_rest();

    let scheduled = release_at.is_some();
    let release_at = release_at.and_then(|text| {
        let at = Timestamp::parse(&text);
        match at {
            None => {
                members.refuse("release_at", "must be a time of RFC 3339, such as \"2026-11-23T06:00:00Z\"")
            }
            Some(at) if at <= now => members.refuse("release_at", format!("must be later than now, {now}")),
            Some(_) => {}
        }
        at
    });
    let state = match state.as_deref() {
        Some("held") => Some(GateState::Held { release_at }),
        Some("released") => {
            if scheduled {
                members.refuse("release_at", "must not stand with state \"released\"");
            }
            Some(GateState::Released)
        }
        Some(_) => {
            members.refuse("state", "must be \"held\" or \"released\"");
            None
        }
        None => None,
    };
    members.finish(state)
}

fn holder(members: &mut Members) -> Option<Holder> {
    let mut inner = members.optional_object("holder")?;
    let given_name = inner.text("given_name", Wanted::Text);
    let family_name = inner.text("family_name", Wanted::Text);
    let holder = given_name.zip(family_name).map(|(given_name, family_name)| {
        let holder = wire::Holder { given_name, family_name };
        if let Err(errors) = holder.validate() {
            refuse_invalid(&mut inner, &errors);
        }
        let wire::Holder { given_name, family_name } = holder;
        Holder { given_name, family_name }
    });
    members.close(inner);
    holder
}

/// Notes what `validator` found, in the order of the fields.
fn refuse_invalid(members: &mut Members, errors: &ValidationErrors) {
    let sorted: BTreeMap<_, _> = errors.errors().iter().collect();
    for (field, kind) in sorted {
        match kind {
            ValidationErrorsKind::Field(errors) => {
                for error in errors {
                    let message = error.message.as_deref().unwrap_or("is not valid");
                    members.refuse(field, message);
                }
            }
            ValidationErrorsKind::Struct(inner) => refuse_invalid(members, inner),
            ValidationErrorsKind::List(list) => {
                list.values().for_each(|inner| refuse_invalid(members, inner));
            }
        }
    }
}

fn parse_currency(members: &mut Members, code: &str) -> Option<Currency> {
    Currency::parse(code).map_err(|error| members.refuse("currency", error.to_string())).ok()
}

fn parse_amount(members: &mut Members, text: &str, currency: Option<Currency>) -> Option<Amount> {
    parse_money(members, "amount", currency, |currency| Amount::parse(text, currency))
}

fn parse_limit(members: &mut Members, text: &str, currency: Option<Currency>) -> Option<OverdraftLimit> {
    parse_money(members, "overdraft_limit", currency, |currency| OverdraftLimit::parse(text, currency))
}

/// Reads money. Where the currency is not known, at least what is wrong in any currency is told.
fn parse_money<T>(
    members: &mut Members,
    name: &str,
    currency: Option<Currency>,
    parse: impl Fn(Currency) -> Result<T, AmountError>,
) -> Option<T> {
    let error = match currency {
        Some(currency) => match parse(currency) {
            Ok(money) => return Some(money),
            Err(error) => error,
        },
        None => {
            let message = wrong_in_every_currency(parse)?;
            members.refuse(name, message);
            return None;
        }
    };
    members.refuse(name, error.to_string());
    None
}

/// One currency for each number of decimals that there is.
const CURRENCIES_BY_DECIMALS: [&str; 4] = ["JPY", "EUR", "BHD", "CLF"];

/// What is wrong with a sum in whatever currency; `None` when it is right in one.
fn wrong_in_every_currency<T>(parse: impl Fn(Currency) -> Result<T, AmountError>) -> Option<String> {
    let currencies = CURRENCIES_BY_DECIMALS.iter().filter_map(|code| Currency::parse(code).ok());
    let errors: Option<Vec<AmountError>> = currencies.map(|currency| parse(currency).err()).collect();
    let errors = errors?;
    let is_too_large = errors.contains(&AmountError::TooLarge);
    let finest = errors.last()?;
    if let AmountError::TooManyDecimals(currency) = finest {
        return Some(format!("has more decimals than any currency has ({})", currency.decimals()));
    }
    let error = if is_too_large { &AmountError::TooLarge } else { finest };
    Some(error.to_string())
}
