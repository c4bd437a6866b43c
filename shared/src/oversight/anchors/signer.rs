//! Signs a collected list of leaves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::LISTS_KEPT;
use super::body::StoredAnchor;
use super::leaf_lists::{LeafLists, ListFault, ListProgress, ListReader};
use super::log::AnchorLog;
use super::reader::RepeatedRecords;
use super::renewable_key::RenewableKey;
use crate::domain::anchor::{AnchorKind, AuditPosition, Hash, Leaf, LeavesStatement, Statement};
use crate::domain::ids::AccountKey;
use crate::domain::time::Timestamp;
use crate::oversight::audit::AuditTrail;
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::world::{World, WorldExt as _};

/// Minimum time between two anchors that rounds make.
const INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of contradictions that are reported in detail.
const CONTRADICTIONS_MAX: usize = 20;
/// Number of store operations that find the last row of the audit trail.
const AUDIT_OPERATIONS: u64 = 2;

/// Why an anchor is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// A round of the scrubber, or a command.
    Round,
    /// The store was replaced by an earlier state of it.
    Restore,
}

/// An account whose state is older than in the last anchor, or differs from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The account.
    pub account: AccountKey,
    /// The state in the last anchor.
    pub expected: String,
    /// The state in the store.
    pub found: String,
}

/// Result of [`AnchorSigner::sign`].
#[derive(Debug)]
pub struct Signing {
    /// Whether an anchor was appended.
    pub outcome: SigningOutcome,
    /// Why the list was not compared with the list of the last anchor: that list is missing or was changed.
    pub not_compared: Option<String>,
}

/// Whether an anchor was appended.
#[derive(Debug)]
pub enum SigningOutcome {
    /// The anchor was appended.
    Appended(Box<StoredAnchor>),
    /// The store contradicts the last anchor. Nothing was signed. Contains at most 20 contradictions, and their total
    /// number.
    Contradicted(Vec<Contradiction>, u64),
    /// The list differs from the list that was written, for this reason. Nothing was signed.
    Changed(String),
    /// Another process appended an anchor.
    Overtaken,
}

/// Makes the anchors of a store.
pub struct AnchorSigner {
    key: RenewableKey,
    records: RepeatedRecords,
    log: AnchorLog,
    lists: LeafLists,
    trail: AuditTrail,
    world: Arc<dyn World>,
}

impl AnchorSigner {
    /// Creates a signer with this key.
    pub fn new(store: &Store, world: &Arc<dyn World>, key: impl Into<RenewableKey>) -> Self {
        let records = RepeatedRecords::new(&store.records, world);
        Self {
            key: key.into(),
            log: AnchorLog::over(records.clone()),
            lists: LeafLists::over(records.clone()),
            records,
            trail: AuditTrail::new(store, Arc::clone(world)),
            world: Arc::clone(world),
        }
    }

    /// Returns the anchors.
    pub const fn log(&self) -> &AnchorLog {
        &self.log
    }

    /// Returns the lists of leaves.
    pub const fn lists(&self) -> &LeafLists {
        &self.lists
    }

    /// Returns the number of storage operations since the previous call.
    pub fn take_operations(&self) -> u64 {
        self.records.take_operations()
    }

    /// Starts a list if an anchor is due.
    ///
    /// # Errors
    /// [`StoreFault`] when the last anchor cannot be read.
    pub async fn begin_if_due(&self) -> Result<Option<ListProgress>, StoreFault> {
        let (last, now) = (self.log.last().await?, self.world.now());
        let is_due = last.as_ref().is_none_or(|last| last.statement.made_at.after(INTERVAL) <= now);
        Ok(is_due.then(|| self.begin_after(last.as_ref())))
    }

    /// Starts a list.
    ///
    /// # Errors
    /// [`StoreFault`] when the last anchor cannot be read.
    pub async fn begin(&self) -> Result<ListProgress, StoreFault> {
        let last = self.log.last().await?;
        Ok(self.begin_after(last.as_ref()))
    }

    fn begin_after(&self, last: Option<&StoredAnchor>) -> ListProgress {
        ListProgress::begin(sequence(last), self.world.now(), self.world.nonce())
    }

    /// Signs a list and appends the anchor.
    ///
    /// A restore may have returned the store to a state before the last anchors. If the store then contradicts an
    /// anchor, the list is compared with the anchor before it.
    ///
    /// # Errors
    /// [`StoreFault`]; the anchor may have been appended, or may still be.
    pub async fn sign(&self, list: &ListProgress, occasion: Occasion) -> Result<Signing, StoreFault> {
        let anchors = self.log.list(None, LISTS_KEPT).await?;
        let last = anchors.first();
        if sequence(last) != list.after {
            // The leaves of the last anchor can be newer than the leaves of the list.
            return Ok(Signing { outcome: SigningOutcome::Overtaken, not_compared: None });
        }
        let mut compared = match occasion {
            Occasion::Round => anchors.iter().take(1),
            Occasion::Restore => anchors.iter().take(LISTS_KEPT),
        };
        let mut contradicted = None;
        let (read, before, not_compared) = loop {
            let earlier = compared.next();
            if let Some((contradictions, count)) = contradicted.take_if(|_| earlier.is_none()) {
                self.remove(list).await;
                let outcome = SigningOutcome::Contradicted(contradictions, count);
                return Ok(Signing { outcome, not_compared: None });
            }
            match self.compare(list, earlier).await {
                Ok(Compared { leaves, contradictions: (_, 0), not_compared }) => {
                    break (leaves, earlier, not_compared);
                }
                Ok(Compared { contradictions, .. }) => contradicted = contradicted.or(Some(contradictions)),
                Err(ListFault::Store(fault)) => return Err(fault),
                Err(ListFault::Unprovable(why)) => {
                    return Ok(Signing { outcome: SigningOutcome::Changed(why), not_compared: None });
                }
            }
        };
        let statement = self.statement(list, read, last, (occasion, before)).await?;
        let anchor =
            StoredAnchor { statement, signed: self.key.get().sign(&statement), list: list.id.clone() };
        if !self.log.append(&anchor).await? {
            return Ok(Signing { outcome: SigningOutcome::Overtaken, not_compared });
        }
        if let Err(fault) = self.remove_old().await {
            tracing::warn!("Old lists of leaves were not removed: {}", chain(&fault));
        }
        Ok(Signing { outcome: SigningOutcome::Appended(Box::new(anchor)), not_compared })
    }

    /// Reads the list, and compares each leaf with an earlier anchor.
    async fn compare(
        &self,
        list: &ListProgress,
        earlier: Option<&StoredAnchor>,
    ) -> Result<Compared, ListFault> {
        let mut comparison = earlier.map(|earlier| Comparison::with(&self.lists, earlier));
        let leaves = self.read(list, &mut comparison).await?;
        let (contradictions, not_compared) = match comparison {
            None => ((Vec::new(), 0), None),
            Some(comparison) => match comparison.end().await {
                Ok(contradictions) => (contradictions, None),
                Err(ListFault::Store(fault)) => return Err(fault.into()),
                Err(ListFault::Unprovable(why)) => ((Vec::new(), 0), Some(why)),
            },
        };
        Ok(Compared { leaves, contradictions, not_compared })
    }

    async fn read(
        &self,
        list: &ListProgress,
        comparison: &mut Option<Comparison>,
    ) -> Result<LeavesStatement, ListFault> {
        let mut reader = self.lists.read(&list.id, list.parts);
        while let Some(leaves) = reader.next_part().await? {
            for leaf in &leaves {
                if let Some(comparison) = comparison {
                    comparison.add(leaf).await?;
                }
            }
        }
        let read = reader.statement();
        if list.is(&read) {
            Ok(read)
        } else {
            Err(ListFault::Unprovable("the list of leaves is not the one that was written".to_owned()))
        }
    }

    async fn statement(
        &self,
        list: &ListProgress,
        leaves: LeavesStatement,
        last: Option<&StoredAnchor>,
        (occasion, before): (Occasion, Option<&StoredAnchor>),
    ) -> Result<Statement, StoreFault> {
        self.records.add_operations(AUDIT_OPERATIONS);
        let audit = self.trail.head().await?.map(|(sequence, hash)| AuditPosition { sequence, hash });
        let returned_to = before.map(|before| before.signed.reference(before.statement.sequence));
        let kind = match occasion {
            Occasion::Round => AnchorKind::Round,
            Occasion::Restore => AnchorKind::Restore { returned_to },
        };
        // Strictly increasing although clocks differ: the order of these times decides which anchors a restore discards.
        let earliest = last.map_or(Timestamp::from_unix_ms(0), |last| {
            last.statement.made_at.after(Duration::from_millis(1))
        });
        Ok(Statement {
            sequence: sequence(last).checked_add(1).expect("there are fewer anchors than numbers"),
            previous: last.map_or(Hash::ZERO, |last| last.signed.hash()),
            kind,
            made_at: self.world.now().max(earliest),
            began_at: Timestamp::from_unix_ms(list.began_at),
            leaves,
            audit,
        })
    }

    /// Removes a list that no process can sign. Other unsigned lists may have been signed by another process; they are
    /// removed when they are old.
    async fn remove(&self, list: &ListProgress) {
        if let Err(fault) = self.lists.remove(&list.id).await {
            tracing::warn!("A list of leaves was not removed: {}", chain(&fault));
        }
    }

    /// Removes all lists that are older than the kept ones, including lists that were never signed.
    async fn remove_old(&self) -> Result<(), StoreFault> {
        let kept = self.log.list(None, LISTS_KEPT).await?;
        let oldest = kept.iter().map(|anchor| &anchor.list).min().filter(|_| kept.len() == LISTS_KEPT);
        match oldest {
            Some(oldest) => self.lists.remove_before(oldest).await,
            None => Ok(()),
        }
    }
}

struct Compared {
    leaves: LeavesStatement,
    contradictions: (Vec<Contradiction>, u64),
    not_compared: Option<String>,
}

/// Compares a list with the list of an earlier anchor while both are read.
struct Comparison {
    reader: ListReader,
    stated: LeavesStatement,
    waiting: VecDeque<Leaf>,
    contradictions: Vec<Contradiction>,
    count: u64,
    /// Why the earlier list cannot be read.
    unprovable: Option<String>,
}

impl Comparison {
    fn with(lists: &LeafLists, last: &StoredAnchor) -> Self {
        let stated = last.statement.leaves;
        let reader = lists.read(&last.list, stated.parts);
        let (waiting, contradictions) = (VecDeque::new(), Vec::new());
        Self { reader, stated, waiting, contradictions, count: 0, unprovable: None }
    }

    /// Reads the next part if all leaves are used. Returns whether leaves are left.
    async fn fill(&mut self) -> Result<bool, StoreFault> {
        while self.waiting.is_empty() && self.unprovable.is_none() {
            match self.reader.next_part().await {
                Ok(Some(leaves)) => self.waiting.extend(leaves),
                Ok(None) => break,
                Err(ListFault::Store(fault)) => return Err(fault),
                Err(ListFault::Unprovable(why)) => self.unprovable = Some(why),
            }
        }
        Ok(!self.waiting.is_empty())
    }

    async fn add(&mut self, leaf: &Leaf) -> Result<(), StoreFault> {
        while self.fill().await? {
            let Some(earlier) = self.waiting.pop_front_if(|earlier| earlier.account <= leaf.account) else {
                break;
            };
            if earlier.account < leaf.account {
                self.contradicted(&earlier, "no account".to_owned());
            } else if leaf.version < earlier.version
                || (leaf.version == earlier.version && leaf.head != earlier.head)
            {
                self.contradicted(&earlier, state(leaf));
            }
        }
        Ok(())
    }

    /// Returns the contradictions, and their number.
    async fn end(mut self) -> Result<(Vec<Contradiction>, u64), ListFault> {
        while self.fill().await? {
            for gone in std::mem::take(&mut self.waiting) {
                self.contradicted(&gone, "no account".to_owned());
            }
        }
        if let Some(why) = self.unprovable {
            return Err(ListFault::Unprovable(why));
        }
        if self.reader.statement() != self.stated {
            let why = "the list of leaves is not the one that was signed";
            return Err(ListFault::Unprovable(why.to_owned()));
        }
        Ok((self.contradictions, self.count))
    }

    fn contradicted(&mut self, earlier: &Leaf, found: String) {
        self.count = self.count.saturating_add(1);
        if self.contradictions.len() < CONTRADICTIONS_MAX {
            let expected = format!("{}, or a later one", state(earlier));
            self.contradictions.push(Contradiction { account: earlier.account, expected, found });
        }
    }
}

fn sequence(last: Option<&StoredAnchor>) -> u64 {
    last.map_or(0, |last| last.statement.sequence)
}

fn state(leaf: &Leaf) -> String {
    format!("version {} with the last page {}", leaf.version, leaf.head)
}
