//! Lists of leaves, stored as records of up to [`PART_LEAVES_MAX`] leaves.
//!
//! The id of a list starts with its start time, so that a listing starts with the oldest lists.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use serde::{Deserialize, Serialize};

use super::reader::RepeatedRecords;
use crate::domain::account::Versioned;
use crate::domain::anchor::merkle::MerkleTree;
use crate::domain::anchor::{Hash, LEAF_BYTES, Leaf, LeavesStatement, decode_leaves, encode_leaves};
use crate::domain::ids::{AccountKey, Nonce};
use crate::domain::time::Timestamp;
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::records::{Collection, RECORD_BODY_BYTES_MAX, Record};
use crate::ports::sync_store::Swapped;
use crate::ports::world::World;

/// Maximum number of leaves in a part.
pub const PART_LEAVES_MAX: usize = 4000;
/// Maximum uncompressed size of a part, in bytes.
const PART_BYTES_MAX: usize = PART_LEAVES_MAX.saturating_mul(LEAF_BYTES);
const COMPRESSION_LEVEL: i32 = 3;
/// Number of parts in one listing when old lists are removed.
const REMOVED_AT_ONCE: usize = 2;

// Base64 uses four characters for three bytes. Incompressible content grows by less than one percent.
const _: () =
    assert!(PART_BYTES_MAX.div_ceil(3) * 4 < RECORD_BODY_BYTES_MAX / 100 * 99, "a part fits a record");

/// The progress of a list that is being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListProgress {
    /// The id of the list.
    pub id: String,
    /// The start time, in milliseconds since 1970.
    pub began_at: i64,
    /// The sequence of the last anchor at the start; 0 if there was none. All of its leaves are older.
    pub after: u64,
    /// Number of parts written.
    pub parts: u32,
    /// Number of leaves written.
    pub count: u64,
    /// Digest of the parts written, in hexadecimal.
    pub digest: String,
}

impl ListProgress {
    /// Starts a list after the anchor with this sequence.
    pub fn begin(after: u64, now: Timestamp, nonce: Nonce) -> Self {
        let (id, digest) =
            (format!("{:014}-{}", now.unix_ms().max(0), nonce.simple()), Hash::ZERO.to_string());
        Self { id, began_at: now.unix_ms(), after, parts: 0, count: 0, digest }
    }

    fn add(&mut self, leaves: &[Leaf], encoded: &[u8]) {
        // An invalid digest results in another digest that does not match the parts either.
        let before = Hash::parse(&self.digest).unwrap_or(Hash::ZERO);
        self.digest = before.with_part(encoded).to_string();
        self.parts = self.parts.saturating_add(1);
        self.count = self.count.saturating_add(u64::try_from(leaves.len()).unwrap_or(u64::MAX));
    }

    /// Returns whether a list that was read equals the list that was written.
    pub(super) fn is(&self, read: &LeavesStatement) -> bool {
        let LeavesStatement { count, root: _, digest, parts } = read;
        (self.count, self.parts, &self.digest) == (*count, *parts, &digest.to_string())
    }
}

/// Why a list cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ListFault {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// Parts are missing, or do not form a list.
    #[error("{0}")]
    Unprovable(String),
}

/// The lists of leaves of one store.
#[derive(Clone)]
pub struct LeafLists {
    records: RepeatedRecords,
}

impl LeafLists {
    /// Returns a handle to the lists of a store.
    pub fn new(store: &Store, world: &Arc<dyn World>) -> Self {
        Self::over(RepeatedRecords::new(&store.records, world))
    }

    pub(super) const fn over(records: RepeatedRecords) -> Self {
        Self { records }
    }

    /// Writes the next part of a list. Overwrites a part that another process wrote from the same saved progress.
    ///
    /// # Errors
    /// [`StoreFault`]; the part may have been written, or may still be. `list` is unchanged, and the call can be repeated.
    pub async fn append_part(&self, list: &mut ListProgress, leaves: &[Leaf]) -> Result<(), StoreFault> {
        assert!(leaves.len() <= PART_LEAVES_MAX, "a part has {} leaves", leaves.len());
        let encoded = encode_leaves(leaves);
        let compressed = zstd::bulk::compress(&encoded, COMPRESSION_LEVEL);
        let text = STANDARD.encode(compressed.expect("memory is always large enough"));
        let (id, text) = (part_id(&list.id, list.parts), text.as_str());
        let id = id.as_str();
        let mut found: Option<Versioned<String>> = None;
        while found.as_ref().is_none_or(|found| found.value != text) {
            let expected = found.as_ref().map(|found| &found.revision);
            let saved =
                self.records.repeat(|records| records.save(Collection::AnchorLeaves, id, text, expected));
            if matches!(saved.await?, Swapped::Done(_)) {
                break;
            }
            found = self.records.repeat(|records| records.find(Collection::AnchorLeaves, id)).await?;
        }
        list.add(leaves, &encoded);
        Ok(())
    }

    /// Reads a part.
    ///
    /// # Errors
    /// [`ListFault`] when the part is missing or cannot be read.
    pub async fn read_part(&self, list: &str, index: u32) -> Result<Vec<Leaf>, ListFault> {
        let id = part_id(list, index);
        let unprovable = |why: &str| ListFault::Unprovable(format!("part {index} of the list {list} {why}"));
        let found = self.records.repeat(|records| records.find(Collection::AnchorLeaves, &id)).await;
        let text = match found {
            Ok(found) => found.ok_or_else(|| unprovable("is missing"))?.value,
            Err(fault @ StoreFault::Corrupt { .. }) => return Err(unprovable(&chain(&fault))),
            Err(fault) => return Err(fault.into()),
        };
        let raw =
            STANDARD.decode(text).ok().and_then(|raw| zstd::bulk::decompress(&raw, PART_BYTES_MAX).ok());
        raw.and_then(|raw| decode_leaves(&raw)).ok_or_else(|| unprovable("is not a list of leaves"))
    }

    /// Returns whether a part exists.
    ///
    /// # Errors
    /// [`StoreFault`] when the store cannot be read.
    pub async fn has_part(&self, list: &str, index: u32) -> Result<bool, StoreFault> {
        let id = part_id(list, index);
        let found = self.records.repeat(|records| records.find(Collection::AnchorLeaves, &id)).await?;
        Ok(found.is_some())
    }

    /// Copies a part into another store that does not have it. Returns a [`ListFault`] if the part was removed meanwhile.
    ///
    /// # Errors
    /// [`StoreFault`] when a store cannot be used.
    pub async fn copy_part(
        &self,
        to: &Self,
        list: &str,
        index: u32,
    ) -> Result<Result<(), ListFault>, StoreFault> {
        let id = part_id(list, index);
        let found = self.records.repeat(|records| records.find(Collection::AnchorLeaves, &id)).await?;
        let Some(found) = found else {
            return Ok(Err(ListFault::Unprovable(format!("part {index} of the list {list} is missing"))));
        };
        let (id, text) = (id.as_str(), found.value.as_str());
        // A conflict means that an earlier attempt wrote the part.
        let saved = to.records.repeat(|records| records.save(Collection::AnchorLeaves, id, text, None));
        Ok(Ok(saved.await.map(drop)?))
    }

    /// Reads a list from its first part.
    pub fn read(&self, list: &str, parts: u32) -> ListReader {
        let tree = MerkleTree::default();
        let (lists, list) = (self.clone(), list.to_owned());
        ListReader { lists, list, parts, next: 0, digest: Hash::ZERO, last: None, tree }
    }

    /// Removes a list.
    ///
    /// # Errors
    /// [`StoreFault`]; some of its parts may remain.
    pub async fn remove(&self, list: &str) -> Result<(), StoreFault> {
        self.remove_while(&format!("{list}-"), |_| true).await
    }

    /// Removes all lists that are older than the list with this id.
    ///
    /// # Errors
    /// [`StoreFault`]; some of their parts may remain.
    pub async fn remove_before(&self, list: &str) -> Result<(), StoreFault> {
        self.remove_while("", |id| id < list).await
    }

    async fn remove_while(&self, prefix: &str, is_old: impl Fn(&str) -> bool) -> Result<(), StoreFault> {
        loop {
            let listed = self.records.repeat(|records| {
                let prefix = prefix.to_owned();
                async move { records.list(Collection::AnchorLeaves, &prefix, None, REMOVED_AT_ONCE).await }
                    .boxed()
            });
            let old: Vec<Record> =
                listed.await?.into_iter().take_while(|record| is_old(&record.id)).collect();
            if old.is_empty() {
                return Ok(());
            }
            for Record { id, body: _ } in &old {
                self.records.repeat(|records| records.remove(Collection::AnchorLeaves, id)).await?;
            }
        }
    }
}

fn part_id(list: &str, index: u32) -> String {
    format!("{list}-{index:08}")
}

/// Reads the parts of a list in order, and computes the statement about them.
pub struct ListReader {
    lists: LeafLists,
    list: String,
    parts: u32,
    next: u32,
    digest: Hash,
    last: Option<AccountKey>,
    tree: MerkleTree,
}

impl ListReader {
    /// Returns the leaves of the next part; `None` at the end.
    ///
    /// # Errors
    /// [`ListFault`] when the part is missing, or its leaves are not in order.
    pub async fn next_part(&mut self) -> Result<Option<Vec<Leaf>>, ListFault> {
        if self.next >= self.parts {
            return Ok(None);
        }
        let leaves = self.lists.read_part(&self.list, self.next).await?;
        self.digest = self.digest.with_part(&encode_leaves(&leaves));
        for leaf in &leaves {
            if self.last.is_some_and(|last| last >= leaf.account) {
                let (list, account) = (&self.list, leaf.account);
                let why = format!("account {account} is not at its place in the list {list}");
                return Err(ListFault::Unprovable(why));
            }
            self.last = Some(leaf.account);
            self.tree.push(leaf);
        }
        self.next = self.next.saturating_add(1);
        Ok(Some(leaves))
    }

    /// Returns the statement about the parts that were read.
    pub fn statement(self) -> LeavesStatement {
        let count = self.tree.count();
        LeavesStatement { count, root: self.tree.root(), digest: self.digest, parts: self.next }
    }
}
