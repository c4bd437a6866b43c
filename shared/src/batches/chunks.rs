//! Divides items into chunks. A chunk contains all items of its accounts, or is a link of a chain of chunks with common
//! accounts. A link may be posted only after the link before it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::blobs::Blob;
use super::items::{self, ItemError, RAW_BYTES_MAX, Stored};
use crate::domain::batch::{Digest, Item};
use crate::domain::journal::PAGE_ENTRIES_MAX;

/// Maximum number of items in a chunk: twenty full commits of one account.
pub const CHUNK_ITEMS_MAX: usize = 20 * PAGE_ENTRIES_MAX;

/// The manifest entry of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkEntry {
    /// The digest of the body.
    pub digest: [u8; 32],
    /// The chunk whose outcome must be counted first, if any.
    pub after: Option<u32>,
}

impl ChunkEntry {
    /// Returns the digest of the body.
    pub const fn digest(&self) -> Digest {
        Digest(self.digest)
    }
}

/// Returns the kinds and digests of all chunks of a split.
pub(super) fn bodies(split: Uuid, chunks: &[ChunkEntry]) -> impl Iterator<Item = (Blob, Digest)> {
    (0..).zip(chunks).map(move |(number, chunk)| (Blob::Chunk(split, number), chunk.digest()))
}

impl Stored for ChunkEntry {
    fn encode_to(&self, raw: &mut Vec<u8>) {
        items::push(self, raw);
    }

    fn decode_from(raw: &mut &[u8]) -> Result<Self, ItemError> {
        items::take(raw)
    }
}

/// A chunk to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Whether the previous chunk must be posted first, because it contains items of the same account.
    pub is_link: bool,
    /// The encoded items, before compression.
    pub raw: Vec<u8>,
}

/// Divides items, given in document order, into chunks of at most `items_max` items. The items of an account are in one
/// chunk, or in one chain of chunks.
pub fn divide(mut items: Vec<Item>, items_max: usize) -> Vec<Chunk> {
    // Orders accounts by position. The sort is stable, so the items of an account stay in order.
    items.sort_by_cached_key(|item| (item.account.position(), item.account));
    let mut chunker = Chunker { items_max, raw: Vec::new(), items: 0, done: Vec::new() };
    for of_account in items.chunk_by(|one, other| one.account == other.account) {
        chunker.add_account(of_account);
    }
    chunker.flush(false);
    chunker.done
}

struct Chunker {
    items_max: usize,
    raw: Vec<u8>,
    items: usize,
    done: Vec<Chunk>,
}

impl Chunker {
    fn add_account(&mut self, of_account: &[Item]) {
        let start = self.raw.len();
        let mut ends = Vec::with_capacity(of_account.len());
        for item in of_account {
            item.encode_to(&mut self.raw);
            ends.push(self.raw.len());
        }
        let items_max = self.items_max;
        let fits = |items: usize, bytes: usize| items <= items_max && bytes <= RAW_BYTES_MAX;
        if fits(self.items.saturating_add(ends.len()), self.raw.len()) {
            self.items = self.items.saturating_add(ends.len());
            return;
        }
        let own = self.raw.split_off(start);
        self.flush(false);
        if fits(ends.len(), own.len()) {
            (self.raw, self.items) = (own, ends.len());
            return;
        }
        // Each link of the chain is a separate chunk.
        let (mut from, mut is_link) = (0, false);
        for end in ends.iter().map(|end| end.saturating_sub(start)) {
            let row = own.get(from..end).unwrap_or_default();
            if !fits(self.items.saturating_add(1), self.raw.len().saturating_add(row.len())) {
                self.flush(is_link);
                is_link = true;
            }
            self.raw.extend_from_slice(row);
            self.items = self.items.saturating_add(1);
            from = end;
        }
        self.flush(is_link);
    }

    fn flush(&mut self, is_link: bool) {
        if self.items > 0 {
            self.items = 0;
            self.done.push(Chunk { is_link, raw: std::mem::take(&mut self.raw) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::item;
    use std::collections::BTreeMap;

    /// Checks that the chunks contain all lines, and that each account is in one chain of chunks in order.
    fn check(chunks: &[Chunk], lines: u32) {
        let (mut all, mut last) = (Vec::new(), BTreeMap::new());
        for (number, chunk) in chunks.iter().enumerate() {
            let items: Vec<Item> = items::decode(&items::compress(&chunk.raw)).unwrap();
            assert!((1..=CHUNK_ITEMS_MAX).contains(&items.len()) && chunk.raw.len() <= RAW_BYTES_MAX);
            for item in items {
                if let Some((before, line)) = last.insert(item.account, (number, item.line)) {
                    assert!(line < item.line);
                    let is_next = before == number || chunk.is_link && before.checked_add(1) == Some(number);
                    assert!(is_next, "account {} in {before} and {number}", item.account);
                }
                all.push(item.line);
            }
        }
        all.sort_unstable();
        assert_eq!(all, (1..=lines).collect::<Vec<u32>>());
    }

    #[test]
    fn small_accounts_share_chunks_that_need_not_wait() {
        let items = (1..=10_000).map(|line| item(line, u128::from(line % 50), 1)).collect();
        let chunks = divide(items, CHUNK_ITEMS_MAX);
        check(&chunks, 10_000);
        assert!(chunks.iter().all(|chunk| !chunk.is_link));
        assert_eq!(chunks.len(), 6, "nine accounts of 200 items in a chunk");
    }

    #[test]
    fn a_large_account_is_a_chain() {
        let items = (1..=5000).map(|line| item(line, u128::from(line % 10 == 0), 1)).collect();
        let chunks = divide(items, CHUNK_ITEMS_MAX);
        check(&chunks, 5000);
        let links: Vec<_> = chunks.iter().map(|chunk| chunk.is_link).collect();
        assert_eq!(links, [false, true, true, false]);
    }
}
