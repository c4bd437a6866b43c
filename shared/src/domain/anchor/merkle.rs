//! The Merkle tree over the leaves of an anchor, as in RFC 6962, section 2.1.

use sha2::{Digest as _, Sha256};

use super::{Hash, Leaf};

/// Precedes a leaf in the input of its hash, so that no leaf can be taken for an inner node.
const LEAF_PREFIX: u8 = 0;
/// Precedes the two child hashes in the input of the hash of an inner node.
const NODE_PREFIX: u8 = 1;

/// Returns the hash of a leaf.
pub fn leaf_hash(leaf: &Leaf) -> Hash {
    hash(&[&[LEAF_PREFIX], &leaf.encode()])
}

fn node_hash(left: Hash, right: Hash) -> Hash {
    hash(&[&[NODE_PREFIX], left.as_bytes(), right.as_bytes()])
}

fn hash(parts: &[&[u8]]) -> Hash {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    Hash::from_bytes(hash.finalize().into())
}

#[derive(Debug, Clone, Copy)]
struct Subtree {
    hash: Hash,
    /// The base-2 logarithm of the number of its leaves.
    level: u32,
    /// Whether it contains the leaf whose path is computed.
    is_on_path: bool,
}

/// Computes the root of a tree and the path of one leaf. The leaves are pushed in order; memory holds one hash per level.
#[derive(Debug, Default)]
pub struct MerkleTree {
    /// Complete subtrees, the largest first, each with fewer leaves than the previous one.
    subtrees: Vec<Subtree>,
    count: u64,
    path: Vec<Hash>,
}

impl MerkleTree {
    /// Adds the next leaf.
    pub fn push(&mut self, leaf: &Leaf) {
        self.add(leaf, false);
    }

    /// Adds the next leaf and selects it for the path. Call this for at most one leaf of a tree.
    pub fn push_with_path(&mut self, leaf: &Leaf) {
        self.add(leaf, true);
    }

    fn add(&mut self, leaf: &Leaf, is_on_path: bool) {
        let mut added = Subtree { hash: leaf_hash(leaf), level: 0, is_on_path };
        self.count = self.count.checked_add(1).expect("there are fewer leaves than numbers");
        while let Some(left) = self.subtrees.pop_if(|left| left.level == added.level) {
            added = self.join(left, added);
            added.level = added.level.saturating_add(1);
        }
        self.subtrees.push(added);
    }

    fn join(&mut self, left: Subtree, right: Subtree) -> Subtree {
        if left.is_on_path {
            self.path.push(right.hash);
        } else if right.is_on_path {
            self.path.push(left.hash);
        }
        let is_on_path = left.is_on_path || right.is_on_path;
        Subtree { hash: node_hash(left.hash, right.hash), level: right.level, is_on_path }
    }

    /// Returns the number of leaves.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the root; without leaves, the hash of an empty input.
    pub fn root(self) -> Hash {
        self.root_and_path().0
    }

    /// Returns the root, and the path for [`root_from_path`] if a leaf was selected: the hashes of the sibling subtrees,
    /// from the smallest on.
    pub fn root_and_path(mut self) -> (Hash, Option<Vec<Hash>>) {
        let Some(mut root) = self.subtrees.pop() else { return (hash(&[]), None) };
        while let Some(left) = self.subtrees.pop() {
            root = self.join(left, root);
        }
        (root.hash, root.is_on_path.then_some(self.path))
    }
}

/// Computes the root of a tree with `count` leaves from the hash of the leaf at `index` and its path (RFC 9162, section
/// 2.1.3.2). Returns `None` if the length of the path does not fit.
pub fn root_from_path(leaf: Hash, (index, count): (u64, u64), path: &[Hash]) -> Option<Hash> {
    let mut last = count.checked_sub(1)?;
    let mut place = index;
    if place > last {
        return None;
    }
    let mut root = leaf;
    for sibling in path {
        if last == 0 {
            return None;
        }
        if place & 1 == 1 || place == last {
            root = node_hash(*sibling, root);
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            root = node_hash(root, *sibling);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    (last == 0).then_some(root)
}
