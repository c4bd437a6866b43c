//! Divides the items of a document into parts while the document arrives, in bounded memory.
//!
//! Items are distributed over [`PARTITIONS`] by account. A part contains items of one partition in document order, so an
//! initiator can read all items of an account without reading the whole document.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::items::{self, InvalidItem, ItemError, RAW_BYTES_MAX, Stored};
use crate::domain::batch::{Digest, Item, Tally};
use crate::domain::ids::AccountKey;

/// Number of account groups. Groups that do not fill a part are merged at the end of the document.
pub const PARTITIONS: u16 = 32;
/// Size at which a part is complete, in bytes before compression: 8 MiB for all partitions of an upload.
const PART_BYTES: usize = 256 * 1024;
/// Maximum length of the stored reason of an invalid item, in characters.
const REASON_CHARS_MAX: usize = 500;

/// The entry of a part in the list of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEntry {
    /// The partition. Parts that share an account have the same partition. `None` for a part of invalid items.
    pub partition: Option<u16>,
    /// The digest of the body.
    pub digest: [u8; 32],
    /// Size of the body before compression, in bytes.
    pub raw_bytes: u32,
}

impl PartEntry {
    /// Returns the digest of the body.
    pub const fn digest(&self) -> Digest {
        Digest(self.digest)
    }
}

impl Stored for PartEntry {
    fn encode_to(&self, raw: &mut Vec<u8>) {
        items::push(self, raw);
    }

    fn decode_from(raw: &mut &[u8]) -> Result<Self, ItemError> {
        items::take(raw)
    }
}

/// A part to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// As [`PartEntry::partition`].
    pub partition: Option<u16>,
    /// The encoded items, before compression.
    pub raw: Vec<u8>,
}

/// The digest and the totals of a complete document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The digest of the items.
    pub content: Digest,
    /// Count and sums of the items that are valid in form.
    pub valid: Tally,
    /// Number of invalid items.
    pub invalid: u64,
}

#[derive(Default)]
struct Partition {
    raw: Vec<u8>,
    /// Whether a full part of the partition was already returned.
    has_parts: bool,
}

/// Divides one document into parts. Needs about 10 MiB of memory.
pub struct DocumentWriter {
    partitions: Vec<Partition>,
    invalid: Vec<u8>,
    content: Sha256,
    valid: Tally,
    invalid_count: u64,
}

impl Default for DocumentWriter {
    fn default() -> Self {
        Self {
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            invalid: Vec::new(),
            content: Sha256::new(),
            valid: Tally::default(),
            invalid_count: 0,
        }
    }
}

impl DocumentWriter {
    /// Returns the number of items added so far.
    pub const fn len(&self) -> u64 {
        self.valid.count.saturating_add(self.invalid_count)
    }

    /// Returns whether no item was added so far.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns count and sums of the valid items added so far.
    pub const fn valid(&self) -> &Tally {
        &self.valid
    }

    /// Adds the next item. Returns the part that it completes, if any.
    pub fn add(&mut self, item: &Item) -> Option<Part> {
        let number = partition_of(item.account);
        let partition = self.partitions.get_mut(usize::from(number))?;
        let start = partition.raw.len();
        item.encode_to(&mut partition.raw);
        self.content.update([1]);
        self.content.update(partition.raw.get(start..).unwrap_or_default());
        self.valid.add(item.instruction.kind, item.instruction.amount);
        if partition.raw.len() < PART_BYTES {
            return None;
        }
        partition.has_parts = true;
        Some(Part { partition: Some(number), raw: std::mem::take(&mut partition.raw) })
    }

    /// Adds the next item, which breaks a rule. Returns a part that is complete. `sent` identifies what the client sent: the
    /// reason does not, because another version of the program words it differently.
    pub fn add_invalid(&mut self, item: InvalidItem, sent: &[u8]) -> Option<Part> {
        let reason = item.reason.chars().take(REASON_CHARS_MAX).collect();
        self.content.update([0]);
        self.content.update(item.line.to_be_bytes());
        self.content.update(Sha256::digest(sent));
        InvalidItem { reason, ..item }.encode_to(&mut self.invalid);
        self.invalid_count = self.invalid_count.saturating_add(1);
        if self.invalid.len() < PART_BYTES {
            return None;
        }
        Some(Part { partition: None, raw: std::mem::take(&mut self.invalid) })
    }

    /// Ends the document. Returns the remaining parts and the summary.
    pub fn finish(self) -> (Vec<Part>, Summary) {
        let mut parts = Vec::new();
        // Partitions without a full part are merged. They have no account in common.
        let mut shared: Option<(u16, Vec<u8>)> = None;
        for (number, partition) in
            (0..PARTITIONS).zip(self.partitions).filter(|(_, partition)| !partition.raw.is_empty())
        {
            if partition.has_parts {
                parts.push(Part { partition: Some(number), raw: partition.raw });
                continue;
            }
            match &mut shared {
                Some((_, raw)) if raw.len().saturating_add(partition.raw.len()) <= RAW_BYTES_MAX => {
                    raw.extend_from_slice(&partition.raw);
                }
                Some(_) | None => {
                    if let Some((number, raw)) = shared.replace((number, partition.raw)) {
                        parts.push(Part { partition: Some(number), raw });
                    }
                }
            }
        }
        if let Some((number, raw)) = shared {
            parts.push(Part { partition: Some(number), raw });
        }
        if !self.invalid.is_empty() {
            parts.push(Part { partition: None, raw: self.invalid });
        }
        let content = Digest(self.content.finalize().into());
        (parts, Summary { content, valid: self.valid, invalid: self.invalid_count })
    }
}

/// Returns the partition of an account. Adjacent accounts have the same partition, so that a chunk contains adjacent accounts.
fn partition_of(account: AccountKey) -> u16 {
    let partition =
        u128::from(account.position()).saturating_mul(PARTITIONS.into()) >> AccountKey::POSITION_BITS;
    u16::try_from(partition).expect("a position has no more bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::item;
    use crate::domain::instruction::{Details, UnknownMembers};
    use std::collections::BTreeMap;

    fn write(items: &[Item]) -> (Vec<Part>, Summary) {
        let (mut writer, mut parts) = (DocumentWriter::default(), Vec::new());
        items.iter().for_each(|item| parts.extend(writer.add(item)));
        let (rest, summary) = writer.finish();
        parts.extend(rest);
        (parts, summary)
    }

    #[test]
    fn every_item_is_in_one_part_and_each_account_in_one_partition_in_order() {
        let items: Vec<Item> = (1..=60_000).map(|line| item(line, u128::from(line % 997), 100)).collect();
        let (parts, summary) = write(&items);
        assert_eq!(summary.valid.count, 60_000);
        assert!(parts.len() > 1);
        let (mut partitions, mut lines) = (BTreeMap::new(), Vec::new());
        for Part { partition, raw } in &parts {
            let mut latest = BTreeMap::new();
            for item in items::decode::<Item>(&items::compress(raw)).unwrap() {
                assert_eq!(item, items[usize::try_from(item.line).unwrap() - 1]);
                assert_eq!(partitions.entry(item.account).or_insert(partition), &partition);
                assert!(latest.insert(item.account, item.line) < Some(item.line), "in order");
                lines.push(item.line);
            }
        }
        lines.sort_unstable();
        assert_eq!(lines, (1..=60_000).collect::<Vec<u32>>());
    }

    #[test]
    fn a_number_has_one_digest_in_every_form() {
        let sent = |members: &str| {
            let unknown = UnknownMembers::of_canonical(members);
            let mut items: Vec<Item> = (1..=4).map(|line| item(line, 1, 100)).collect();
            items[1].instruction.details = Details::new(None, BTreeMap::new(), &unknown);
            write(&items).1.content
        };
        assert_eq!(sent(r#"{"fee":50.0}"#), sent(r#"{"fee":50}"#));
        assert_eq!(sent(r#"{"fee":5e1}"#), sent(r#"{"fee":50}"#));
        assert_ne!(sent(r#"{"fee":51.0}"#), sent(r#"{"fee":50}"#));
    }

    #[test]
    fn a_small_document_has_one_part() {
        let items: Vec<Item> = (1..=1000).map(|line| item(line, u128::from(line), 100)).collect();
        assert_eq!(write(&items).0.len(), 1);
    }

    #[test]
    fn the_digest_depends_on_every_item_and_their_order() {
        let items: Vec<Item> = (1..=10).map(|line| item(line, 1, i64::from(line))).collect();
        let digest = |items: &[Item]| write(items).1.content;
        assert_eq!(digest(&items), digest(&items.clone()));
        let mut changed = items.clone();
        changed[3].instruction.amount = changed[4].instruction.amount;
        assert_ne!(digest(&items), digest(&changed));
        assert_ne!(digest(&items), digest(&items[..9]));
    }

    #[test]
    fn an_invalid_item_is_identified_by_what_was_sent_and_not_by_the_reason() {
        let write = |line: u32, reason: &str, sent: &[u8]| {
            let mut invalid = DocumentWriter::default();
            let broken = InvalidItem { line, message: None, reason: reason.to_owned() };
            assert_eq!(invalid.add_invalid(broken, sent), None);
            invalid.finish()
        };
        let (parts, summary) = write(1, &"x".repeat(600), b"sent");
        assert_eq!((summary.invalid, summary.valid.count, parts.len()), (1, 0, 1));
        let kept: Vec<InvalidItem> = items::decode(&items::compress(&parts[0].raw)).unwrap();
        assert_eq!(kept[0].reason.len(), 500);
        assert_eq!(write(1, "worded otherwise", b"sent").1, summary);
        assert_ne!(write(1, &"x".repeat(600), b"other").1.content, summary.content);
        assert_ne!(write(2, &"x".repeat(600), b"sent").1.content, summary.content);
    }
}
