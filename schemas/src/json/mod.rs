//! The JSON bodies of the HTTP API, one struct each. The names and the order of the members are the contract: the parsers and
//! writers of all formats, the OpenAPI document and the JSON Schema are derived from these structs.
//!
//! Amounts are always decimal strings, because most clients would convert a JSON number to a binary float. Times are in UTC in
//! the format of RFC 3339, with milliseconds. Members without a value are omitted.
#![expect(
    clippy::disallowed_types,
    reason = "serde names floats in what it derives for a struct with flattened members"
)]

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::{Validate, ValidationError};

mod batches;
pub mod codes;
mod costs;
mod exact;
mod lookups;
mod money;
mod operators;
mod optional;
mod overview;
mod partners;
mod raw;
pub mod rules;

pub use self::batches::{
    Batch, BatchControl, BatchHindrance, BatchItem, BatchPage, BatchResult, BatchSum, ControlTotals,
    PartnerBatch, PartnerBatchPage,
};
pub use self::codes::{
    BatchHindranceCode, BatchItemStatus, BatchOnInvalid, BatchPhase, RejectReason, TransactionEventKind,
    TransactionWay,
};
pub use self::costs::{ProcessCost, Scale, StorageOperation, StorageOperations};
pub use self::exact::{add, add_rules};
pub use self::lookups::{FoundTransaction, FoundTransactions, TransactionEvent};
pub use self::money::codes_by_decimals;
pub use self::operators::{
    Anchor, AnchorPage, AuditPage, AuditRow, DeadLetter, DeadLetterPage, Gate, GateChange, GateChanged,
    GateListener, OrderNumberRange, OrderNumbers, Queue, QueueList, Resolution, Scrubber, ScrubberFinding,
    ScrubberRecovery, ScrubberRound,
};
pub use self::overview::{
    Overview, OverviewActivity, OverviewCosts, OverviewProcess, OverviewQueue, OverviewRates,
};
pub use self::partners::{
    Key, NewPartnerKey, Partner, PartnerAccount, PartnerKey, PartnerKeyRequest, PartnerPage, PartnerRate,
    PartnerReach, PartnerSignatureKey, PartnerSignatureKeyRequest, PartnerTerms, Scopes,
};
pub use self::raw::RawMembers;
use self::rules::{LINE_CHARS_MAX, Metadata};

/// A decimal number as text. The text of `expecting` is part of error messages.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a string such as \"12.50\"")]
pub struct DecimalText(pub String);

/// A currency code of ISO 4217.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a currency code of ISO 4217, such as \"EUR\"")]
pub struct CurrencyCode(pub String);

/// A request for a deposit or a withdrawal.
///
/// Members that are not listed here are stored as part of the content: a request that repeats an id with other
/// values in them is refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[schema(example = json!({"amount": "125.50", "currency": "EUR", "reference": "invoice 7", "metadata": {"shop": "12"}}))]
pub struct TransactionRequest {
    /// A decimal number greater than zero, as a string, with at most as many decimals as the currency has.
    #[schema(value_type = String, example = "125.50", pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub amount: DecimalText,
    /// The currency of the account (ISO 4217).
    #[schema(value_type = String, example = "EUR", min_length = 3, max_length = 3, pattern = "^[A-Z]{3}$")]
    pub currency: CurrencyCode,
    /// The text for the statement.
    #[schema(min_length = 1, max_length = 140, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    #[validate(length(min = 1, max = LINE_CHARS_MAX), non_control_character)]
    pub reference: Option<String>,
    /// Your own data, returned unchanged: at most 20 members with names of 1 to 40 characters, at most 2048 bytes
    /// in total.
    #[schema(value_type = Option<BTreeMap<String, String>>, example = json!({"shop": "12"}))]
    #[validate(nested)]
    pub metadata: Option<Metadata>,
}

/// The holder of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Given name.
    #[schema(
        example = "Ada",
        min_length = 1,
        max_length = 140,
        pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"
    )]
    #[validate(length(min = 1, max = LINE_CHARS_MAX), non_control_character)]
    pub given_name: String,
    /// Family name.
    #[schema(
        example = "Byron",
        min_length = 1,
        max_length = 140,
        pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"
    )]
    #[validate(length(min = 1, max = LINE_CHARS_MAX), non_control_character)]
    pub family_name: String,
}

/// The terms of a new account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"currency": "EUR", "overdraft_limit": "0.00", "holder": {"given_name": "Ada", "family_name": "Byron"}}))]
pub struct OpenAccountRequest {
    /// The currency (ISO 4217). It never changes.
    #[schema(value_type = String, example = "EUR", min_length = 3, max_length = 3, pattern = "^[A-Z]{3}$")]
    pub currency: CurrencyCode,
    /// The amount by which withdrawals may overdraw the account; zero if absent.
    #[schema(value_type = Option<String>, example = "0.00")]
    pub overdraft_limit: Option<DecimalText>,
    /// The holder of the account.
    #[validate(nested)]
    pub holder: Option<Holder>,
}

/// New terms of an account. Absent members keep their value; at least one member is required.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"overdraft_limit": "500.00"}))]
#[validate(schema(function = "at_least_one_change"))]
pub struct ChangeAccountRequest {
    /// The amount by which withdrawals may overdraw the account.
    #[schema(value_type = Option<String>, example = "500.00")]
    pub overdraft_limit: Option<DecimalText>,
    /// `open`, `frozen` or `closed`. Frozen and closed accounts reject every transaction, until they are opened again.
    /// An account can only be closed if its balance is zero.
    #[schema(example = "closed", pattern = "^(open|frozen|closed)$")]
    #[validate(custom(function = "codes::is_account_status"))]
    pub status: Option<String>,
    /// The new holder of the account.
    #[validate(nested)]
    pub holder: Option<Holder>,
}

fn at_least_one_change(change: &ChangeAccountRequest) -> Result<(), ValidationError> {
    let ChangeAccountRequest { overdraft_limit, status, holder } = change;
    if overdraft_limit.is_some() || status.is_some() || holder.is_some() {
        return Ok(());
    }
    Err(rules::broken("no_change", "must contain a change of the limit, the status or the holder"))
}

/// The current state of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11", "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22",
    "currency": "EUR", "status": "open", "balance": "12.30", "available": "12.30", "overdraft_limit": "0.00",
    "version": 7, "opened_at": "2026-11-21T08:00:00.123Z"
}))]
pub struct Account {
    /// The user that the account belongs to.
    #[schema(format = "uuid")]
    pub user_id: String,
    /// The account of that user.
    #[schema(format = "uuid")]
    pub account_id: String,
    /// The currency (ISO 4217).
    #[schema(pattern = "^[A-Z]{3}$")]
    pub currency: String,
    /// `open`, `frozen` or `closed`.
    #[schema(pattern = "^(open|frozen|closed)$")]
    #[serde(deserialize_with = "codes::account_status")]
    pub status: Cow<'static, str>,
    /// The sum of its posted transactions.
    #[schema(pattern = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub balance: String,
    /// The amount that can be withdrawn now: balance plus overdraft limit, never below zero; zero if the account is not
    /// open.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub available: String,
    /// The amount by which withdrawals may overdraw the account.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub overdraft_limit: String,
    /// Increases with every change.
    pub version: u64,
    /// The time when the account was opened.
    #[schema(format = "date-time")]
    pub opened_at: String,
    /// The holder of the account, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
}

/// A page of accounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountPage {
    /// The accounts, by account id.
    pub accounts: Vec<Account>,
    /// The `cursor` of the next page; null at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// The current state of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "message_id": "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11",
    "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22", "type": "deposit", "amount": "125.50", "currency": "EUR",
    "status": "posted", "reference": "invoice 7", "metadata": {"shop": "12"},
    "accepted_at": "2026-11-21T08:00:00.123Z", "order_number": "10000422", "sequence": 12,
    "balance_after": "325.50", "posted_at": "2026-11-21T08:00:00.321Z"
}))]
pub struct Transaction {
    /// The id that the partner chose for the transaction.
    #[schema(format = "uuid")]
    pub message_id: String,
    /// The user that the account belongs to.
    #[schema(format = "uuid")]
    pub user_id: String,
    /// The account of that user.
    #[schema(format = "uuid")]
    pub account_id: String,
    /// `deposit` or `withdrawal`.
    #[schema(pattern = "^(deposit|withdrawal)$")]
    #[serde(deserialize_with = "codes::transaction_type")]
    pub r#type: Cow<'static, str>,
    /// The amount.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub amount: String,
    /// The currency (ISO 4217).
    #[schema(pattern = "^[A-Z]{3}$")]
    pub currency: String,
    /// `accepted`, `posted` or `rejected`. The last two are final.
    #[schema(pattern = "^(accepted|posted|rejected)$")]
    #[serde(deserialize_with = "codes::transaction_status")]
    pub status: Cow<'static, str>,
    /// The text for the statement.
    #[schema(min_length = 1, max_length = 140)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The partner's own data.
    #[schema(example = json!({"shop": "12"}))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The time when the transaction was accepted.
    #[schema(format = "date-time")]
    pub accepted_at: String,
    /// If posted: the order number, which users can quote. Its last digit is a check digit.
    #[schema(pattern = "^[0-9]+$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_number: Option<String>,
    /// If posted: the position in the journal of the account, starting at 1.
    #[schema(minimum = 1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// If posted: the balance after the transaction.
    #[schema(pattern = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance_after: Option<String>,
    /// If posted: the time of posting.
    #[schema(format = "date-time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posted_at: Option<String>,
    /// If rejected: `insufficient_funds`, `account_closed`, `account_frozen`, `account_unknown`, `currency_mismatch`,
    /// `amount_out_of_range` or `discarded`.
    #[schema(
        value_type = Option<String>,
        pattern = "^(insufficient_funds|account_closed|account_frozen|account_unknown|currency_mismatch|amount_out_of_range|discarded)$"
    )]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "codes::reason")]
    pub reason: Option<RejectReason>,
    /// If rejected: the time of rejection.
    #[schema(format = "date-time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_at: Option<String>,
    /// The partner, in statements with transactions of all partners: absent if it is your own.
    #[schema(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner_id: Option<String>,
    /// Members of the request that are not listed here, unchanged.
    #[serde(default, skip_serializing_if = "RawMembers::is_empty")]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub unknown_members: RawMembers,
    /// The same members. A later version may give one of their names to a member of its own: read `unknown_members`.
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub flattened_members: RawMembers,
    /// Elements of other namespaces in an XML request, each as it was stored. Only responses in XML contain them.
    #[serde(skip)]
    pub unknown_elements: Vec<String>,
}

impl Transaction {
    /// Name of the member that contains unknown members of the request.
    pub const UNKNOWN_MEMBERS: &str = "unknown_members";
    /// Name of the member that contains the id of the partner.
    pub const PARTNER_ID: &str = "partner_id";
}

/// A page of transactions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransactionPage {
    /// The transactions; posted ones are listed oldest first.
    pub transactions: Vec<Transaction>,
    /// The `cursor` of the next page; null at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// The reason why a request was refused (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Identifies the kind of problem: `urn:postonce:problem:` and the code.
    #[schema(example = "urn:postonce:problem:validation_failed", pattern = "^urn:postonce:problem:[a-z_]+$")]
    pub r#type: String,
    /// The kind of problem, as text for humans.
    #[schema(example = "At least one field is not valid")]
    pub title: Cow<'static, str>,
    /// The HTTP status.
    #[schema(example = 422, minimum = 400, maximum = 599)]
    pub status: u16,
    /// What is wrong with this request, and how to correct it.
    #[schema(example = "One field is not valid; see violations.")]
    pub detail: String,
    /// The kind of problem, as a code for programs. It never changes.
    #[schema(example = "validation_failed", pattern = "^[a-z_]+$")]
    pub code: Cow<'static, str>,
    /// For `transaction_rejected`: the reason, as in the transaction.
    #[schema(
        value_type = Option<String>,
        pattern = "^(insufficient_funds|account_closed|account_frozen|account_unknown|currency_mismatch|amount_out_of_range|discarded)$"
    )]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "codes::reason")]
    pub reason: Option<RejectReason>,
    /// All invalid fields of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// The id of the request, as in the header `X-Request-Id` of the answer and in the log. Tell it to the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "9b2d4c6e8f1a4b3c9d5e7f0a1b2c3d4e")]
    pub request_id: Option<String>,
    /// The id of the trace that you sent in `traceparent` (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "9b2d4c6e8f1a4b3c9d5e7f0a1b2c3d4e")]
    pub trace_id: Option<String>,
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// The name of the field, such as `amount` or `metadata.shop`.
    #[schema(example = "amount")]
    pub field: String,
    /// The rule that the field violates.
    #[schema(example = "has more decimals than EUR has (2)")]
    pub message: String,
}

/// The health of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// `ok` or `unavailable`.
    #[schema(example = "ok", pattern = "^(ok|unavailable)$")]
    #[serde(deserialize_with = "codes::health")]
    pub status: Cow<'static, str>,
    /// Version of the program, for liveness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0.1.0")]
    pub version: Option<Cow<'static, str>>,
    /// Commit of the program, abbreviated; `unknown` for a build without a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "3f1c2d9a7b60")]
    pub commit: Option<Cow<'static, str>>,
    /// The parts that are unavailable, such as `ledger` or `queue`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Cow<'static, str>>,
    /// What that means, and since when, for each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<MissingPart>,
    /// When the oldest accepted transaction was accepted that was neither posted nor rejected and is not a dead letter, as the
    /// last walk of the scrubber found it. Only the process that scrubs tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    pub oldest_accepted_at: Option<String>,
}

/// A part of the service that is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MissingPart {
    /// Its name, as in `missing`.
    #[schema(example = "ledger")]
    pub part: String,
    /// What it means that the part is missing.
    #[schema(example = "the ledger does not answer reads and writes")]
    pub reason: String,
    /// The time when this was noticed.
    #[schema(format = "date-time")]
    pub since: String,
}
