//! Records order numbers whose process crashed before it recorded them. A round compares the postings that it reads with
//! the index.
//!
//! A complete round has compared all postings before its start. The next round skips these, and reads only the recent part
//! of the index, of which one operation returns tens of thousands of numbers.
//!
//! A step spends few operations on the index; postings that are not compared yet wait for later steps. If too many wait,
//! or the process ends while some wait, they are skipped, and the next round compares the postings of this round again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use roaring::RoaringTreemap;
use tracing::warn;

use super::state::Round;
use super::{Claimed, Scrubber};
use crate::domain::ids::{OrderNumber, TransactionKey};
use crate::domain::time::Timestamp;
use crate::domain::transaction::Outcome;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::ledger::StoredTransaction;
use crate::ports::order_number_index::{OrderNumberIndex, RecordedNumbers, block_of};

/// How long after a posting its process may still record it. Includes clock differences.
const RECORDING_TIME: Duration = Duration::from_secs(30 * 60);
/// Maximum number of index reads per step. They do not delay the walk, so they are few.
const READS_MAX: u32 = 4;
/// Maximum number of writes of missing numbers per step, one per block. Many numbers are missing after a restore.
const WRITES_MAX: u32 = 4;
/// Maximum number of steps for waiting postings at the end of a round.
const LAST_STEPS_MAX: u32 = 500;
const WAITING_MAX: usize = 50_000;
/// Maximum number of index parts in memory.
const PARTS_MAX: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Posting {
    number: OrderNumber,
    key: TransactionKey,
    posted_at: Timestamp,
}

/// A part of the index, as read.
#[derive(Debug)]
struct Part {
    /// The first block after this part; `None` at the end of the index.
    next_block: Option<u64>,
    recorded: RoaringTreemap,
    read_at: Timestamp,
}

/// The comparison of a round with the index.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Postings of the current step.
    read: Vec<Posting>,
    /// Postings of earlier steps that are not compared yet.
    waiting: BTreeSet<Posting>,
    /// By first block.
    parts: BTreeMap<u64, Part>,
    /// Whether the round has skipped no posting so far.
    is_complete: bool,
}

impl Comparison {
    /// Starts or continues the comparison of a round.
    pub(super) fn of(round: Option<&Round>) -> Self {
        let is_complete = round.is_some_and(|round| round.compares_numbers);
        Self { read: Vec::new(), waiting: BTreeSet::new(), parts: BTreeMap::new(), is_complete }
    }

    /// Returns whether all postings read so far are compared.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete && self.waiting.is_empty()
    }

    pub(super) fn add(&mut self, stored: &StoredTransaction) {
        if let Some(Outcome::Posted { order_number, posted_at, .. }) = &stored.outcome {
            let (number, key, posted_at) = (*order_number, stored.submission.key.clone(), *posted_at);
            self.read.push(Posting { number, key, posted_at });
        }
    }

    /// Returns whether the number is recorded; `None` if no part of the index that was read late enough shows it.
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

/// Index operations and recorded numbers of a step.
#[derive(Debug, Default)]
struct Done {
    reads: u32,
    writes: u32,
    recorded: u64,
}

impl Scrubber {
    /// Compares postings with the index, and records missing numbers. Handles all waiting postings at the end of a round.
    pub(super) async fn record_missing_numbers(&self, claimed: &mut Claimed, is_end: bool) {
        let (Some(active), Some(round)) = (&mut claimed.walk, &mut claimed.state.round) else { return };
        let comparison = &mut active.comparison;
        let read = std::mem::take(&mut comparison.read);
        let index = &*self.store.order_numbers;
        if index.contains_every_posting() {
            return;
        }
        let now = self.world.now();
        let compared_until = claimed.state.numbers_compared_until.map(Timestamp::from_unix_ms);
        let is_new = |posting: &Posting| {
            compared_until.is_none_or(|until| posting.posted_at >= until)
                && posting.posted_at.after(RECORDING_TIME) <= now
        };
        comparison.waiting.extend(read.into_iter().filter(is_new));
        let (mut done, steps) = (Done::default(), if is_end { LAST_STEPS_MAX } else { 1 });
        for _ in 0..steps {
            let (reads, writes) = (done.reads, done.writes);
            if let Err(fault) = compare(index, comparison, now, &mut done).await {
                comparison.is_complete = false;
                warn!("The scrubber could not compare order numbers with their index: {}", chain(&fault));
                break;
            }
            if comparison.waiting.is_empty() || (done.reads, done.writes) == (reads, writes) {
                break;
            }
        }
        if comparison.waiting.len() > if is_end { 0 } else { WAITING_MAX } {
            comparison.is_complete = false;
            comparison.waiting.clear();
        }
        if done.recorded > 0 {
            warn!("Recorded {} order numbers that their processes had not recorded", done.recorded);
        }
        let operations = u64::from(done.reads).saturating_add(u64::from(done.writes));
        round.operations = round.operations.saturating_add(operations);
        self.status.operations.add(operations);
    }

    /// Notes at the end of a complete round which postings need not be compared again.
    pub(super) fn conclude_numbers(&self, claimed: &mut Claimed, round: &Round) {
        if round.compares_numbers {
            let until = Timestamp::from_unix_ms(round.started_at).before(RECORDING_TIME);
            claimed.state.numbers_compared_until = Some(until.unix_ms());
        }
    }
}

/// Notes whether all postings before the place are compared. Called before the state is saved.
pub(super) fn note(claimed: &mut Claimed) {
    if let (Some(active), Some(round)) = (&claimed.walk, &mut claimed.state.round) {
        round.compares_numbers = active.comparison.is_complete();
    }
}

/// Compares waiting postings in number order with a few operations. Postings that are not compared stay in `waiting`.
async fn compare(
    index: &dyn OrderNumberIndex,
    comparison: &mut Comparison,
    now: Timestamp,
    done: &mut Done,
) -> Result<(), StoreFault> {
    let mut missing: BTreeMap<u64, Vec<Posting>> = BTreeMap::new();
    let mut waiting = std::mem::take(&mut comparison.waiting);
    let mut reads: u32 = 0;
    let mut failed = None;
    while let Some(posting) = waiting.pop_first() {
        let block = block_of(posting.number);
        if comparison.is_recorded(&posting).is_none() && reads < READS_MAX && failed.is_none() {
            reads = reads.saturating_add(1);
            match index.recorded(block).await {
                Ok(part) => comparison.put(block, part, now),
                Err(fault) => failed = Some(fault),
            }
        }
        match comparison.is_recorded(&posting) {
            Some(true) => {}
            Some(false) => missing.entry(block).or_default().push(posting),
            // The step has no reads left, or the response was empty.
            None => drop(comparison.waiting.insert(posting)),
        }
    }
    done.reads = done.reads.saturating_add(reads);
    let mut writes: u32 = 0;
    for (block, postings) in missing {
        if writes >= WRITES_MAX || failed.is_some() {
            comparison.waiting.extend(postings);
            continue;
        }
        writes = writes.saturating_add(1);
        let entries: Vec<_> = postings.iter().map(|it| (it.number, it.key.clone())).collect();
        if let Err(fault) = index.record(&entries).await {
            failed = Some(fault);
            comparison.waiting.extend(postings);
            continue;
        }
        done.recorded = done.recorded.saturating_add(u64::try_from(entries.len()).unwrap_or(u64::MAX));
        if let Some((_, part)) = comparison.parts.range_mut(..=block).next_back() {
            part.recorded.extend(entries.iter().map(|(number, _)| number.counter()));
        }
    }
    done.writes = done.writes.saturating_add(writes);
    failed.map_or(Ok(()), Err)
}
