//! Checks that no order number was issued twice in the whole ledger.
//!
//! Each number is one bit of a compressed bitmap (`roaring`), because numbers come from consecutive ranges: about 0.13
//! bytes per number if most of a range is used, and a little more than 2 bytes for isolated numbers. A hundred million
//! postings need about 13 MB. The bitmap does not contain the positions of a number: only if a number is repeated,
//! the journals are read again for the positions of the repeated numbers.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringTreemap;

use super::finding::{Finding, FindingKind};
use crate::domain::ids::{AccountKey, OrderNumber};
use crate::domain::journal::Entry;

/// Maximum number of repeated numbers whose positions are searched; further ones are counted.
const FOLLOWED_MAX: usize = 10_000;
/// Maximum number of positions that are listed for a number.
const PLACES_MAX: usize = 10;

/// All order numbers of the ledger, by their counters.
#[derive(Default)]
pub struct NumbersSeen {
    seen: RoaringTreemap,
    repeated: BTreeSet<u64>,
    more: u64,
}

impl NumbersSeen {
    /// Adds the number of an entry. Called once for each entry.
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

    /// Returns the number of different order numbers.
    pub fn len(&self) -> u64 {
        self.seen.len()
    }

    /// Returns whether there is no order number.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Returns the collector for the positions of repeated numbers; `None` if no number is repeated.
    pub fn into_places(self) -> Option<Places> {
        let Self { seen: _, repeated, more } = self;
        let places = repeated.into_iter().map(|counter| (counter, BTreeSet::new())).collect();
        let places = Places { places, more };
        (!places.places.is_empty()).then_some(places)
    }
}

/// The positions of repeated numbers.
pub struct Places {
    places: BTreeMap<u64, BTreeSet<(AccountKey, u64)>>,
    more: u64,
}

impl Places {
    /// Records the position of an entry of any account, if its number is repeated.
    pub fn look_at(&mut self, account: AccountKey, place: u64, entry: &Entry) {
        let places = self.places.get_mut(&entry.order_number.counter());
        if let Some(places) = places.filter(|places| places.len() < PLACES_MAX) {
            places.insert((account, place));
        }
    }

    /// Returns a finding for each number at more than one position.
    pub fn findings(self) -> Vec<Finding> {
        let repeated = self.places.into_iter().filter(|(_, places)| places.len() > 1);
        let mut findings: Vec<Finding> = repeated
            .map(|(counter, places)| {
                let number = OrderNumber::from_counter(counter);
                let told: Vec<String> = places
                    .iter()
                    .map(|(account, sequence)| format!("entry {sequence} of {account}"))
                    .collect();
                // The last position is the position of the finding; the text lists all of them.
                let last = places.last().copied();
                let mut finding =
                    Finding::of(FindingKind::OrderNumberRepeated, last.map(|(account, _)| account));
                finding.sequence = last.map(|(_, sequence)| sequence);
                finding
                    .expecting(format!("{number} in one entry"))
                    .finding(format!("{number} in {}", told.join(" and ")))
            })
            .collect();
        if self.more > 0 {
            let found = format!("{} more repeated order numbers", self.more);
            findings.push(Finding::of(FindingKind::More, None).finding(found));
        }
        findings
    }
}
