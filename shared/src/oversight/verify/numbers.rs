//! Whether any order number was issued twice, over the whole ledger.
//!
//! Each number is one bit of a compressed bitmap (`roaring`), because numbers come from ranges that
//! follow one another: some 0.13 bytes a number where most of a range was used, 2 bytes and a little
//! where numbers lie far apart. A hundred million postings cost about 13 MB. The bitmap does not know
//! where a number stands: when one comes again, and only then, the journals are read once more for the
//! places of the numbers that were repeated.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringTreemap;

use super::finding::{Finding, FindingKind};
use crate::domain::ids::{AccountKey, OrderNumber};
use crate::domain::journal::Entry;

/// Repeated numbers that are followed; more are counted.
const FOLLOWED_MAX: usize = 10_000;
/// Places that are told of one number.
const PLACES_MAX: usize = 10;

/// All order numbers that were seen, each counter once.
#[derive(Default)]
pub struct NumbersSeen {
    seen: RoaringTreemap,
    repeated: BTreeSet<u64>,
    more: u64,
}

impl NumbersSeen {
    /// The number of an entry. Each entry is told once.
    pub fn add(&mut self, number: OrderNumber) {
        let counter = number.counter();
        if self.seen.insert(counter) || self.repeated.contains(&counter) {
            return;
        }
        if self.repeated.len() < FOLLOWED_MAX {
            self.repeated.insert(counter);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// How many different numbers there are.
    pub fn len(&self) -> u64 {
        self.seen.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Where to look for the places of what was repeated; `None` when nothing was.
    pub fn into_places(self) -> Option<Places> {
        let Self { seen: _, repeated, more } = self;
        let places = repeated.into_iter().map(|counter| (counter, BTreeSet::new())).collect();
        let places = Places { places, more };
        (!places.places.is_empty()).then_some(places)
    }
}

/// The places of numbers that were seen more than once.
pub struct Places {
    places: BTreeMap<u64, BTreeSet<(AccountKey, u64)>>,
    more: u64,
}

impl Places {
    /// An entry of any account; `place` is its sequence by its place in the journal.
    pub fn look_at(&mut self, account: AccountKey, place: u64, entry: &Entry) {
        let places = self.places.get_mut(&entry.order_number.counter());
        if let Some(places) = places.filter(|places| places.len() < PLACES_MAX) {
            places.insert((account, place));
        }
    }

    /// One finding for each number that stands at more than one place.
    pub fn findings(self) -> Vec<Finding> {
        let repeated = self.places.into_iter().filter(|(_, places)| places.len() > 1);
        let mut findings: Vec<Finding> = repeated
            .map(|(counter, places)| {
                let number = OrderNumber::from_counter(counter);
                let told: Vec<String> = places
                    .iter()
                    .map(|(account, sequence)| format!("entry {sequence} of {account}"))
                    .collect();
                // The place that comes last is told as the place; all of them in the words.
                let last = places.last().copied();
                let mut finding =
                    Finding::of(FindingKind::OrderNumberRepeated, last.map(|(account, _)| account));
                finding.sequence = last.map(|(_, sequence)| sequence);
                finding
                    .expecting(format!("{number} at one place"))
                    .finding(format!("{number} at {}", told.join(" and ")))
            })
            .collect();
        if self.more > 0 {
            let found = format!("{} more repeated order numbers", self.more);
            findings.push(Finding::of(FindingKind::More, None).finding(found));
        }
        findings
    }
}
