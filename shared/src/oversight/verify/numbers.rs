//! Checks that every order number in the ledger is unique.
//!
//! Each number is one bit of a compressed bitmap (`roaring`), because numbers come from consecutive ranges. It takes
//! about 0.13 bytes per number if most of a range is used, and a little more than 2 bytes for isolated numbers: about
//! 13 MB for a hundred million postings. The bitmap does not contain positions. If numbers are repeated, the journals
//! are read again to find their positions.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringTreemap;

use super::finding::{Finding, FindingKind};
use crate::domain::ids::{AccountKey, OrderNumber};
use crate::domain::journal::Entry;

/// Maximum number of repeated numbers whose positions are searched. Further ones are counted.
const REPEATED_MAX: usize = 10_000;
const POSITIONS_MAX: usize = 10;

/// All order numbers of the ledger, by counter.
#[derive(Default)]
pub struct NumbersSeen {
    seen: RoaringTreemap,
    repeated: BTreeSet<u64>,
    more: u64,
}

impl NumbersSeen {
    /// Adds the number of an entry. Called once per entry.
    pub fn add(&mut self, number: OrderNumber) {
        let counter = number.counter();
        if self.seen.insert(counter) || self.repeated.contains(&counter) {
            return;
        }
        if self.repeated.len() < REPEATED_MAX {
            self.repeated.insert(counter);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Returns the number of distinct order numbers.
    pub fn len(&self) -> u64 {
        self.seen.len()
    }

    /// Returns whether no order number was added.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Returns a collector for the positions of repeated numbers; `None` if no number is repeated.
    pub fn into_positions(self) -> Option<NumberPositions> {
        let Self { seen: _, repeated, more } = self;
        let positions = repeated.into_iter().map(|counter| (counter, BTreeSet::new())).collect();
        let positions = NumberPositions { positions, more };
        (!positions.positions.is_empty()).then_some(positions)
    }
}

/// The positions of repeated numbers.
pub struct NumberPositions {
    positions: BTreeMap<u64, BTreeSet<(AccountKey, u64)>>,
    more: u64,
}

impl NumberPositions {
    /// Records the position of an entry if its number is repeated.
    pub fn record(&mut self, account: AccountKey, position: u64, entry: &Entry) {
        let positions = self.positions.get_mut(&entry.order_number.counter());
        if let Some(positions) = positions.filter(|positions| positions.len() < POSITIONS_MAX) {
            positions.insert((account, position));
        }
    }

    /// Returns a finding for each number at more than one position.
    pub fn findings(self) -> Vec<Finding> {
        let repeated = self.positions.into_iter().filter(|(_, positions)| positions.len() > 1);
        let mut findings: Vec<Finding> = repeated
            .map(|(counter, positions)| {
                let number = OrderNumber::from_counter(counter);
                let listed: Vec<String> = positions
                    .iter()
                    .map(|(account, sequence)| format!("entry {sequence} of {account}"))
                    .collect();
                // The finding is located at the last position; its text lists all of them.
                let last = positions.last().copied();
                let mut finding =
                    Finding::of(FindingKind::OrderNumberRepeated, last.map(|(account, _)| account));
                finding.sequence = last.map(|(_, sequence)| sequence);
                finding
                    .expecting(format!("{number} in one entry"))
                    .finding(format!("{number} in {}", listed.join(" and ")))
            })
            .collect();
        if self.more > 0 {
            let found = format!("{} more repeated order numbers", self.more);
            findings.push(Finding::of(FindingKind::More, None).finding(found));
        }
        findings
    }
}
