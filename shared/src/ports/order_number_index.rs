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

/// The result of one read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedNumbers {
    /// The recorded numbers, in order.
    pub numbers: Vec<OrderNumber>,
    /// The block that the next read starts at: the numbers of all earlier blocks from the start of the read are included.
    /// `None` if no recorded numbers follow.
    pub next_block: Option<u64>,
}

/// Finds transactions by their order numbers.
///
/// Some stores can find every posting without further records. In others, numbers are recorded after the postings, so that
/// a posting costs no additional operation. An entry is a hint: read the transaction to verify it.
#[async_trait]
pub trait OrderNumberIndex: Send + Sync {
    /// Returns whether every posting can be found as soon as it is committed, so that nothing needs to be recorded. The
    /// value never changes.
    fn contains_every_posting(&self) -> bool;

    /// Returns the key of the transaction with this number; `None` if the number is not recorded.
    async fn find(&self, number: OrderNumber) -> Result<Option<TransactionKey>, StoreFault>;

    /// Records at most [`BLOCK_NUMBERS`] numbers of one block, atomically. Other numbers of the block stay. After a fault
    /// they may be recorded, and the call can be repeated. Has no effect if the index contains every posting.
    async fn record(&self, block: &[(OrderNumber, TransactionKey)]) -> Result<(), StoreFault>;

    /// Returns recorded numbers from the start of a block on, as many as one read can return; none if the index contains
    /// every posting.
    async fn recorded(&self, first_block: u64) -> Result<RecordedNumbers, StoreFault>;
}
