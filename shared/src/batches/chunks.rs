//! Divides the items of a lane into chunks. A chunk contains all items of its accounts, or a link of a chain: then it
//! may be posted only after the chunk before.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::blobs::Blob;
use super::items::{self, Item, RAW_BYTES_MAX, Stored, Undecodable};
use crate::domain::batch::Digest;
use crate::domain::journal::PAGE_ENTRIES_MAX;

/// Largest number of items in a chunk: twenty full commits of one account.
pub const CHUNK_ITEMS_MAX: usize = 20 * PAGE_ENTRIES_MAX;

/// A chunk in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkEntry {
    /// The digest of the body.
    pub digest: [u8; 32],
    /// The number of the chunk whose outcome must be counted first, if there is one.
    pub after: Option<u32>,
}

impl ChunkEntry {
    /// Returns the digest of the body.
    pub const fn digest(&self) -> Digest {
        Digest(self.digest)
    }
}

/// Returns the bodies of all chunks of a split.
pub(super) fn bodies(split: Uuid, chunks: &[ChunkEntry]) -> impl Iterator<Item = (Blob, Digest)> {
    (0..).zip(chunks).map(move |(number, chunk)| (Blob::Chunk(split, number), chunk.digest()))
}

impl Stored for ChunkEntry {
    fn encode_to(&self, raw: &mut Vec<u8>) {
        items::push(self, raw);
    }

    fn decode_from(raw: &mut &[u8]) -> Result<Self, Undecodable> {
        items::take(raw)
    }
}

/// A chunk to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its number in the manifest.
    pub number: u32,
    /// The number of the chunk whose outcome must be counted first, if there is one.
    pub after: Option<u32>,
    /// Its items before compression.
    pub raw: Vec<u8>,
}

/// Divides the items of one lane, which can come in several pieces.
#[derive(Debug)]
pub struct Chunker {
    next: u32,
    /// Whether each chunk of the lane is a link of one chain, because accounts can be in several pieces.
    is_chain: bool,
    items_max: usize,
    previous: Option<u32>,
    raw: Vec<u8>,
    items: usize,
    done: Vec<Chunk>,
}

impl Chunker {
    /// Starts a lane, with chunks from a number on, of at most `items_max` items. With `is_chain` an account can occur
    /// in several pieces.
    pub const fn new(next: u32, is_chain: bool, items_max: usize) -> Self {
        Self { next, is_chain, items_max, previous: None, raw: Vec::new(), items: 0, done: Vec::new() }
    }

    /// Adds a piece of the lane, in the order of the document, and returns the chunks of it.
    pub fn add(&mut self, mut items: Vec<Item>) -> Vec<Chunk> {
        // Accounts in the order of their positions. Stable: the items of an account stay in order.
        items.sort_by_cached_key(|item| (item.account.position(), item.account));
        for of_account in items.chunk_by(|one, other| one.account == other.account) {
            self.add_account(of_account);
        }
        self.flush(false);
        std::mem::take(&mut self.done)
    }

    /// Returns the number of the next chunk.
    pub const fn next(&self) -> u32 {
        self.next
    }

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
        // Each link of the chain is a chunk of its own.
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
        if self.items == 0 {
            return;
        }
        let number = self.next;
        let after = self.previous.filter(|_| is_link || self.is_chain);
        self.done.push(Chunk { number, after, raw: std::mem::take(&mut self.raw) });
        self.items = 0;
        self.previous = Some(number);
        self.next = self.next.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::item;
    use std::collections::BTreeMap;

    fn items_of(chunk: &Chunk) -> Vec<Item> {
        items::decode(&items::compress(&chunk.raw)).unwrap()
    }

    /// Checks that the chunks contain the lines, and that each account is in one chain of chunks in order.
    fn check(chunks: &[Chunk], lines: u32) {
        let (mut all, mut last) = (Vec::new(), BTreeMap::new());
        for chunk in chunks {
            let items = items_of(chunk);
            assert!((1..=CHUNK_ITEMS_MAX).contains(&items.len()) && chunk.raw.len() <= RAW_BYTES_MAX);
            for item in items {
                let before = last.insert(item.account, (chunk.number, item.line));
                if let Some((number, line)) = before {
                    assert!(line < item.line);
                    let is_next = number == chunk.number || Some(number) <= chunk.after;
                    assert!(is_next, "account {} in {number} and {}", item.account, chunk.number);
                }
                all.push(item.line);
            }
            assert!(chunk.after.is_none_or(|after| after.checked_add(1) == Some(chunk.number)));
        }
        all.sort_unstable();
        assert_eq!(all, (1..=lines).collect::<Vec<u32>>());
    }

    #[test]
    fn small_accounts_share_chunks_that_need_not_wait() {
        let items = (1..=10_000).map(|line| item(line, u128::from(line % 50), 1)).collect();
        let chunks = Chunker::new(7, false, CHUNK_ITEMS_MAX).add(items);
        check(&chunks, 10_000);
        assert!(chunks.iter().all(|chunk| chunk.after.is_none()));
        assert_eq!((chunks[0].number, chunks.len()), (7, 6), "nine accounts of 200 items in a chunk");
    }

    #[test]
    fn a_large_account_is_a_chain() {
        let items = (1..=5000).map(|line| item(line, u128::from(line % 10 == 0), 1)).collect();
        let chunks = Chunker::new(0, false, CHUNK_ITEMS_MAX).add(items);
        check(&chunks, 5000);
        let after: Vec<_> = chunks.iter().map(|chunk| chunk.after).collect();
        assert_eq!(after, [None, Some(0), Some(1), None]);
    }

    #[test]
    fn the_pieces_of_a_lane_are_one_chain() {
        let mut chunker = Chunker::new(0, true, CHUNK_ITEMS_MAX);
        let mut chunks = Vec::new();
        for piece in 0..3 {
            let lines = piece * 3000 + 1..=piece * 3000 + 3000;
            chunks.extend(chunker.add(lines.map(|line| item(line, u128::from(line % 7), 1)).collect()));
        }
        check(&chunks, 9000);
        assert_eq!(chunks.iter().filter(|chunk| chunk.after.is_none()).count(), 1);
    }
}
