//! The stored form of items and their results: consecutive values in the postcard format, compressed with Zstandard.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::domain::batch::{Item, ItemOutcome, ItemResult, ItemStatus};
use crate::domain::ids::{AccountId, AccountKey, MessageId, OrderNumber, UserId};
use crate::domain::instruction::{Details, Instruction, TransactionKind};
use crate::domain::money::{Amount, Balance, Currency};
use crate::domain::rejection::RejectReason;

/// Maximum size of a body before compression, in bytes. Larger bodies are neither written nor expanded.
pub const RAW_BYTES_MAX: usize = 768 * 1024;
/// A fast level. Higher levels hardly reduce the bodies, which contain mostly random ids.
const COMPRESSION_LEVEL: i32 = 1;

/// An item that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidItem {
    /// The number of the item in the document, from 1.
    pub line: u32,
    /// The partner's id of the transaction, if it could be read.
    pub message: Option<Uuid>,
    /// The broken rules.
    pub reason: String,
}

/// One line of the results of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultLine {
    /// The result of a valid item.
    Item(ItemResult),
    /// An invalid item.
    Invalid(InvalidItem),
}

impl ResultLine {
    /// Returns the number of the item in the document, from 1.
    pub const fn line(&self) -> u32 {
        match self {
            Self::Item(item) => item.line,
            Self::Invalid(item) => item.line,
        }
    }
}

/// Error for data that cannot be decoded although its digest matches, because a program of another version wrote it.
#[derive(Debug, thiserror::Error)]
pub enum ItemError {
    /// The compression or the encoding is not valid.
    #[error("it is not in the stored form")]
    Form(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A value is not valid.
    #[error("the {0} is not valid")]
    Value(&'static str),
}

/// A value that can be stored.
pub trait Stored: Sized {
    /// Appends the stored form.
    fn encode_to(&self, raw: &mut Vec<u8>);

    /// Decodes the first value, and advances `raw` past it.
    ///
    /// # Errors
    /// [`ItemError`]
    fn decode_from(raw: &mut &[u8]) -> Result<Self, ItemError>;
}

/// Compresses encoded values.
pub fn compress(raw: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(raw, COMPRESSION_LEVEL).expect("memory is always large enough")
}

/// Encodes and compresses values.
pub fn encode<T: Stored>(values: &[T]) -> Vec<u8> {
    let mut raw = Vec::new();
    values.iter().for_each(|value| value.encode_to(&mut raw));
    compress(&raw)
}

/// Expands and decodes values.
///
/// # Errors
/// [`ItemError`]
pub fn decode<T: Stored>(body: &[u8]) -> Result<Vec<T>, ItemError> {
    let raw = zstd::bulk::decompress(body, RAW_BYTES_MAX).map_err(|error| ItemError::Form(error.into()))?;
    let (mut rest, mut values) = (raw.as_slice(), Vec::new());
    while !rest.is_empty() {
        values.push(T::decode_from(&mut rest)?);
    }
    Ok(values)
}

pub(super) fn push(row: &impl Serialize, raw: &mut Vec<u8>) {
    *raw = postcard::to_extend(row, std::mem::take(raw)).expect("texts and numbers can always be written");
}

pub(super) fn take<T: DeserializeOwned>(raw: &mut &[u8]) -> Result<T, ItemError> {
    let (row, rest) = postcard::take_from_bytes(raw).map_err(|error| ItemError::Form(Box::new(error)))?;
    *raw = rest;
    Ok(row)
}

#[derive(Serialize)]
struct ItemRow<'a> {
    line: u32,
    user: Uuid,
    account: Uuid,
    message: Uuid,
    kind: &'a str,
    amount: i64,
    currency: &'a str,
    reference: Option<&'a str>,
    metadata: &'a BTreeMap<String, String>,
    unknown_members: &'a str,
}

#[derive(Deserialize)]
struct OwnedItemRow {
    line: u32,
    user: Uuid,
    account: Uuid,
    message: Uuid,
    kind: String,
    amount: i64,
    currency: String,
    reference: Option<String>,
    metadata: BTreeMap<String, String>,
    unknown_members: String,
}

impl Stored for Item {
    fn encode_to(&self, raw: &mut Vec<u8>) {
        let Self { line, account, message, instruction: Instruction { kind, amount, details } } = self;
        let row = ItemRow {
            line: *line,
            user: account.user.as_uuid(),
            account: account.account.as_uuid(),
            message: message.as_uuid(),
            kind: kind.code(),
            amount: amount.minor_units(),
            currency: amount.currency().code(),
            reference: details.reference(),
            metadata: details.metadata(),
            unknown_members: details.unknown_members(),
        };
        push(&row, raw);
    }

    fn decode_from(raw: &mut &[u8]) -> Result<Self, ItemError> {
        let row: OwnedItemRow = take(raw)?;
        let currency = Currency::parse(&row.currency).map_err(|_| ItemError::Value("currency"))?;
        let details = Details::from_stored(row.reference, row.metadata, row.unknown_members);
        let instruction = Instruction {
            kind: TransactionKind::from_code(&row.kind).ok_or(ItemError::Value("kind"))?,
            amount: Amount::try_new(row.amount, currency).map_err(|_| ItemError::Value("amount"))?,
            details,
        };
        let account =
            AccountKey { user: UserId::from_uuid(row.user), account: AccountId::from_uuid(row.account) };
        Ok(Self { line: row.line, account, message: MessageId::from_uuid(row.message), instruction })
    }
}

impl Stored for InvalidItem {
    fn encode_to(&self, raw: &mut Vec<u8>) {
        push(self, raw);
    }

    fn decode_from(raw: &mut &[u8]) -> Result<Self, ItemError> {
        take(raw)
    }
}

#[derive(Serialize, Deserialize)]
struct ResultRow {
    line: u32,
    message: Uuid,
    /// An index in [`ItemStatus::ALL`].
    status: u8,
    outcome: OutcomeRow,
}

#[derive(Serialize, Deserialize)]
enum OutcomeRow {
    Posted { counter: u64, balance: i64, currency: [u8; 3] },
    Rejected(String),
    KeyReused,
}

impl Stored for ItemResult {
    fn encode_to(&self, raw: &mut Vec<u8>) {
        let outcome = match self.outcome {
            ItemOutcome::Posted { order_number, balance_after } => OutcomeRow::Posted {
                counter: order_number.counter(),
                balance: balance_after.minor_units(),
                currency: balance_after
                    .currency()
                    .code()
                    .as_bytes()
                    .try_into()
                    .expect("codes have 3 letters"),
            },
            ItemOutcome::Rejected(reason) => OutcomeRow::Rejected(reason.code().to_owned()),
            ItemOutcome::KeyReused => OutcomeRow::KeyReused,
        };
        let status = ItemStatus::ALL.iter().position(|it| *it == self.status);
        let status = status.and_then(|at| u8::try_from(at).ok()).expect("every status is in the list");
        push(&ResultRow { line: self.line, message: self.message.as_uuid(), status, outcome }, raw);
    }

    fn decode_from(raw: &mut &[u8]) -> Result<Self, ItemError> {
        let row: ResultRow = take(raw)?;
        let outcome = match row.outcome {
            OutcomeRow::Posted { counter, balance, currency } => {
                let currency =
                    std::str::from_utf8(&currency).ok().and_then(|code| Currency::parse(code).ok());
                let currency = currency.ok_or(ItemError::Value("currency"))?;
                if counter > OrderNumber::COUNTER_MAX {
                    return Err(ItemError::Value("order number"));
                }
                ItemOutcome::Posted {
                    order_number: OrderNumber::from_counter(counter),
                    balance_after: Balance::try_new(balance, currency).ok_or(ItemError::Value("balance"))?,
                }
            }
            OutcomeRow::Rejected(code) => {
                ItemOutcome::Rejected(RejectReason::from_code(&code).ok_or(ItemError::Value("reason"))?)
            }
            OutcomeRow::KeyReused => ItemOutcome::KeyReused,
        };
        let status = ItemStatus::ALL.get(usize::from(row.status)).ok_or(ItemError::Value("status"))?;
        Ok(Self { line: row.line, message: MessageId::from_uuid(row.message), status: *status, outcome })
    }
}

impl Stored for ResultLine {
    fn encode_to(&self, raw: &mut Vec<u8>) {
        match self {
            Self::Item(item) => {
                raw.push(0);
                item.encode_to(raw);
            }
            Self::Invalid(item) => {
                raw.push(1);
                item.encode_to(raw);
            }
        }
    }

    fn decode_from(raw: &mut &[u8]) -> Result<Self, ItemError> {
        let (tag, rest) = raw.split_first().ok_or(ItemError::Value("kind of line"))?;
        *raw = rest;
        match tag {
            0 => ItemResult::decode_from(raw).map(Self::Item),
            1 => InvalidItem::decode_from(raw).map(Self::Invalid),
            _ => Err(ItemError::Value("kind of line")),
        }
    }
}
