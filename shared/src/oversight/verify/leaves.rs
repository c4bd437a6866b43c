//! Reads the leaves of an anchor in the store, for the accounts of each range.

use std::collections::VecDeque;

use super::Verifier;
use super::finding::{Finding, FindingKind};
use crate::domain::anchor::{Hash, Leaf, encode_leaves};
use crate::domain::ids::AccountKey;
use crate::oversight::anchors::{LeafLists, ListFault, StoredAnchor};
use crate::ports::archive::UserRange;
use crate::ports::fault::StoreFault;

/// A part of the list, as found when the whole list was checked.
struct Part {
    last: AccountKey,
    hash: Hash,
}

/// The list of leaves of one anchor, verified against its signed statement.
pub(super) struct AnchoredLeaves {
    lists: LeafLists,
    list: String,
    parts: Vec<Part>,
}

impl AnchoredLeaves {
    /// Reads the whole list, and compares it with the statement.
    pub(super) async fn check(lists: LeafLists, anchor: &StoredAnchor) -> Result<Self, ListFault> {
        let stated = anchor.statement.leaves;
        let (mut reader, mut parts) = (lists.read(&anchor.list, stated.parts), Vec::new());
        while let Some(leaves) = reader.next_part().await? {
            let Some(last) = leaves.last() else {
                return Err(ListFault::Unprovable("a part of the list of leaves is empty".to_owned()));
            };
            parts.push(Part { last: last.account, hash: Hash::of(&encode_leaves(&leaves)) });
        }
        if reader.statement() != stated {
            let why = "the list of leaves in the store is not the one that was signed";
            return Err(ListFault::Unprovable(why.to_owned()));
        }
        Ok(Self { lists, list: anchor.list.clone(), parts })
    }

    /// Returns the leaves of a range, in order.
    pub(super) fn cursor(&self, range: UserRange) -> LeafCursor<'_> {
        let is_before = |part: &Part| range.from.is_some_and(|from| part.last.user < from);
        let next = self.parts.partition_point(is_before);
        LeafCursor { leaves: self, range, next, waiting: VecDeque::new() }
    }

    async fn part(&self, index: usize) -> Result<Option<Vec<Leaf>>, ListFault> {
        let Some(part) = self.parts.get(index) else { return Ok(None) };
        let leaves = self.lists.read_part(&self.list, u32::try_from(index).unwrap_or(u32::MAX)).await?;
        if Hash::of(&encode_leaves(&leaves)) == part.hash {
            return Ok(Some(leaves));
        }
        Err(ListFault::Unprovable("the list of leaves was changed during the audit".to_owned()))
    }

    async fn find(&self, account: AccountKey) -> Result<Option<Leaf>, ListFault> {
        let leaves = self.part(self.parts.partition_point(|part| part.last < account)).await?;
        Ok(leaves.into_iter().flatten().find(|leaf| leaf.account == account))
    }
}

/// The leaves of a range that were not taken yet.
pub(super) struct LeafCursor<'a> {
    leaves: &'a AnchoredLeaves,
    range: UserRange,
    next: usize,
    waiting: VecDeque<Leaf>,
}

impl LeafCursor<'_> {
    /// Takes the next leaf up to this account, or the next leaf of the range if `until` is `None`.
    async fn take(&mut self, until: Option<AccountKey>) -> Result<Option<Leaf>, ListFault> {
        loop {
            while self.waiting.is_empty() {
                let Some(leaves) = self.leaves.part(self.next).await? else { return Ok(None) };
                self.next = self.next.saturating_add(1);
                let range = self.range;
                self.waiting.extend(leaves);
                self.waiting.retain(|leaf| range.from.is_none_or(|from| from <= leaf.account.user));
            }
            let is_wanted = |leaf: &mut Leaf| until.is_none_or(|until| leaf.account <= until);
            let Some(leaf) = self.waiting.pop_front_if(is_wanted) else { return Ok(None) };
            if self.range.contains(leaf.account.user) {
                return Ok(Some(leaf));
            }
            // All further leaves are after the range.
            self.waiting.clear();
            self.next = usize::MAX;
        }
    }
}

impl Verifier<'_> {
    /// Returns the leaf of the account that the walk has reached, or `None`. Leaves before it belong to accounts that
    /// the walk did not find, which are checked. At the end of the range, `account` is `None`.
    pub(super) async fn take_leaf(
        &self,
        cursor: &mut Option<LeafCursor<'_>>,
        account: Option<AccountKey>,
    ) -> Result<Option<Leaf>, StoreFault> {
        loop {
            let Some(leaves) = cursor else { return Ok(None) };
            let leaf = match leaves.take(account).await {
                Ok(Some(leaf)) => leaf,
                Ok(None) => return Ok(None),
                Err(fault) => {
                    // Reported once per range.
                    *cursor = None;
                    return self.report_list(fault).map(|()| None);
                }
            };
            self.note_leaf();
            if Some(leaf.account) == account {
                return Ok(Some(leaf));
            }
            self.check_unmet(leaf).await?;
        }
    }

    pub(super) async fn leaf_of(&self, account: AccountKey) -> Result<Option<Leaf>, StoreFault> {
        let Some(anchored) = &self.anchored else { return Ok(None) };
        let leaf = match anchored.find(account).await {
            Ok(leaf) => leaf,
            Err(fault) => return self.report_list(fault).map(|()| None),
        };
        leaf.iter().for_each(|_| self.note_leaf());
        Ok(leaf)
    }

    fn note_leaf(&self) {
        let totals = &mut self.shared.lock().totals;
        totals.anchored_accounts = totals.anchored_accounts.saturating_add(1);
    }

    /// Checks an account with a leaf that the walk did not find.
    async fn check_unmet(&self, leaf: Leaf) -> Result<(), StoreFault> {
        let account = leaf.account;
        // The account was written before the audit, so one read is conclusive.
        if matches!(self.read_row(account).await?, super::AccountRow::Missing) {
            let finding = Finding::of(FindingKind::AnchoredAccount, Some(account));
            self.report(
                &finding.expecting(format!("version {}, or a later one", leaf.version)).finding("no account"),
            );
            return Ok(());
        }
        let listed = self.reader.read(|| self.store.archive.is_listed(account)).await?;
        self.audit(account, listed, Some(leaf)).await.map(drop)
    }
}
