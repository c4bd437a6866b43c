//! The JSON bodies of the HTTP API, one struct each. Names and order of the members are the contract: the readers
//! and the writers of all formats, the OpenAPI document and the JSON Schema follow from these structs.
//!
//! Amounts are decimal strings everywhere: a JSON number would pass through a binary float in most
//! clients. Times are RFC 3339 in UTC with milliseconds. Members without a value are left out.
#![expect(
    clippy::disallowed_types,
    reason = "serde names floats in what it derives for a struct with flattened members"
)]

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod codes;
mod costs;
mod exact;
mod money;
mod operators;
mod optional;
mod partners;
mod raw;

pub use self::costs::{ProcessCost, Scale, StorageOperation, StorageOperations};
pub use self::exact::{add, sharpen};
pub use self::money::codes_by_decimals;
pub use self::operators::{
    DeadLetter, DeadLetterPage, Gate, GateChange, GateChanged, GateListener, OrderNumberRange, OrderNumbers,
    Queue, QueueList, Resolution,
};
pub use self::partners::{
    NewPartnerKey, Partner, PartnerAccount, PartnerKey, PartnerKeyRequest, PartnerPage, PartnerRate,
    PartnerReach, PartnerSignatureKey, PartnerSignatureKeyRequest, PartnerTerms,
};
pub use self::raw::RawMembers;

/// A decimal number as text. The words of `expecting` go into refusals.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a string such as \"12.50\"")]
pub struct DecimalText(pub String);

/// The code of a currency.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a currency code of ISO 4217, such as \"EUR\"")]
pub struct CurrencyCode(pub String);

/// What a deposit or a withdrawal asks for.
///
/// Members that are not listed here are kept as part of the content: the same id with other values
/// in them is refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(example = json!({"amount": "125.50", "currency": "EUR", "reference": "invoice 7", "metadata": {"shop": "12"}}))]
pub struct TransactionRequest {
    /// A decimal number greater than zero with at most the currency's decimals, as a string.
    #[schema(value_type = String, example = "125.50", pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub amount: DecimalText,
    /// ISO 4217; the currency of the account.
    #[schema(value_type = String, example = "EUR", min_length = 3, max_length = 3, pattern = "^[A-Z]{3}$")]
    pub currency: CurrencyCode,
    /// The words on the statement.
    #[schema(min_length = 1, max_length = 140, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    pub reference: Option<String>,
    /// Your own data, given back unchanged: at most 20 members, names of 1 to 40 characters, 2048
    /// bytes together.
    pub metadata: Option<BTreeMap<String, String>>,
}

/// Who holds an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Given name.
    #[schema(
        example = "Ada",
        min_length = 1,
        max_length = 140,
        pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"
    )]
    pub given_name: String,
    /// Family name.
    #[schema(
        example = "Byron",
        min_length = 1,
        max_length = 140,
        pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"
    )]
    pub family_name: String,
}

/// The terms of a new account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"currency": "EUR", "overdraft_limit": "0.00", "holder": {"given_name": "Ada", "family_name": "Byron"}}))]
pub struct OpenAccountRequest {
    /// ISO 4217; never changes.
    #[schema(value_type = String, example = "EUR", min_length = 3, max_length = 3, pattern = "^[A-Z]{3}$")]
    pub currency: CurrencyCode,
    /// How far below zero withdrawals may go; zero when absent.
    #[schema(value_type = Option<String>, example = "0.00")]
    pub overdraft_limit: Option<DecimalText>,
    /// Who holds it.
    pub holder: Option<Holder>,
}

/// New terms of an account. What is absent stays as it is; at least one member is needed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"overdraft_limit": "500.00"}))]
pub struct ChangeAccountRequest {
    /// How far below zero withdrawals may go.
    #[schema(value_type = Option<String>, example = "500.00")]
    pub overdraft_limit: Option<DecimalText>,
    /// `open` or `closed`. Closing needs a zero balance.
    #[schema(example = "closed", pattern = "^(open|closed)$")]
    pub status: Option<String>,
}

/// An account as it now is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11", "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22",
    "currency": "EUR", "status": "open", "balance": "12.30", "available": "12.30", "overdraft_limit": "0.00",
    "version": 7, "opened_at": "2026-11-21T08:00:00.123Z"
}))]
pub struct Account {
    /// Whose account.
    #[schema(format = "uuid")]
    pub user_id: String,
    /// Which of the user's accounts.
    #[schema(format = "uuid")]
    pub account_id: String,
    /// ISO 4217.
    #[schema(pattern = "^[A-Z]{3}$")]
    pub currency: String,
    /// `open` or `closed`.
    #[schema(pattern = "^(open|closed)$")]
    #[serde(deserialize_with = "codes::account_status")]
    pub status: Cow<'static, str>,
    /// The sum of its posted transactions.
    #[schema(pattern = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub balance: String,
    /// What can be withdrawn now: balance plus overdraft limit, never below zero.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub available: String,
    /// How far below zero withdrawals may go.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub overdraft_limit: String,
    /// Grows with every change.
    pub version: u64,
    /// When it was opened.
    #[schema(format = "date-time")]
    pub opened_at: String,
    /// Who holds it, if that was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
}

/// A page of accounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountPage {
    /// By account id.
    pub accounts: Vec<Account>,
    /// Pass it as `cursor` for the next page; null at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A transaction as it now is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "message_id": "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11",
    "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22", "type": "deposit", "amount": "125.50", "currency": "EUR",
    "status": "posted", "reference": "invoice 7", "metadata": {"shop": "12"},
    "accepted_at": "2026-11-21T08:00:00.123Z", "order_number": "10000422", "sequence": 12,
    "balance_after": "325.50", "posted_at": "2026-11-21T08:00:00.321Z"
}))]
pub struct Transaction {
    /// The partner's id of it.
    #[schema(format = "uuid")]
    pub message_id: String,
    /// Whose account.
    #[schema(format = "uuid")]
    pub user_id: String,
    /// The account.
    #[schema(format = "uuid")]
    pub account_id: String,
    /// `deposit` or `withdrawal`.
    #[schema(pattern = "^(deposit|withdrawal)$")]
    #[serde(deserialize_with = "codes::transaction_type")]
    pub r#type: Cow<'static, str>,
    /// How much.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub amount: String,
    /// ISO 4217.
    #[schema(pattern = "^[A-Z]{3}$")]
    pub currency: String,
    /// `accepted`, `posted` or `rejected`. The last two are final.
    #[schema(pattern = "^(accepted|posted|rejected)$")]
    #[serde(deserialize_with = "codes::transaction_status")]
    pub status: Cow<'static, str>,
    /// The words on the statement.
    #[schema(min_length = 1, max_length = 140)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The partner's own data.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// When it was accepted.
    #[schema(format = "date-time")]
    pub accepted_at: String,
    /// When posted: the number that people quote, with a check digit at its end.
    #[schema(pattern = "^[0-9]+$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_number: Option<String>,
    /// When posted: its place in the account's journal, from 1.
    #[schema(minimum = 1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// When posted: the balance right after it.
    #[schema(pattern = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance_after: Option<String>,
    /// When posted: since when.
    #[schema(format = "date-time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posted_at: Option<String>,
    /// When rejected: `insufficient_funds`, `account_closed`, `account_unknown`,
    /// `currency_mismatch`, `amount_out_of_range` or `discarded`.
    #[schema(
        pattern = "^(insufficient_funds|account_closed|account_unknown|currency_mismatch|amount_out_of_range|discarded)$"
    )]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "codes::reason")]
    pub reason: Option<Cow<'static, str>>,
    /// When rejected: since when.
    #[schema(format = "date-time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_at: Option<String>,
    /// Members of the request that are not listed here, as they were sent.
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub unknown_members: RawMembers,
    /// Elements of other namespaces that a request in XML held, each as it was written. They are part of answers in
    /// XML only.
    #[serde(skip)]
    pub unknown_elements: Vec<String>,
}

/// A page of transactions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransactionPage {
    /// Posted ones: oldest first.
    pub transactions: Vec<Transaction>,
    /// Pass it as `cursor` for the next page; null at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// Why a request was refused (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Names the kind of problem: `urn:postonce:problem:` and the code.
    #[schema(example = "urn:postonce:problem:validation_failed", pattern = "^urn:postonce:problem:[a-z_]+$")]
    pub r#type: String,
    /// The kind of problem, for people.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What was wrong this time, and what to do about it.
    pub detail: String,
    /// The kind of problem, for programs. Never changes.
    #[schema(example = "validation_failed", pattern = "^[a-z_]+$")]
    pub code: Cow<'static, str>,
    /// What is wrong with the input, all of it at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
}

/// One thing that is wrong with the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// The member, such as `amount` or `metadata.shop`.
    pub field: String,
    /// What is allowed.
    pub message: String,
}

/// Whether the service can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// `ok` or `unavailable`.
    #[schema(pattern = "^(ok|unavailable)$")]
    #[serde(deserialize_with = "codes::health")]
    pub status: Cow<'static, str>,
    /// What is missing, such as `ledger` or `queue`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Cow<'static, str>>,
}
