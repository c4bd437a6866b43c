//! Records the order numbers of postings in an index, after the postings, for stores that cannot find every posting
//! themselves. A hundred consecutive numbers take one operation.
//!
//! Numbers that a process has not recorded when it ends are recorded later by the scrubber.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::domain::ids::{OrderNumber, TransactionKey};
use crate::domain::transaction::Outcome;
use crate::ports::fault::StoreFault;
use crate::ports::order_number_index::{BLOCK_NUMBERS, OrderNumberIndex, block_of};
use crate::ports::world::World;

/// Longest time for which an incomplete block waits for further numbers.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Largest number of waiting blocks, which an outage of the store can fill. The scrubber records all further numbers.
const BLOCKS_MAX: usize = 1000;

/// The postings of this process whose numbers are not recorded yet.
pub struct PostedNumbers {
    index: Arc<dyn OrderNumberIndex>,
    world: Arc<dyn World>,
    /// The waiting numbers by block.
    waiting: Mutex<BTreeMap<u64, Block>>,
}

#[derive(Debug)]
struct Block {
    /// The uptime of the process when the first number of the block was added.
    since: Duration,
    numbers: BTreeMap<OrderNumber, TransactionKey>,
}

impl Block {
    fn is_complete(&self) -> bool {
        u64::try_from(self.numbers.len()).is_ok_and(|count| count >= BLOCK_NUMBERS)
    }
}

impl PostedNumbers {
    /// Creates an empty list for an index.
    pub fn new(index: Arc<dyn OrderNumberIndex>, world: Arc<dyn World>) -> Self {
        Self { index, world, waiting: Mutex::default() }
    }

    /// Adds the order numbers of committed postings.
    pub fn note<'a>(&self, outcomes: impl Iterator<Item = (&'a TransactionKey, &'a Outcome)>) {
        if self.index.contains_every_posting() {
            return;
        }
        let now = self.world.uptime();
        let mut waiting = self.waiting.lock();
        for (key, outcome) in outcomes {
            let Some(number) = outcome.order_number() else { continue };
            if waiting.len() >= BLOCKS_MAX && !waiting.contains_key(&block_of(number)) {
                tracing::warn!(
                    "The order number {number} is left to the scrubber: too many wait to be recorded"
                );
                continue;
            }
            let block = waiting.entry(block_of(number));
            let block = block.or_insert_with(|| Block { since: now, numbers: BTreeMap::new() });
            block.numbers.insert(number, key.clone());
        }
    }

    /// Returns whether a block is complete or has waited long enough.
    pub fn is_due(&self) -> bool {
        let now = self.world.uptime();
        self.waiting.lock().values().any(|block| is_due(block, now))
    }

    /// Records the blocks that are due, or all of them. If the caller is cancelled, unrecorded numbers wait for the next call.
    ///
    /// # Errors
    /// The first [`StoreFault`]. Blocks that were not recorded wait for the next call.
    pub async fn record(&self, everything: bool) -> Result<(), StoreFault> {
        let now = self.world.uptime();
        let due: Vec<u64> = {
            let waiting = self.waiting.lock();
            let due = waiting.iter().filter(|(_, block)| everything || is_due(block, now));
            due.map(|(number, _)| *number).collect()
        };
        let mut first_fault = None;
        for block in due {
            let entries = self.entries(block);
            match self.index.record(&entries).await {
                Ok(()) => self.remove(block, &entries),
                Err(fault) => {
                    // A refusal may concern only this block.
                    let is_outage = matches!(fault, StoreFault::Unavailable { .. });
                    first_fault.get_or_insert(fault);
                    if is_outage {
                        break;
                    }
                }
            }
        }
        first_fault.map_or(Ok(()), Err)
    }

    fn entries(&self, block: u64) -> Vec<(OrderNumber, TransactionKey)> {
        let waiting = self.waiting.lock();
        let numbers = waiting.get(&block).into_iter().flat_map(|block| &block.numbers);
        numbers.map(|(number, key)| (*number, key.clone())).collect()
    }

    /// Removes recorded numbers. Further numbers of the block may have been added meanwhile.
    fn remove(&self, block: u64, recorded: &[(OrderNumber, TransactionKey)]) {
        let mut waiting = self.waiting.lock();
        let Some(rest) = waiting.get_mut(&block) else { return };
        recorded.iter().for_each(|(number, _)| drop(rest.numbers.remove(number)));
        if rest.numbers.is_empty() {
            waiting.remove(&block);
        }
    }
}

fn is_due(block: &Block, now: Duration) -> bool {
    block.is_complete() || now.saturating_sub(block.since) >= WAIT_MAX
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;
    use crate::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, UserId};
    use crate::domain::money::{Balance, Currency};
    use crate::domain::time::Timestamp;
    use crate::ports::Store;
    use crate::ports::order_number_index::RecordedNumbers;
    use crate::testing::decorators::OrderNumberIndexDecorator;
    use crate::testing::faults::lose;

    fn posting(counter: u64) -> (TransactionKey, Outcome) {
        let id = Uuid::from_u128(u128::from(counter));
        let account = AccountKey { user: UserId::from_uuid(id), account: AccountId::from_uuid(id) };
        let partner = PartnerId::parse("shop").unwrap();
        let outcome = Outcome::Posted {
            order_number: OrderNumber::from_counter(counter),
            sequence: 1,
            balance_after: Balance::zero(Currency::parse("EUR").unwrap()),
            posted_at: Timestamp::from_unix_ms(0),
        };
        (TransactionKey { account, partner, message: MessageId::from_uuid(id) }, outcome)
    }

    fn note(numbers: &PostedNumbers, counters: impl Iterator<Item = u64>) {
        let postings: Vec<_> = counters.map(posting).collect();
        numbers.note(postings.iter().map(|(key, outcome)| (key, outcome)));
    }

    struct Fixture {
        world: Arc<TestWorld>,
        store: Store,
        numbers: PostedNumbers,
    }

    fn fixture() -> Fixture {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::empty(world.clone()).recording_numbers().ports();
        let numbers = PostedNumbers::new(Arc::clone(&store.order_numbers), world.clone());
        Fixture { world, store, numbers }
    }

    impl Fixture {
        async fn recorded(&self) -> usize {
            let RecordedNumbers { numbers, next_block } = self.store.order_numbers.recorded(0).await.unwrap();
            assert_eq!(next_block, None);
            numbers.len()
        }

        fn writes(&self) -> u64 {
            let operations = self.store.operations.snapshot();
            operations
                .iter()
                .filter(|(operation, _)| operation.name == "merge")
                .map(|(_, count)| *count)
                .sum()
        }
    }

    #[tokio::test]
    async fn a_hundred_consecutive_numbers_cost_one_operation() {
        let fixture = fixture();
        note(&fixture.numbers, 100..250);
        assert!(fixture.numbers.is_due());
        fixture.numbers.record(false).await.unwrap();
        assert_eq!((fixture.recorded().await, fixture.writes()), (100, 1), "the second block is incomplete");
        assert!(!fixture.numbers.is_due());
        note(&fixture.numbers, 250..300);
        fixture.numbers.record(false).await.unwrap();
        assert_eq!((fixture.recorded().await, fixture.writes()), (200, 2));
        let (key, _) = posting(217);
        assert_eq!(
            fixture.store.order_numbers.find(OrderNumber::from_counter(217)).await.unwrap(),
            Some(key)
        );
    }

    #[tokio::test]
    async fn an_incomplete_block_is_recorded_after_a_short_time_or_at_the_end() {
        let fixture = fixture();
        note(&fixture.numbers, 7..9);
        fixture.world.advance(WAIT_MAX.checked_sub(Duration::from_millis(1)).unwrap());
        assert!(!fixture.numbers.is_due());
        fixture.world.advance(Duration::from_millis(1));
        assert!(fixture.numbers.is_due());
        fixture.numbers.record(false).await.unwrap();
        assert_eq!((fixture.recorded().await, fixture.numbers.is_due()), (2, false));
        note(&fixture.numbers, 9..10);
        fixture.numbers.record(true).await.unwrap();
        assert_eq!(fixture.recorded().await, 3, "the process ends");
    }

    struct Refusing(Arc<dyn OrderNumberIndex>);

    #[async_trait::async_trait]
    impl OrderNumberIndexDecorator for Refusing {
        fn inner(&self) -> &dyn OrderNumberIndex {
            &*self.0
        }

        async fn record(&self, block: &[(OrderNumber, TransactionKey)]) -> Result<(), StoreFault> {
            if block.iter().any(|(number, _)| block_of(*number) == 0) {
                return Err(StoreFault::Refused { doing: "recording", source: "not this block".into() });
            }
            self.0.record(block).await
        }
    }

    #[tokio::test]
    async fn a_block_that_is_refused_does_not_hinder_the_others() {
        let Fixture { world, store, .. } = fixture();
        let numbers = PostedNumbers::new(Arc::new(Refusing(Arc::clone(&store.order_numbers))), world);
        note(&numbers, 0..200);
        assert!(numbers.record(false).await.is_err());
        let found =
            async |counter| store.order_numbers.find(OrderNumber::from_counter(counter)).await.unwrap();
        assert!(found(199).await.is_some() && found(99).await.is_none());
        assert_eq!(numbers.waiting.lock().len(), 1);
    }

    #[tokio::test]
    async fn numbers_wait_during_an_outage_within_a_bound() {
        let Fixture { world, store, numbers } = fixture();
        let mut unavailable = store.clone();
        lose(&mut unavailable, "OrderNumberIndex::record", u32::MAX);
        let failing = PostedNumbers::new(unavailable.order_numbers, world);
        note(&failing, 0..100);
        assert!(failing.record(false).await.is_err());
        note(&failing, (1..2000).map(|block| block * BLOCK_NUMBERS));
        assert_eq!(failing.waiting.lock().len(), BLOCKS_MAX);
        // As if the outage had ended.
        *numbers.waiting.lock() = std::mem::take(&mut *failing.waiting.lock());
        numbers.record(false).await.unwrap();
        assert!(store.order_numbers.find(OrderNumber::from_counter(99)).await.unwrap().is_some());
    }
}
