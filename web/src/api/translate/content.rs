//! Conversion of the members of a document to domain values. All violations of a document are reported at once, by member
//! name.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::LazyLock;

use postonce_schemas::json::rules::UnknownMembers;
use postonce_schemas::json::{self as wire, CurrencyCode, DecimalText};
use postonce_shared::cluster::gate::GateState;
use postonce_shared::domain::account::{AccountStatus, Holder};
use postonce_shared::domain::ids::{AccountKey, IdError, parse_hyphenated};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::money::{Amount, AmountError, Currency, OverdraftLimit};
use postonce_shared::domain::time::Timestamp;
use utoipa::PartialSchema;
use utoipa::openapi::{RefOr, Schema};

use super::{AccountChange, AccountTerms, InboundDocument};
use crate::error::ApiError;
use crate::formats::Shape;
use crate::formats::items::BatchItem;
use crate::formats::members::Members;

/// Members of transactions in responses, which requests must not contain. Two are left out:
/// [`look_alikes`](super::look_alikes) refuses `UNKNOWN_MEMBERS` in new requests only, and `PARTNER_ID` is an unknown member
/// like any other.
static ANSWERED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let answered = names_of::<wire::Transaction>().into_iter();
    let left_out = [wire::Transaction::UNKNOWN_MEMBERS, wire::Transaction::PARTNER_ID];
    answered.filter(|name| !left_out.contains(&name.as_str())).collect()
});

/// Returns the names of the members of a struct.
pub(super) fn names_of<T: PartialSchema>() -> Vec<String> {
    match T::schema() {
        RefOr::T(Schema::Object(schema)) => schema.properties.keys().cloned().collect(),
        RefOr::T(_) | RefOr::Ref(_) => Vec::new(),
    }
}

/// Parses the instruction in a request document.
///
/// # Errors
/// [`ApiError`] with status 400 when the document is malformed, or with status 422 and every violation.
pub fn instruction(kind: TransactionKind, document: &InboundDocument) -> Result<Instruction, ApiError> {
    instruction_of(kind, document.members(Shape::Submission(kind))?)
}

/// Parses the instruction in the members of a request.
///
/// # Errors
/// [`ApiError`] with status 422 and every violation.
pub fn instruction_of(kind: TransactionKind, mut members: Members) -> Result<Instruction, ApiError> {
    let wire::TransactionRequest { amount, currency, reference, metadata } = members.read()?;
    members.refuse_members(&*ANSWERED, "is a member of responses; it cannot be sent");
    let unknown_members = members.take_unknown();

    let currency = parse_currency(&mut members, &currency);
    let amount = parse_amount(&mut members, &amount, currency);
    let details = Details::new(reference, metadata.unwrap_or_default().0, &unknown_members);
    members.check(&UnknownMembers { stored: details.unknown_members() });
    members.finish(amount.map(|amount| Instruction { kind, amount, details }))
}

/// Returns the details of a request whose only content besides the money are unknown members, which are taken from it.
pub fn unknown_details(members: &mut Members) -> Details {
    let details = Details::new(None, BTreeMap::new(), &members.take_unknown());
    members.check(&UnknownMembers { stored: details.unknown_members() });
    details
}

/// Parses the members of a batch item.
///
/// # Errors
/// [`ApiError`] with status 422 and every violation.
pub fn batch_item(mut members: Members) -> Result<BatchItem, ApiError> {
    let wire::BatchItem { user_id, account_id, message_id, r#type } = members.read()?;
    let user = parse_id(&mut members, "user_id", &user_id);
    let account = parse_id(&mut members, "account_id", &account_id);
    let message = parse_id(&mut members, "message_id", &message_id);
    members.report("type");
    let kind = TransactionKind::from_code(&r#type);
    // The kind has no effect if it is invalid, because its violation refuses the item.
    let instruction = instruction_of(kind.unwrap_or(TransactionKind::Deposit), members)?;
    let parts = user.zip(account).zip(message.zip(kind));
    let ((user, account), (message, _)) =
        parts.ok_or_else(|| ApiError::internal("an invalid member was not reported as a violation"))?;
    Ok(BatchItem { account: AccountKey { user, account }, message, instruction })
}

/// Parses the terms in a request to open an account.
///
/// # Errors
/// Same as [`instruction`].
pub fn account_terms(document: &InboundDocument) -> Result<AccountTerms, ApiError> {
    let mut members = document.members(Shape::Opening)?;
    let wire::OpenAccountRequest { currency, overdraft_limit, holder } = members.read()?;
    members.refuse_unknown();

    let currency = parse_currency(&mut members, &currency);
    let overdraft_limit = match overdraft_limit {
        None => currency.map(OverdraftLimit::none),
        Some(text) => parse_limit(&mut members, &text, currency),
    };
    let parts = currency.zip(overdraft_limit);
    members.finish(parts.map(|(currency, overdraft_limit)| AccountTerms {
        currency,
        overdraft_limit,
        holder: holder.map(holder_of),
    }))
}

/// Parses the changes in a request to change an account.
///
/// # Errors
/// Same as [`instruction`].
pub fn account_change(document: &InboundDocument) -> Result<AccountChange, ApiError> {
    let mut members = document.members(Shape::Change)?;
    let wire::ChangeAccountRequest { overdraft_limit, status, holder } = members.read()?;
    members.refuse_unknown();

    members.report("body");
    let overdraft_limit = overdraft_limit.map(|text| {
        // The decimals are checked later, because the currency of the account is unknown here.
        parse_limit(&mut members, &text, None);
        text.0
    });
    let status = known(status, AccountStatus::from_code);
    let holder = holder.map(holder_of);
    members.finish(status.map(|status| AccountChange { overdraft_limit, status, holder }))
}

/// Parses an optional code. Returns `None` if the domain does not know the code, which is a violation of the document.
pub(super) fn known<T>(code: Option<String>, of_code: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    match code {
        None => Some(None),
        Some(code) => of_code(&code).map(Some),
    }
}

/// Parses the requested state of the gate, and its reason. A scheduled release must be later than `now`.
///
/// # Errors
/// Same as [`instruction`], and with status 415 for a format other than JSON.
pub fn gate_change(
    document: &InboundDocument,
    now: Timestamp,
) -> Result<(GateState, Option<String>), ApiError> {
    let mut members = document.members_of_json()?;
    let wire::GateChange { state, release_at, reason } = members.read()?;
    members.refuse_unknown();

    let release_at = release_at.and_then(|text| later_time(&mut members, "release_at", &text, now));
    members.report("release_at");
    let state = match state.as_str() {
        "held" => Some(GateState::Held { release_at }),
        "released" => Some(GateState::Released),
        _ => None,
    };
    members.finish(state.map(|state| (state, reason)))
}

/// Parses a time that must be later than `now`. Adds a violation otherwise.
pub(super) fn later_time(members: &mut Members, name: &str, text: &str, now: Timestamp) -> Option<Timestamp> {
    let at = Timestamp::parse(text);
    match at {
        None => members.refuse(name, "must be a time of RFC 3339, such as \"2027-11-23T06:00:00Z\""),
        Some(at) if at <= now => members.refuse(name, format!("must be later than now, {now}")),
        Some(_) => {}
    }
    at
}

fn parse_id<T: FromStr<Err = IdError>>(members: &mut Members, name: &str, text: &str) -> Option<T> {
    parse_hyphenated(text).map_err(|invalid| members.refuse(name, invalid.to_string())).ok()
}

fn holder_of(holder: wire::Holder) -> Holder {
    let wire::Holder { given_name, family_name } = holder;
    Holder { given_name, family_name }
}

fn parse_currency(members: &mut Members, CurrencyCode(code): &CurrencyCode) -> Option<Currency> {
    Currency::parse(code).map_err(|error| members.refuse("currency", error.to_string())).ok()
}

fn parse_amount(members: &mut Members, text: &DecimalText, currency: Option<Currency>) -> Option<Amount> {
    parse_money(members, "amount", currency, |currency| Amount::parse(&text.0, currency))
}

fn parse_limit(
    members: &mut Members,
    text: &DecimalText,
    currency: Option<Currency>,
) -> Option<OverdraftLimit> {
    parse_money(members, "overdraft_limit", currency, |currency| OverdraftLimit::parse(&text.0, currency))
}

/// Parses an amount. Without a currency, only rules that hold for every currency are checked.
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

/// Returns the violation of an amount that is invalid in every currency, or `None` if it is valid in at least one.
fn wrong_in_every_currency<T>(parse: impl Fn(Currency) -> Result<T, AmountError>) -> Option<String> {
    // One currency per number of decimals, in ascending order.
    let codes = wire::codes_by_decimals().into_values().filter_map(|codes| codes.first().copied());
    let currencies = codes.filter_map(|code| Currency::parse(code).ok());
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
