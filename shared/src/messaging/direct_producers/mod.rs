//! Bodies of producers that write to the queue directly, in two forms: an XML document `UserAccountTransaction`
//! ([`xml`]), or `userid|accountid|transactionid|amount`.
//!
//! Both forms contain the same four fields. The amount is in the account's currency, and negative for a withdrawal.
//! White space around the body and a byte order mark before it are ignored. Either form can be sent as UTF-8 text or as
//! its base64 (RFC 4648, section 4), which is the default of the classic .NET client of Azure Storage.
//! `schemas/xsd/user-account-transaction.xsd` is the published contract, with samples.
//!
//! This module only parses; [`crate::protocol::accept::Acceptor::admit`] accepts the orders.

mod xml;

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::domain::ids::{AccountId, AccountKey, MessageId, UserId, parse_bare};
use crate::domain::instruction::{Details, Instruction, TransactionKind};
use crate::domain::money::{Amount, AmountError, Currency, check_decimal};
use crate::text;

/// An order of a direct producer. Only the checks of the amount that need its currency are left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectOrder {
    /// The account that the order debits or credits.
    pub account: AccountKey,
    /// The producer's own id of the transaction: its idempotency key.
    pub message: MessageId,
    /// The direction of the money, from the sign.
    pub kind: TransactionKind,
    /// The amount: a decimal number without a sign.
    magnitude: String,
}

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An XML document.
    Xml,
    /// Four texts separated by `|`.
    Delimited,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xml => "XML document",
            Self::Delimited => "delimited text",
        })
    }
}

/// A violation in a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct Violation {
    /// The name of the field, or a text for the whole body.
    pub field: String,
    /// The violated rule or the error, as the end of a sentence about the field.
    pub rule: String,
}

/// A body that has one of the forms but violates its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectOrderError {
    /// The detected form.
    pub form: Form,
    /// All violations that were found, at least one.
    pub violations: Vec<Violation>,
}

impl std::error::Error for DirectOrderError {}

impl fmt::Display for DirectOrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let violations: Vec<String> = self.violations.iter().map(Violation::to_string).collect();
        write!(f, "the {} is not a UserAccountTransaction: {}", self.form, violations.join("; "))
    }
}

/// The reason why a text is not an amount in a currency, worded for a form with signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LegacyAmountError {
    /// There is a sign other than a leading `-`.
    #[error("must have no sign except a single leading -, for a withdrawal")]
    Signed,
    /// The amount is zero.
    #[error("must not be zero")]
    Zero,
    /// Any other defect of the number.
    #[error(transparent)]
    Other(AmountError),
}

impl From<AmountError> for LegacyAmountError {
    fn from(error: AmountError) -> Self {
        match error {
            AmountError::Signed => Self::Signed,
            AmountError::Zero => Self::Zero,
            AmountError::Empty
            | AmountError::Exponent
            | AmountError::Comma
            | AmountError::ForeignDigits
            | AmountError::Malformed
            | AmountError::Point
            | AmountError::LeadingZeros
            | AmountError::TooManyDecimals(_)
            | AmountError::TooLarge => Self::Other(error),
        }
    }
}

impl DirectOrder {
    /// Returns the amount as written, without its sign.
    pub fn magnitude(&self) -> &str {
        &self.magnitude
    }

    /// Returns the instruction in the currency of the account.
    ///
    /// # Errors
    /// [`LegacyAmountError`] when the number is not an amount in this currency.
    pub fn instruction(&self, currency: Currency) -> Result<Instruction, LegacyAmountError> {
        let amount = Amount::parse(&self.magnitude, currency)?;
        Ok(Instruction { kind: self.kind, amount, details: Details::default() })
    }
}

/// Parses a body. Returns `None` if it has neither form.
///
/// # Errors
/// [`DirectOrderError`] with all violations.
pub fn parse(body: &[u8]) -> Option<Result<DirectOrder, DirectOrderError>> {
    let body = decoded(body);
    let body = trimmed(&body);
    let form = form_of(body)?;
    let mut violations = Vec::new();
    let fields = match std::str::from_utf8(body) {
        Err(_) => {
            violations.push(of_body("must be text in UTF-8"));
            None
        }
        Ok(text) => match form {
            Form::Xml => xml::read(text, &mut violations),
            Form::Delimited => split(text, &mut violations),
        },
    };
    let order = fields.and_then(|fields| fields.check(form, &mut violations));
    Some(order.filter(|_| violations.is_empty()).ok_or(DirectOrderError { form, violations }))
}

/// Decodes a body in base64; any other body stays unchanged. Each form has characters that base64 does not have.
fn decoded(body: &[u8]) -> Cow<'_, [u8]> {
    let encoded = trimmed(body);
    match STANDARD.decode(encoded) {
        Ok(decoded) if form_of(trimmed(&decoded)).is_some() => decoded.into(),
        Ok(_) | Err(_) => body.into(),
    }
}

/// Detects the form of a body without surrounding white space.
fn form_of(body: &[u8]) -> Option<Form> {
    match body.first()? {
        b'<' => Some(Form::Xml),
        b'{' | b'[' => None,
        _ if body.contains(&b'|') => Some(Form::Delimited),
        _ => None,
    }
}

/// Removes a byte order mark and surrounding white space, such as the line ends that producers append.
fn trimmed(body: &[u8]) -> &[u8] {
    let body = body.trim_ascii();
    // A body in another encoding or with a second mark is refused when its fields are read.
    text::without_mark(body).unwrap_or(body).trim_ascii()
}

/// Returns a violation of the body as a whole.
fn of_body(rule: impl Into<String>) -> Violation {
    Violation { field: "the body".to_owned(), rule: rule.into() }
}

/// The four fields in order, by their XML names.
const NAMES: [&str; 4] = ["UserId", "AccountId", "TransactionId", "Amount"];

/// The texts of the four fields; `None` for a missing field.
#[derive(Debug, Default)]
struct Fields([Option<String>; 4]);

fn split(text: &str, violations: &mut Vec<Violation>) -> Option<Fields> {
    // One part more than reported is enough to detect the error.
    let parts: Vec<&str> = text.splitn(6, '|').collect();
    match <[&str; 4]>::try_from(parts) {
        Ok(parts) => Some(Fields(parts.map(|part| Some(part.to_owned())))),
        Err(parts) => {
            let count = match parts.len() {
                count @ 0..=5 => count.to_string(),
                _ => "more than 5".to_owned(),
            };
            let rule = format!("must be userid|accountid|transactionid|amount, but has {count} fields");
            violations.push(of_body(rule));
            None
        }
    }
}

impl Fields {
    /// Returns the order if every field is valid, and adds violations otherwise.
    fn check(self, form: Form, violations: &mut Vec<Violation>) -> Option<DirectOrder> {
        let mut refuse = |position: usize, rule: String| {
            let name = NAMES.get(position).copied().unwrap_or_default();
            let field = match form {
                Form::Xml => name.to_owned(),
                Form::Delimited => name.to_ascii_lowercase(),
            };
            violations.push(Violation { field, rule });
        };
        for (position, text) in self.0.iter().enumerate() {
            if text.is_none() {
                refuse(position, "is missing".to_owned());
            }
        }
        let [user, account, message, amount] = &self.0;
        let user = checked(user, 0, parse_bare::<UserId>, &mut refuse);
        let account = checked(account, 1, parse_bare::<AccountId>, &mut refuse);
        let message = checked(message, 2, parse_bare::<MessageId>, &mut refuse);
        let amount = checked(amount, 3, parse_amount, &mut refuse);
        let (kind, magnitude) = amount?;
        let account = AccountKey { user: user?, account: account? };
        Some(DirectOrder { account, message: message?, kind, magnitude })
    }
}

/// Parses one field, if it is present.
fn checked<T, E: fmt::Display>(
    text: &Option<String>,
    position: usize,
    read: impl FnOnce(&str) -> Result<T, E>,
    refuse: &mut impl FnMut(usize, String),
) -> Option<T> {
    match read(text.as_deref()?) {
        Ok(value) => Some(value),
        Err(error) => {
            refuse(position, error.to_string());
            None
        }
    }
}

fn parse_amount(text: &str) -> Result<(TransactionKind, String), LegacyAmountError> {
    let (kind, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) => (TransactionKind::Withdrawal, magnitude),
        None => (TransactionKind::Deposit, text),
    };
    check_decimal(magnitude)?;
    if magnitude.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return Err(LegacyAmountError::Zero);
    }
    Ok((kind, magnitude.to_owned()))
}

#[cfg(test)]
mod tests;
