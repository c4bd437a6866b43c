//! Creates the proof that the last anchor covers the decision about a transaction.

use std::sync::Arc;

use super::body::StoredAnchor;
use super::leaf_lists::{LeafLists, ListFault};
use super::log::AnchorLog;
use crate::domain::anchor::inclusion::{InclusionError, InclusionProof, LeafPlace};
use crate::domain::anchor::merkle::MerkleTree;
use crate::domain::anchor::{Hash, Leaf};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::transaction::Outcome;
use crate::oversight::verify::pages_of_versions;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::world::World;

/// Why a decision cannot be proven.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Store(#[from] StoreFault),
    /// The leaves of the last anchor cannot be read.
    #[error("the leaves of the last anchor cannot be read")]
    List(#[from] ListFault),
    /// The transaction does not exist.
    #[error("there is no such transaction")]
    Unknown,
    /// The transaction is not final.
    #[error("the transaction is not final yet")]
    Accepted,
    /// The transaction was rejected because its account did not exist.
    #[error("the account did not exist, so no journal contains the rejection")]
    NoAccount,
    /// No anchor covers the decision.
    #[error("no anchor covers the decision yet: make one with `postonce-web anchors append`")]
    NotAnchored,
    /// A page of the journal cannot be read.
    #[error("a page of the journal cannot be read: {0}")]
    Damaged(String),
    /// Journal and anchor contradict each other.
    #[error("run `postonce-web verify --anchors`")]
    Contradiction(#[from] InclusionError),
}

/// Proves the decision about a transaction with the last anchor. Reads its list of leaves and the journal of the account.
///
/// # Errors
/// [`ProofError`]
pub async fn prove(
    store: &Store,
    world: &Arc<dyn World>,
    key: &TransactionKey,
) -> Result<InclusionProof, ProofError> {
    let stored = store.ledger.transaction(key).await?.ok_or(ProofError::Unknown)?;
    let outcome = stored.outcome.ok_or(ProofError::Accepted)?;
    let anchor = AnchorLog::new(store, world).last().await?.ok_or(ProofError::NotAnchored)?;
    let version = version(store, key, &outcome).await?;
    let lists = LeafLists::new(store, world);
    let found = find(&lists, &anchor, key.account).await?;
    let covers = |(_, leaf, _): &(u64, Leaf, Vec<Hash>)| leaf.version >= version;
    let (index, leaf, path) = found.filter(covers).ok_or(ProofError::NotAnchored)?;
    let pages = pages_of_versions(store, world, key.account, version..=leaf.version).await?;
    let pages = pages.map_err(|damaged| ProofError::Damaged(damaged.to_string()))?;
    let leaves = anchor.statement.leaves;
    let place = LeafPlace { leaf, index, count: leaves.count, path: &path, root: leaves.root };
    let transaction = (&key.partner, key.message);
    Ok(InclusionProof::new(transaction, &pages, &place, anchor.signed)?)
}

async fn version(store: &Store, key: &TransactionKey, outcome: &Outcome) -> Result<u64, ProofError> {
    match outcome {
        Outcome::Rejected { version, .. } => version.ok_or(ProofError::NoAccount),
        Outcome::Posted { sequence, .. } => {
            let pages = store.log.pages(key.account, *sequence, 1).await?;
            Ok(pages.first().ok_or(InclusionError::Decision)?.version)
        }
    }
}

/// Reads the list once. Returns the index of the leaf of an account, the leaf and its path; `None` if there is no such
/// leaf.
async fn find(
    lists: &LeafLists,
    anchor: &StoredAnchor,
    account: AccountKey,
) -> Result<Option<(u64, Leaf, Vec<Hash>)>, ListFault> {
    let mut reader = lists.read(&anchor.list, anchor.statement.leaves.parts);
    let (mut tree, mut found) = (MerkleTree::default(), None);
    while let Some(leaves) = reader.next_part().await? {
        for leaf in &leaves {
            if leaf.account == account {
                found = Some((tree.count(), *leaf));
                tree.push_with_path(leaf);
            } else {
                tree.push(leaf);
            }
        }
    }
    let path = tree.root_and_path().1;
    Ok(found.zip(path).map(|((index, leaf), path)| (index, leaf, path)))
}
