//! Compares the journal entries of an account with the posted transactions of the log in constant memory. Both sides
//! are hashed, and the hashes are added up in 1024 groups. If the sums are equal, entries and transactions correspond
//! one to one and have the same content. If sums differ, the account is read again, and the differing groups are
//! compared entry by entry.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, FindingKind, Findings};
use crate::domain::decision::Submission;
use crate::domain::ids::{AccountKey, MessageId, Nonce, PartnerId, TransactionKey};
use crate::domain::journal::Entry;
use crate::domain::transaction::{Outcome, TransactionStatus};
use crate::ports::ledger::StoredTransaction;

/// Number of groups. Each takes 48 bytes while its account is read.
const GROUPS: usize = 1024;
/// Maximum number of entries kept for the comparison: about 50 MB with usual content.
const COMPARED_MAX: u64 = 100_000;

/// The sums of one side, the journal or the log.
struct Sums {
    hashes: Vec<u128>,
    counts: Vec<u64>,
}

/// The groups in which journal and log differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DifferingGroups(BTreeSet<usize>);

impl DifferingGroups {
    /// Returns whether no group differs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the journal entry that a posted transaction must have; `None` if it is not posted.
pub(super) fn entry_of(stored: &StoredTransaction) -> Option<Entry> {
    let Some(Outcome::Posted { order_number, sequence, balance_after, posted_at }) = &stored.outcome else {
        return None;
    };
    let Submission { key, instruction, accepted_at, .. } = &stored.submission;
    Some(Entry {
        sequence: *sequence,
        partner: key.partner.clone(),
        message: key.message,
        kind: instruction.kind,
        amount: instruction.amount,
        details: instruction.details.clone(),
        order_number: *order_number,
        balance_after: *balance_after,
        accepted_at: *accepted_at,
        posted_at: *posted_at,
    })
}

impl Sums {
    fn new() -> Self {
        Self { hashes: vec![0; GROUPS], counts: vec![0; GROUPS] }
    }

    fn add(&mut self, entry: &Entry, salt: Nonce) {
        let group = group_of(entry.message);
        let hash = entry.salted(salt);
        if let (Some(sum), Some(count)) = (self.hashes.get_mut(group), self.counts.get_mut(group)) {
            *sum = sum.wrapping_add(hash);
            *count = count.saturating_add(1);
        }
    }
}

/// Returns the group of a message id, from its last bits, which vary in all common kinds of ids.
fn group_of(message: MessageId) -> usize {
    let [.., high, low] = message.as_uuid().into_bytes();
    usize::from(u16::from_be_bytes([high, low])).checked_rem(GROUPS).unwrap_or(0)
}

/// Both sides of one account in one pass.
pub(super) struct Comparison {
    account: AccountKey,
    /// A new nonce for each audit, so that no client can prepare colliding content.
    salt: Nonce,
    entries: Sums,
    transactions: Sums,
    /// The groups that are compared entry by entry; empty in the first pass.
    differing_groups: DifferingGroups,
    kept: BTreeMap<(PartnerId, MessageId), Entry>,
}

impl Comparison {
    pub(super) fn new(account: AccountKey, salt: Nonce, differing_groups: DifferingGroups) -> Self {
        let (entries, transactions) = (Sums::new(), Sums::new());
        Self { account, salt, entries, transactions, differing_groups, kept: BTreeMap::new() }
    }

    pub(super) fn entry(&mut self, entry: &Entry, findings: &mut Findings) {
        self.entries.add(entry, self.salt);
        if !self.is_compared(entry.message) {
            return;
        }
        let key = (entry.partner.clone(), entry.message);
        match self.kept.get(&key) {
            None => drop(self.kept.insert(key, entry.clone())),
            Some(earlier) => {
                let finding = self.finding(FindingKind::PostedTwice, entry).at(entry.sequence);
                let found = format!("entries {} and {}", earlier.sequence, entry.sequence);
                findings.push(finding.expecting("one entry").finding(found));
            }
        }
    }

    /// Adds a posted transaction, as the entry that it must have. `is_in_a_gap` is true if that entry may be on an
    /// unreadable page.
    pub(super) fn posted(&mut self, entry: &Entry, is_in_a_gap: bool, findings: &mut Findings) {
        self.transactions.add(entry, self.salt);
        if !self.is_compared(entry.message) {
            return;
        }
        match self.kept.remove(&(entry.partner.clone(), entry.message)) {
            Some(journal) if journal == *entry => {}
            Some(journal) => {
                let finding = self.finding(FindingKind::ContentDiffers, entry).at(journal.sequence);
                let (expected, found) = differences(&journal, entry);
                findings.push(finding.expecting(expected).finding(found));
            }
            None if is_in_a_gap => {}
            None => {
                let finding = self.finding(FindingKind::EntryMissing, entry);
                findings.push(finding.expecting(format!("entry {}", entry.sequence)).finding("nothing"));
            }
        }
    }

    /// Adds a transaction that is not posted, for which the journal must have no entry.
    pub(super) fn not_posted(&mut self, stored: &StoredTransaction, findings: &mut Findings) {
        let TransactionKey { account: _, partner, message } = &stored.submission.key;
        if !self.is_compared(*message) {
            return;
        }
        if let Some(entry) = self.kept.remove(&(partner.clone(), *message)) {
            let finding = self.finding(FindingKind::TransactionNotPosted, &entry).at(entry.sequence);
            let found = stored.status().code();
            findings.push(finding.expecting(TransactionStatus::Posted.code()).finding(found));
        }
    }

    /// Ends the pass. Returns the differing groups, at most as many as one pass can compare.
    pub(super) fn end(self, findings: &mut Findings) -> DifferingGroups {
        for entry in self.kept.values() {
            let finding = self.finding(FindingKind::TransactionMissing, entry).at(entry.sequence);
            findings.push(finding.expecting("a posted transaction").finding("nothing"));
        }
        let Self { account, entries, transactions, differing_groups, .. } = self;
        let sides = entries.hashes.iter().zip(&transactions.hashes).zip(&entries.counts).enumerate();
        let (mut differing, mut to_compare, mut left) = (BTreeSet::new(), 0_u64, 0_u64);
        for (group, ((journal, log), count)) in sides {
            if journal == log {
                continue;
            }
            let more = to_compare.saturating_add(*count);
            if more <= COMPARED_MAX || differing.is_empty() {
                differing.insert(group);
                to_compare = more;
            } else {
                left = left.saturating_add(1);
            }
        }
        // The first pass compares no entries.
        if left > 0 && !differing_groups.is_empty() {
            let finding = Finding::of(FindingKind::More, Some(account));
            let found =
                format!("{left} more of {GROUPS} groups of transactions that differ from the journal");
            findings.push(finding.finding(found));
        }
        DifferingGroups(differing)
    }

    fn is_compared(&self, message: MessageId) -> bool {
        !self.differing_groups.is_empty() && self.differing_groups.0.contains(&group_of(message))
    }

    fn finding(&self, kind: FindingKind, entry: &Entry) -> Finding {
        let mut finding = Finding::of(kind, Some(self.account));
        finding.transaction = Some((entry.partner.clone(), entry.message));
        finding
    }
}

/// Describes the differences. The values of the journal are the expected ones.
fn differences(journal: &Entry, log: &Entry) -> (String, String) {
    let describe = |entry: &Entry| {
        [
            ("entry", entry.sequence.to_string()),
            ("type", entry.kind.code().to_owned()),
            ("amount", format!("{} {}", entry.amount, entry.amount.currency())),
            ("balance after", format!("{} {}", entry.balance_after, entry.balance_after.currency())),
            ("order number", entry.order_number.to_string()),
            ("accepted at", entry.accepted_at.to_string()),
            ("posted at", entry.posted_at.to_string()),
        ]
    };
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for ((name, one), (_, other)) in describe(journal).into_iter().zip(describe(log)) {
        if one != other {
            expected.push(format!("{name} {one}"));
            found.push(format!("{name} {other}"));
        }
    }
    if journal.details != log.details {
        // Findings never contain texts of partners or their customers.
        expected.push("the details of the entry".to_owned());
        found.push("other details".to_owned());
    }
    (expected.join(", "), found.join(", "))
}
