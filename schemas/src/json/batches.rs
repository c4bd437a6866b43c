//! JSON bodies of the operations on batches. `postonce-web batches submit` reads the answers, also those of a newer service:
//! unknown members are ignored, although the schemas do not allow them ([`super::add_rules`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::Validate;

use super::codes::{self, BatchHindranceCode, BatchItemStatus, BatchOnInvalid, BatchPhase, RejectReason};

/// The addressee of an item of a batch. The other members of an item are those of a `TransactionRequest`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
pub struct BatchItem {
    /// The user who owns the account.
    #[schema(format = "uuid")]
    pub user_id: String,
    /// The account.
    #[schema(format = "uuid")]
    pub account_id: String,
    /// Your id of the transaction, as `Idempotency-Key` of a single request.
    #[schema(format = "uuid")]
    pub message_id: String,
    /// `deposit` or `withdrawal`.
    #[schema(example = "deposit", pattern = "^(deposit|withdrawal)$")]
    #[validate(custom(function = "codes::is_transaction_type"))]
    pub r#type: String,
}

/// The first record of a batch whose document contains its control totals. It is not an item, so it has no line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"control": {"count": 4, "sums": {"EUR": "1250.00", "USD": "7.00"}}}))]
pub struct BatchControl {
    /// The totals. A document with others is refused.
    pub control: ControlTotals,
}

/// The totals that the items of a batch must have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlTotals {
    /// The number of items.
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub count: Option<u32>,
    /// The sum of all amounts in each currency, deposits and withdrawals together: a decimal number each, as a string.
    #[schema(example = json!({"EUR": "1250.00", "USD": "7.00"}))]
    pub sums: Option<BTreeMap<String, String>>,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// Your id of the batch.
    #[schema(format = "uuid")]
    pub batch_id: String,
    /// `received`, `splitting`, `posting`, `completed` or `cancelled`.
    #[schema(value_type = String, pattern = "^(received|splitting|posting|completed|cancelled)$", example = "posting")]
    pub phase: BatchPhase,
    /// What becomes of items that break a rule: `refuse` or `skip`.
    #[schema(value_type = String, pattern = "^(refuse|skip)$", example = "refuse")]
    pub on_invalid: BatchOnInvalid,
    /// The number of items in the document.
    pub items: u64,
    /// Items that this batch posted.
    pub posted: u64,
    /// Items that the bank rejected.
    pub rejected: u64,
    /// Items whose id was used before with other content.
    pub refused: u64,
    /// Items that were sent before, alone or in another batch.
    pub replayed: u64,
    /// Items that break a rule.
    pub invalid: u64,
    /// The posted money, by currency and type.
    pub sums: Vec<BatchSum>,
    /// The storage operations of its steps so far, per item: a decimal number.
    #[schema(example = "0.021", pattern = r"^[0-9]+\.[0-9]{3}$")]
    pub operations_per_item: String,
    /// What they cost per million items at the configured prices, in US dollars.
    #[schema(example = "0.210000000", pattern = r"^[0-9]+\.[0-9]{9}$")]
    pub usd_per_million_items: String,
    /// The time when the document was stored.
    #[schema(format = DateTime)]
    pub received_at: String,
    /// Items per second, while the batch is posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_per_second: Option<u64>,
    /// The time of the completion at that rate.
    #[schema(format = DateTime)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_end: Option<String>,
    /// What hinders the batch now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hindrance: Option<BatchHindrance>,
    /// The time when all items were final.
    #[schema(format = DateTime)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// The time of the cancellation.
    #[schema(format = DateTime)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<String>,
}

impl Batch {
    /// Returns the number of items with an outcome.
    pub fn done(&self) -> u64 {
        let Self { posted, rejected, refused, replayed, invalid, .. } = *self;
        [posted, rejected, refused, replayed, invalid].into_iter().fold(0, u64::saturating_add)
    }
}

impl BatchPhase {
    /// Returns whether the batch does not change any more.
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Completed | Self::Cancelled => true,
            Self::Received | Self::Splitting | Self::Posting | Self::Other(_) => false,
        }
    }
}

/// What hinders a batch. The next progress ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchHindrance {
    /// The reason, as a code for programs. Later versions may have more codes.
    #[schema(value_type = String, example = "store_unavailable", pattern = "^[a-z_]+$")]
    pub code: BatchHindranceCode,
    /// The reason, as text for humans, with what follows from it.
    #[schema(example = "The store does not answer. The work is tried again.")]
    pub message: Cow<'static, str>,
    /// The time when it was observed.
    #[schema(format = DateTime)]
    pub at: String,
}

/// The posted money of a batch in one currency and direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchSum {
    /// The currency (ISO 4217).
    #[schema(min_length = 3, max_length = 3, pattern = "^[A-Z]{3}$", example = "EUR")]
    pub currency: Cow<'static, str>,
    /// `deposit` or `withdrawal`.
    #[schema(pattern = "^(deposit|withdrawal)$", example = "deposit")]
    pub r#type: Cow<'static, str>,
    /// The sum, a decimal number.
    #[schema(example = "1250.00", pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    pub posted: String,
}

/// A page of batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchPage {
    /// The batches, by id.
    pub batches: Vec<Batch>,
    /// The `cursor` of the next page; null at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A batch with its partner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartnerBatch {
    /// The partner that sent the batch.
    #[schema(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
    pub partner_id: String,
    /// The batch.
    pub batch: Batch,
}

/// A page of batches with their partners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartnerBatchPage {
    /// The batches, by partner and id.
    pub batches: Vec<PartnerBatch>,
    /// The `cursor` of the next page; null at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// The result of an item of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchResult {
    /// The number of the item in the document, from 1.
    #[schema(minimum = 1)]
    pub line: u32,
    /// Your id of the transaction; absent if an invalid item has none that can be read.
    #[schema(format = "uuid")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// `posted`, `rejected`, `refused`, `replayed` or `invalid`.
    #[schema(value_type = String, pattern = "^(posted|rejected|refused|replayed|invalid)$", example = "posted")]
    pub status: BatchItemStatus,
    /// The number that people quote, if the transaction is posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_number: Option<String>,
    /// The balance right after the transaction, if it is posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance_after: Option<String>,
    /// The reason, if the transaction is not posted.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<RejectReason>,
}
