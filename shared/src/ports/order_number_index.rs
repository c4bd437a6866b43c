//! Finds transactions by their order numbers.

use async_trait::async_trait;

use super::fault::StoreFault;
use crate::domain::ids::{OrderNumber, TransactionKey};

/// Number of consecutive order numbers in a block. Block `n` contains the counters from `n * 100` to `n * 100 + 99`.
pub const BLOCK_NUMBERS: u64 = 100;

/// Returns the block of an order number.
pub const fn block_of(number: OrderNumber) -> u64 {
    number.counter().div_euclid(BLOCK_NUMBERS)
}

/// The recorded numbers that one read returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedNumbers {
    /// The recorded numbers, in order.
    pub numbers: Vec<OrderNumber>,
    /// All recorded numbers before this block, and from the block of the read on, are among them; `None` if no recorded ones
    /// follow.
    pub next_block: Option<u64>,
}

/// Finds transactions by their order numbers.
///
/// Some stores find every posting by themselves; in others, numbers are recorded behind the postings, so that a posting
/// costs no further operation. An entry is a hint: read the transaction to check it.
#[async_trait]
pub trait OrderNumberIndex: Send + Sync {
    /// Returns whether every posting can be found as soon as it is committed. Then nothing needs to be recorded. The value
    /// never changes.
    fn contains_every_posting(&self) -> bool;

    /// Returns the key of the transaction with this number; `None` if it was not recorded.
    async fn find(&self, number: OrderNumber) -> Result<Option<TransactionKey>, StoreFault>;

    /// Records numbers of one block, at most [`BLOCK_NUMBERS`], in one atomic step. Other numbers of the block stay. After a
    /// fault they may be recorded; it is safe to repeat the call. No effect if the index contains every posting.
    async fn record(&self, block: &[(OrderNumber, TransactionKey)]) -> Result<(), StoreFault>;

    /// Returns recorded numbers from the start of a block on, as many as one read returns; none if the index contains every
    /// posting.
    async fn recorded(&self, first_block: u64) -> Result<RecordedNumbers, StoreFault>;
}
