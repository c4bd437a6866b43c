//! Checked requests: the id from the header, the instruction from the body.
#![expect(clippy::disallowed_methods, reason = "a service of its own, on the real clock")]

use std::borrow::Cow;
use std::time::SystemTime;

use actix_web::http::header::{CONTENT_TYPE, HeaderMap};
use serde::Deserialize;
use uuid::Uuid;

use crate::peers::postgres::answer::Refusal;
use crate::peers::postgres::money::parse_amount;
use crate::peers::postgres::transaction::Instruction;

/// Longest reference, in characters: as in ISO 20022.
const REFERENCE_CHARS_MAX: usize = 140;

/// The kind of a transaction.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the account.
    Deposit,
    /// From the account.
    Withdrawal,
}

impl Direction {
    /// Parses an amount, and returns it with its sign.
    pub fn amount(self, text: &str) -> Result<i64, Refusal> {
        let amount =
            parse_amount(text).map_err(|message| Refusal::FieldInvalid { field: "amount", message })?;
        Ok(match self {
            Self::Deposit => amount,
            Self::Withdrawal => amount.saturating_neg(),
        })
    }
}

/// The body of a deposit or withdrawal. Unknown members are refused, because they cannot be stored.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    #[serde(borrow)]
    amount: Cow<'a, str>,
    #[serde(borrow)]
    currency: Cow<'a, str>,
    reference: Option<String>,
}

/// Parses a deposit or withdrawal, and its currency.
pub fn instruction<'a>(
    headers: &HeaderMap,
    body: &'a [u8],
    direction: Direction,
) -> Result<(Instruction, Cow<'a, str>), Refusal> {
    let accepted_at = SystemTime::now();
    let message_id = idempotency_key(headers)?;
    let Body { amount, currency, reference } = json(headers, body)?;
    let amount = direction.amount(&amount)?;
    check_reference(reference.as_deref())?;
    Ok((Instruction { message_id, amount, reference, accepted_at }, currency))
}

/// Refuses a reference that the database or ISO 20022 cannot hold.
pub fn check_reference(reference: Option<&str>) -> Result<(), Refusal> {
    if reference.is_none_or(|text| !text.contains('\0') && text.chars().count() <= REFERENCE_CHARS_MAX) {
        return Ok(());
    }
    let message = "must have at most 140 characters, none of them NUL";
    Err(Refusal::FieldInvalid { field: "reference", message })
}

/// The id of a batch, and the time at which its request arrived.
pub fn batch(headers: &HeaderMap) -> Result<(Uuid, SystemTime), Refusal> {
    let at = SystemTime::now();
    check_media_type(headers, "application/x-ndjson")?;
    Ok((idempotency_key(headers)?, at))
}

/// The body of a request to open an account.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening<'a> {
    #[serde(borrow)]
    currency: Cow<'a, str>,
}

/// The currency of a new account.
pub fn currency<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, str>, Refusal> {
    let Opening { currency } = json(headers, body)?;
    if currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Ok(currency);
    }
    Err(Refusal::FieldInvalid { field: "currency", message: "must be a code of ISO 4217 such as EUR" })
}

fn json<'a, T: Deserialize<'a>>(headers: &HeaderMap, body: &'a [u8]) -> Result<T, Refusal> {
    check_media_type(headers, "application/json")?;
    serde_json::from_slice(body).map_err(Refusal::BodyMalformed)
}

/// Refuses a body of another media type.
fn check_media_type(headers: &HeaderMap, expected: &'static str) -> Result<(), Refusal> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split_once(';').map_or(media_type, |(essence, _)| essence);
    if essence.trim().eq_ignore_ascii_case(expected) { Ok(()) } else { Err(Refusal::MediaType(expected)) }
}

/// The id of the message or of the batch, quoted (a structured field) or bare.
fn idempotency_key(headers: &HeaderMap) -> Result<Uuid, Refusal> {
    let value = headers.get("idempotency-key").ok_or(Refusal::IdempotencyKeyMissing)?;
    let text = value.to_str().map_err(|_| Refusal::IdempotencyKeyInvalid)?.trim();
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Uuid::try_parse(bare).map_err(|_| Refusal::IdempotencyKeyInvalid)
}
