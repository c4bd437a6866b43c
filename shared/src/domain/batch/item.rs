//! An item of a batch and its result.

use super::ItemStatus;
use crate::domain::ids::{AccountKey, MessageId, OrderNumber};
use crate::domain::instruction::Instruction;
use crate::domain::money::Balance;
use crate::domain::rejection::RejectReason;

/// An item that is valid in form.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The number of the item in the document, from 1.
    pub line: u32,
    /// The account that the item debits or credits.
    pub account: AccountKey,
    /// The partner's id of the transaction.
    pub message: MessageId,
    /// The request to move money.
    pub instruction: Instruction,
}

/// The outcome that is reported for an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemOutcome {
    /// The money was moved, by this batch or before.
    Posted {
        /// The order number of the posting.
        order_number: OrderNumber,
        /// The balance right after the entry.
        balance_after: Balance,
    },
    /// The transaction is rejected.
    Rejected(RejectReason),
    /// The key belongs to an earlier transaction with another content.
    KeyReused,
}

/// The result of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemResult {
    /// The number of the item in the document, from 1.
    pub line: u32,
    /// The partner's id of the transaction.
    pub message: MessageId,
    /// The status in the report.
    pub status: ItemStatus,
    /// The outcome in the report.
    pub outcome: ItemOutcome,
}
