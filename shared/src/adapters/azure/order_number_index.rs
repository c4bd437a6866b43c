//! The index of order numbers, which is updated after the postings. One row contains a hundred consecutive numbers, so
//! the index costs a hundredth of an operation per posting. A row has one property per recorded number, whose value is
//! the key of the transaction's row as text. A merge adds properties and leaves the others unchanged, so several
//! processes can record numbers of the same block.

use std::sync::Arc;

use async_trait::async_trait;

use super::attempt::Retries;
use super::invalid_property::InvalidProperty;
use super::keys::Key;
use super::rows::corrupt;
use super::table::{Found, Properties, ROWS_MAX, Scanned, Table};
use crate::domain::ids::{OrderNumber, TransactionKey};
use crate::ports::fault::StoreFault;
use crate::ports::order_number_index::{BLOCK_NUMBERS, OrderNumberIndex, RecordedNumbers, block_of};
use crate::ports::world::World;

/// The partition of all rows. One row per hundred postings is far below the request rate that a partition allows.
const PARTITION: &str = "number";
/// Prefix of property names. Two digits follow, the position in the block.
const PROPERTY: &str = "N";

pub(super) struct AzureOrderNumberIndex {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

#[async_trait]
impl OrderNumberIndex for AzureOrderNumberIndex {
    fn contains_every_posting(&self) -> bool {
        false
    }

    async fn find(&self, number: OrderNumber) -> Result<Option<TransactionKey>, StoreFault> {
        let doing = "finding an order number";
        let key = row_key(block_of(number));
        let found = Retries::new(&self.world).retry_read(|| self.table.get(&key)).await;
        let Some(found) = found.map_err(|failure| failure.into_fault(doing))? else { return Ok(None) };
        let Some(text) = found.properties.get(&property(number)) else { return Ok(None) };
        let transaction =
            text.as_str().and_then(|text| text.split_once('/')).ok_or(InvalidProperty(PROPERTY));
        let transaction = transaction
            .and_then(|(partition, row)| Key::stored(partition.to_owned(), row.to_owned()).to_transaction());
        transaction.map(Some).map_err(|invalid| corrupt(&found, doing, invalid))
    }

    async fn record(&self, block: &[(OrderNumber, TransactionKey)]) -> Result<(), StoreFault> {
        let Some((first, _)) = block.first() else { return Ok(()) };
        let key = row_key(block_of(*first));
        debug_assert!(
            block.iter().all(|(number, _)| block_of(*number) == block_of(*first)),
            "they are of one block"
        );
        let entry = |(number, transaction): &(OrderNumber, TransactionKey)| {
            (property(*number), Key::transaction(transaction).to_string().into())
        };
        let row: Properties = block.iter().map(entry).collect();
        let mut retries = Retries::new(&self.world);
        let recorded = retries.retry_write(|| self.table.add_properties(&key, &row)).await;
        recorded.map_err(|failure| retries.fault(failure, "recording order numbers"))
    }

    async fn recorded(&self, first_block: u64) -> Result<RecordedNumbers, StoreFault> {
        let doing = "reading recorded order numbers";
        let first = row_key(first_block);
        let filter = format!("PartitionKey eq '{PARTITION}' and RowKey ge '{}'", first.row());
        let scan = || self.table.scan(&filter, ROWS_MAX, None);
        let scanned = Retries::new(&self.world).retry_read(scan).await;
        let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
        let mut numbers = Vec::new();
        for found in &rows {
            numbers_of(found, &mut numbers).map_err(|invalid| corrupt(found, doing, invalid))?;
        }
        numbers.sort_unstable();
        // A response can be empty although more rows follow.
        let reached = rows.last().and_then(|last| block(last).ok());
        let next_block = next.map(|_| reached.map_or(first_block, |reached| reached.saturating_add(1)));
        Ok(RecordedNumbers { numbers, next_block })
    }
}

/// Returns the key of the row of a block. Fifteen digits are enough for every valid order number.
fn row_key(block: u64) -> Key {
    Key::new(PARTITION, format!("{block:015}"))
}

fn property(number: OrderNumber) -> String {
    format!("{PROPERTY}{:02}", number.counter().rem_euclid(BLOCK_NUMBERS))
}

fn block(found: &Found) -> Result<u64, InvalidProperty> {
    found.key.row().parse().map_err(|_| InvalidProperty("RowKey"))
}

/// Adds the numbers that are recorded in a row.
fn numbers_of(found: &Found, numbers: &mut Vec<OrderNumber>) -> Result<(), InvalidProperty> {
    let first = block(found)?.saturating_mul(BLOCK_NUMBERS);
    for name in found.properties.keys() {
        let Some(position) = name.strip_prefix(PROPERTY).and_then(|digits| digits.parse::<u64>().ok()) else {
            continue;
        };
        let counter = first.saturating_add(position);
        if position >= BLOCK_NUMBERS || counter > OrderNumber::COUNTER_MAX {
            return Err(InvalidProperty(PROPERTY));
        }
        numbers.push(OrderNumber::from_counter(counter));
    }
    Ok(())
}
