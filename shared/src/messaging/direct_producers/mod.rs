//! Bodies of producers that write to a queue directly. A message contains one order or several:
//!
//! - XML ([`xml`]): a document `UserAccountTransaction`, or an `ArrayOfUserAccountTransaction`;
//! - JSON ([`json`]): an object, or an array of objects;
//! - text ([`lines`]): lines `userid|accountid|transactionid|amount`.
//!
//! In XML and JSON, the members of an order ([`members`]) are those of the text form, or those of the table row of the classic
//! design. The amount is in the account's currency, and negative for a withdrawal. White space around the body and a byte order
//! mark before it are ignored. Every form can be sent as UTF-8 text or as its base64 (RFC 4648, section 4), which is the default of
//! the classic .NET client of Azure Storage. `schemas/xsd/user-account-transaction.xsd` is the published contract, with samples.
//!
//! This module only parses; [`crate::protocol::accept::Acceptor::admit`] accepts the orders.

mod json;
mod lines;
mod members;
mod xml;

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::domain::ids::{AccountKey, MessageId};
use crate::domain::instruction::{Details, Instruction, TransactionKind};
use crate::domain::money::{Amount, AmountError, Currency};
use crate::text;

/// Maximum number of orders in one message. The smallest orders that could be valid fill its 64 KiB with fewer.
pub const ORDERS_MAX: usize = 700;

/// One order in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// A body that contains only this order: the body of the message if it is the only one in it, or the part of the body.
    pub body: Vec<u8>,
    /// The order, or its violations.
    pub order: Result<DirectOrder, DirectOrderError>,
}

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
    /// The currency that the order names; `None` if it relies on that of the account.
    currency: Option<Currency>,
    /// The members that this version does not know.
    details: Details,
}

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An XML document.
    Xml,
    /// A JSON document.
    Json,
    /// Texts separated by `|`.
    Delimited,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xml => "XML document",
            Self::Json => "JSON document",
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
    /// The order names another currency than that of the account.
    #[error("must not be in {0}")]
    OtherCurrency(Currency),
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
        if let Some(other) = self.currency.filter(|named| *named != currency) {
            return Err(LegacyAmountError::OtherCurrency(other));
        }
        let amount = Amount::parse(&self.magnitude, currency)?;
        Ok(Instruction { kind: self.kind, amount, details: self.details.clone() })
    }
}

/// Parses a body. Returns its orders, at least one, or `None` if it has none of the forms. A body that violates the rules of its
/// form as a whole is one order.
pub fn parse(body: &[u8]) -> Option<Vec<Order>> {
    let decoded = decoded(body);
    let content = trimmed(&decoded);
    let form = form_of(content)?;
    let parts = match std::str::from_utf8(content) {
        Err(_) => Err("must be text in UTF-8".to_owned()),
        Ok(text) => match form {
            Form::Xml => xml::read(text),
            Form::Json => json::read(text),
            Form::Delimited => Ok(lines::read(text)),
        },
    };
    let parts = parts.and_then(|parts| match parts.len() {
        0 => Err("must have at least one order".to_owned()),
        1..=ORDERS_MAX => Ok(parts),
        count => Err(format!("must have at most {ORDERS_MAX} orders, but has {count}")),
    });
    let refused = |rule| Err(DirectOrderError { form, violations: vec![of_body(rule)] });
    let orders = match parts {
        Err(rule) => vec![Order { body: body.to_vec(), order: refused(rule) }],
        Ok(parts) => {
            let is_only = parts.len() == 1;
            let body_of = |text: Option<String>| text.filter(|_| !is_only).map(String::into_bytes);
            let order = |Part { text, members }| Order {
                body: body_of(text).unwrap_or_else(|| body.to_vec()),
                order: members.check(form).map_err(|violations| DirectOrderError { form, violations }),
            };
            parts.into_iter().map(order).collect()
        }
    };
    Some(orders)
}

/// One order before its members are checked.
struct Part {
    /// The text of the order; `None` if the form has no other text than the whole body.
    text: Option<String>,
    members: members::Members,
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
        b'{' | b'[' => Some(Form::Json),
        _ if body.contains(&b'|') => Some(Form::Delimited),
        _ => None,
    }
}

/// Removes a byte order mark and surrounding white space, such as the line ends that producers append.
fn trimmed(body: &[u8]) -> &[u8] {
    let body = body.trim_ascii();
    // A body in another encoding or with a second mark is refused when its members are read.
    text::without_mark(body).unwrap_or(body).trim_ascii()
}

/// Returns a violation of the body as a whole.
fn of_body(rule: impl Into<String>) -> Violation {
    Violation { field: "the body".to_owned(), rule: rule.into() }
}

#[cfg(test)]
mod tests;
