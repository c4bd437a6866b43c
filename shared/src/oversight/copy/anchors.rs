//! Copies all anchors, and the leaf lists of the last ones.

use std::collections::BTreeSet;

use futures::FutureExt as _;

use super::Copier;
use crate::domain::anchor::signed::SignedAnchor;
use crate::oversight::anchors::{AnchorLog, LISTS_KEPT, LeafLists, ListFault};
use crate::ports::fault::StoreFault;
use crate::ports::records::Collection;

const ANCHORS_LIMIT: usize = 1000;

impl Copier<'_> {
    /// Copies new anchors, and the leaf lists that the source still has.
    pub(super) async fn copy_anchors(&self, is_first: bool) -> Result<(), StoreFault> {
        self.copy_appended(Collection::Anchors, is_first).await?;
        let log = AnchorLog::new(self.target, &self.world);
        let last = log.list(None, LISTS_KEPT).await?;
        let (from, to) = (LeafLists::new(self.source, &self.world), LeafLists::new(self.target, &self.world));
        let mut kept = BTreeSet::new();
        for anchor in last {
            let (list, parts) = (&anchor.list, anchor.statement.leaves.parts);
            for part in 0..parts {
                if to.has_part(list, part).await? {
                    continue;
                }
                match self.step(|| from.copy_part(&to, list, part).boxed()).await? {
                    Ok(()) => {}
                    // The source removes older lists than those of the last anchors.
                    Err(ListFault::Unprovable(why)) => {
                        self.watcher.noticed(&format!("not copied: {why}"));
                        break;
                    }
                    Err(ListFault::Store(fault)) => return Err(fault),
                }
            }
            kept.insert(anchor.list);
        }
        match kept.first() {
            Some(first) => to.remove_before(first).await,
            None => Ok(()),
        }
    }

    /// Returns all anchors in the target.
    pub(super) async fn copied_anchors(&self) -> Result<Vec<SignedAnchor>, StoreFault> {
        let (log, mut all, mut before) = (AnchorLog::new(self.target, &self.world), Vec::new(), None);
        loop {
            let anchors = log.list(before, ANCHORS_LIMIT).await?;
            before = anchors.last().map(|anchor| anchor.statement.sequence);
            let is_end = anchors.len() < ANCHORS_LIMIT;
            all.extend(anchors.into_iter().map(|anchor| anchor.signed));
            if is_end {
                return Ok(all);
            }
        }
    }
}
