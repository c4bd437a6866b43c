//! Finds order numbers, either in the transactions or in a separate index that is updated after the postings, as on Azure.

use async_trait::async_trait;

use super::MemoryStore;
use crate::domain::ids::{OrderNumber, TransactionKey};
use crate::domain::transaction::Outcome;
use crate::ports::fault::StoreFault;
use crate::ports::order_number_index::{BLOCK_NUMBERS, OrderNumberIndex, RecordedNumbers, block_of};

/// Maximum number of recorded blocks per read. It is small, so that tests need several reads.
const BLOCKS_READ: usize = 4;

#[async_trait]
impl OrderNumberIndex for MemoryStore {
    fn contains_every_posting(&self) -> bool {
        !self.records_numbers
    }

    async fn find(&self, number: OrderNumber) -> Result<Option<TransactionKey>, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| {
            if self.records_numbers {
                return tables.recorded_numbers.get(&number).cloned();
            }
            let mut rows = tables.ledger.transactions.iter();
            let number_of = |outcome: &Option<Outcome>| outcome.as_ref().and_then(Outcome::order_number);
            let found = rows.find(|(_, row)| number_of(&row.stored.outcome) == Some(number));
            found.map(|(key, _)| key.clone())
        }))
    }

    async fn record(&self, block: &[(OrderNumber, TransactionKey)]) -> Result<(), StoreFault> {
        assert_block(block);
        if !self.records_numbers {
            return Ok(());
        }
        self.count_row("merge");
        self.step(|tables| tables.recorded_numbers.extend(block.iter().cloned()));
        Ok(())
    }

    async fn recorded(&self, first_block: u64) -> Result<RecordedNumbers, StoreFault> {
        self.count_query();
        Ok(self.step(|tables| {
            let from = OrderNumber::from_counter(first_block.saturating_mul(BLOCK_NUMBERS));
            let (mut numbers, mut blocks) = (Vec::new(), Vec::new());
            for number in tables.recorded_numbers.range(from..).map(|(number, _)| *number) {
                if blocks.last() != Some(&block_of(number)) {
                    if blocks.len() == BLOCKS_READ {
                        return RecordedNumbers { numbers, next_block: Some(block_of(number)) };
                    }
                    blocks.push(block_of(number));
                }
                numbers.push(number);
            }
            RecordedNumbers { numbers, next_block: None }
        }))
    }
}

/// Asserts the preconditions of `record`.
fn assert_block(block: &[(OrderNumber, TransactionKey)]) {
    let first = block.first().map(|(number, _)| block_of(*number));
    assert!(first.is_some(), "nothing is recorded");
    assert!(block.iter().all(|(number, _)| Some(block_of(*number)) == first), "numbers of several blocks");
}
