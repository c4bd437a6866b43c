//! Makes an anchor immediately, with a full-speed walk over all rows.

use std::sync::Arc;

use super::leaf_lists::PART_LEAVES_MAX;
use super::signer::{AnchorSigner, Occasion, Signing};
use crate::domain::anchor::Leaf;
use crate::oversight::verify::{Step, walk_over};
use crate::ports::Store;
use crate::ports::archive::RowContent;
use crate::ports::fault::StoreFault;
use crate::ports::world::World;

/// Collects the leaves of all accounts, signs them and appends the anchor. Accounts with unreadable rows get no leaf.
///
/// # Errors
/// [`StoreFault`] when the store cannot be read or written. The anchor may have been appended, or may still be.
pub async fn append(
    store: &Store,
    world: &Arc<dyn World>,
    signer: &AnchorSigner,
    occasion: Occasion,
) -> Result<Signing, StoreFault> {
    let (mut walk, mut list, mut leaves) = (walk_over(store, world), signer.begin().await?, Vec::new());
    while let Some(step) = walk.next().await? {
        if let Step::Row(RowContent::Account(account)) = step
            && let Ok(account) = &*account
        {
            leaves.push(Leaf::of(account));
        }
        if leaves.len() == PART_LEAVES_MAX {
            signer.lists().append_part(&mut list, &leaves).await?;
            leaves.clear();
        }
    }
    if !leaves.is_empty() {
        signer.lists().append_part(&mut list, &leaves).await?;
    }
    signer.sign(&list, occasion).await
}
