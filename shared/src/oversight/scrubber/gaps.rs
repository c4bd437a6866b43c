//! Records order numbers that were not recorded behind their postings, because a process ended before: a round compares the
//! postings that it reads with the index.
//!
//! A complete round has compared all postings before its start. So the next one leaves these out, and reads only the part of
//! the index with recent numbers, which one operation returns by ten thousands.

use std::collections::BTreeMap;
use std::time::Duration;

use roaring::RoaringTreemap;
use tracing::warn;

use super::state::Round;
use super::{Claimed, Scrubber};
use crate::domain::ids::{OrderNumber, TransactionKey};
use crate::domain::time::Timestamp;
use crate::domain::transaction::{Outcome, Transaction};
use crate::ports::fault::{StoreFault, chain};
use crate::ports::order_number_index::{OrderNumberIndex, RecordedNumbers, block_of};

/// Time after a posting within which its process may still record it. It also covers differences of clocks.
const RECORDING_TIME: Duration = Duration::from_secs(30 * 60);
/// Storage operations that a step spends on the index at most: the walk goes on, and later rounds do the rest. This limits
/// what the postings of versions cost that did not record them.
const OPERATIONS_PER_STEP_MAX: u64 = 20;
/// Parts of the index that are kept in memory at most.
const PARTS_MAX: usize = 1000;

/// A posting that the walk has read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Posting {
    number: OrderNumber,
    key: TransactionKey,
    posted_at: Timestamp,
}

/// A part of the index as it was read.
#[derive(Debug)]
struct Part {
    /// The first block after it; `None` for the end of the index.
    next_block: Option<u64>,
    recorded: RoaringTreemap,
    read_at: Timestamp,
}

/// The comparison of a walk with the index.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Postings of the current step.
    read: Vec<Posting>,
    /// By first block.
    parts: BTreeMap<u64, Part>,
}

impl Comparison {
    /// Adds a transaction that the walk has read.
    pub(super) fn add(&mut self, transaction: &Transaction) {
        if let Some(Outcome::Posted { order_number, posted_at, .. }) = &transaction.outcome {
            let (number, key, posted_at) = (*order_number, transaction.key.clone(), *posted_at);
            self.read.push(Posting { number, key, posted_at });
        }
    }

    /// Returns whether the number is recorded, as far as a part of the index that was read late enough shows it.
    fn is_recorded(&self, posting: &Posting) -> Option<bool> {
        let block = block_of(posting.number);
        let (_, part) = self.parts.range(..=block).next_back()?;
        let is_covered = part.next_block.is_none_or(|next| block < next);
        let is_recorded = part.recorded.contains(posting.number.counter());
        (is_recorded || is_covered && part.read_at >= posting.posted_at.after(RECORDING_TIME))
            .then_some(is_recorded)
    }

    fn put(
        &mut self,
        first_block: u64,
        RecordedNumbers { numbers, next_block }: RecordedNumbers,
        now: Timestamp,
    ) {
        if self.parts.len() >= PARTS_MAX {
            self.parts.clear();
        }
        let recorded = numbers.into_iter().map(OrderNumber::counter).collect();
        self.parts.insert(first_block, Part { next_block, recorded, read_at: now });
    }
}

/// What a step did with the index.
#[derive(Debug, Default)]
struct Done {
    operations: u64,
    recorded: u64,
    /// Whether postings were left out.
    is_incomplete: bool,
}

impl Scrubber {
    /// Compares the postings of a step with the index, and records missing numbers. Returns the number of operations.
    pub(super) async fn record_missing_numbers(&self, claimed: &mut Claimed) -> u64 {
        let (Some(active), Some(round)) = (&mut claimed.walk, &mut claimed.state.round) else { return 0 };
        let mut read = std::mem::take(&mut active.comparison.read);
        let index = &*self.store.order_numbers;
        if index.contains_every_posting() {
            return 0;
        }
        let now = self.world.now();
        let compared_until = claimed.state.numbers_compared_until.map(Timestamp::from_unix_ms);
        read.retain(|posting| {
            compared_until.is_none_or(|until| posting.posted_at >= until)
                && posting.posted_at.after(RECORDING_TIME) <= now
        });
        read.sort_unstable();
        let mut done = Done::default();
        if let Err(fault) = compare(index, &mut active.comparison, (read, now), &mut done).await {
            done.is_incomplete = true;
            warn!("The scrubber could not compare order numbers with their index: {}", chain(&fault));
        }
        if done.recorded > 0 {
            warn!("Recorded {} order numbers that their processes had not recorded", done.recorded);
        }
        round.left_out_numbers |= done.is_incomplete;
        round.operations = round.operations.saturating_add(done.operations);
        self.status.operations.add(done.operations);
        done.operations
    }

    /// Notes at the end of a round which postings need not be compared again.
    pub(super) fn conclude_numbers(&self, claimed: &mut Claimed, round: &Round) {
        if !round.left_out_numbers {
            let until = Timestamp::from_unix_ms(round.started_at).before(RECORDING_TIME);
            claimed.state.numbers_compared_until = Some(until.unix_ms());
        }
    }
}

/// Compares postings in the order of their numbers.
async fn compare(
    index: &dyn OrderNumberIndex,
    comparison: &mut Comparison,
    (read, now): (Vec<Posting>, Timestamp),
    done: &mut Done,
) -> Result<(), StoreFault> {
    let mut missing: BTreeMap<u64, Vec<(OrderNumber, TransactionKey)>> = BTreeMap::new();
    for posting in read {
        let block = block_of(posting.number);
        if comparison.is_recorded(&posting).is_none() && done.operations < OPERATIONS_PER_STEP_MAX {
            done.operations = done.operations.saturating_add(1);
            comparison.put(block, index.recorded(block).await?, now);
        }
        match comparison.is_recorded(&posting) {
            Some(true) => {}
            Some(false) => missing.entry(block).or_default().push((posting.number, posting.key)),
            // The response of the store was empty, or the step has no operations left.
            None => done.is_incomplete = true,
        }
    }
    for entries in missing.into_values() {
        if done.operations >= OPERATIONS_PER_STEP_MAX {
            done.is_incomplete = true;
            break;
        }
        done.operations = done.operations.saturating_add(1);
        index.record(&entries).await?;
        done.recorded = done.recorded.saturating_add(u64::try_from(entries.len()).unwrap_or(u64::MAX));
        let counters = || entries.iter().map(|(number, _)| number.counter());
        for counter in counters() {
            let block = block_of(OrderNumber::from_counter(counter));
            if let Some((_, part)) = comparison.parts.range_mut(..=block).next_back() {
                part.recorded.insert(counter);
            }
        }
    }
    Ok(())
}
