//! Copies the contents of one store into another: the backup of a store that is not a file, and the restore into such a store.
//! The source may be in use; nothing else may use the target.
//!
//! A copy is made in passes. The first one reads everything; each further one, also in a later run, only what was written after
//! the begin of the pass before it. In each pass, in this order:
//!
//! 1. the anchors with the lists of their leaves ([`anchors`]), and the batches with their bodies ([`batches`]): what they
//!    state about accounts was true before any account is read;
//! 2. the ledger ([`ledger`]): each account as of the version in its row, which is read first ([`account`]);
//! 3. dead letters, partners, keys, signatures and the audit trail ([`documents`]);
//! 4. the shared values ([`values`]), the register of order numbers last: no number in the copy is above it.
//!
//! Rows that belong together and are read at different times can contradict each other: a dead letter that was resolved
//! meanwhile, a batch that began and ended. So the copy is audited, and while the audit has findings, a further pass is made
//! ([`Copier::run`]): it removes those that come from concurrency, and not those that the source has.
//!
//! The position in the pass is stored in the target ([`progress`]), so that a later run continues an interrupted one. All
//! writes can be repeated. [`pace`] limits the operations a second.
//!
//! Not copied: queue messages (accepted transactions are enqueued again after a restore), payloads of their work, the process
//! registry, and values about these.

mod account;
mod anchors;
mod batches;
mod documents;
mod inventory;
mod ledger;
mod pace;
mod progress;
mod values;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use self::pace::Pace;
use self::progress::{ForeignProgress, Saved};
use crate::backoff::AUDIT_READ;
use crate::domain::anchor::signed::AnchorPublicKey;
use crate::domain::time::Timestamp;
use crate::oversight::verify::{
    AnchorCopies, Extent, Finding, Severity, Totals, Verifier, VerifyFault, Watcher,
};
use crate::ports::Store;
use crate::ports::archive::Damaged;
use crate::ports::fault::StoreFault;
use crate::ports::operations::StorageOperations;
use crate::ports::world::World;

pub use inventory::inventory;
pub use progress::CopyState;
pub use values::{COPIED_VALUES, PROGRESS, SKIPPED_VALUES};

/// Maximum number of passes of a run.
const PASSES_MAX: u32 = 4;

/// What has been copied so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyTotals {
    /// Number of passes that were begun.
    pub passes: u32,
    /// Number of accounts of which rows were copied.
    pub accounts: u64,
    /// Number of journal pages.
    pub pages: u64,
    /// Number of transactions.
    pub transactions: u64,
    /// Number of bodies of batches and dead letters.
    pub payloads: u64,
    /// Number of rows that cannot be read, and were left out.
    pub damaged: u64,
    /// The part of the pass over the ledger that is done, in thousandths.
    pub permille: u64,
    /// Number of storage operations.
    pub operations: u64,
}

/// Receives the progress of a copy. It is called between operations, and must not block.
pub trait CopyWatcher: Send + Sync {
    /// Called when the copy has made progress.
    fn progressed(&self, totals: &CopyTotals);
    /// Called when an audit of the copy begins, and when it has made progress.
    fn audited(&self, totals: &Totals);
    /// Called for something that an operator should know.
    fn noticed(&self, notice: &str);
}

/// The shared values that are written at the end.
#[derive(Debug, Clone)]
pub enum FinalValues {
    /// Those of the source.
    OfSource,
    /// These, by name, instead of those of the source: a restore advances them.
    Advanced(Vec<(&'static str, String)>),
}

/// How a copy is made.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Identifies the source, so that a copy of another one is not continued.
    pub source: String,
    /// Maximum number of storage operations in a second, on average.
    pub operations_per_second: NonZeroU32,
    /// Time before the begin of a pass from which on the next one reads again: more than the clocks of the store can differ.
    pub overlap: Duration,
    /// The values that are written at the end.
    pub values: FinalValues,
    /// Whether the operations of the target are limited and counted; otherwise those of the source are.
    pub meters_target: bool,
}

/// The copy cannot be made, or not completed. What was copied is kept, and a later run continues.
#[derive(Debug, thiserror::Error)]
pub enum CopyFault {
    /// One of the stores cannot be used.
    #[error("a store cannot be used")]
    Store(#[from] StoreFault),
    /// The target has a copy of something else.
    #[error(transparent)]
    Foreign(#[from] ForeignProgress),
    /// The copy cannot be audited.
    #[error("the copy cannot be audited")]
    Audit(#[from] VerifyFault),
}

/// A complete copy.
#[derive(Debug)]
pub struct Copied {
    /// What was copied in this run.
    pub totals: CopyTotals,
    /// The begin of the last pass: everything that the source had answered before is in the copy.
    pub taken_at: Timestamp,
    /// The totals of the audit.
    pub audited: Totals,
    /// The findings of the audit, without notices.
    pub findings: Vec<Finding>,
}

/// Copies one store into another.
pub struct Copier<'a> {
    source: &'a Store,
    target: &'a Store,
    world: Arc<dyn World>,
    options: CopyOptions,
    watcher: &'a dyn CopyWatcher,
    pace: Pace,
    reads: AtomicU64,
    totals: Mutex<CopyTotals>,
    /// Ranges that are copied at once save their positions in one value, one after the other.
    saving: tokio::sync::Mutex<()>,
}

impl<'a> Copier<'a> {
    /// Prepares a copy.
    pub fn new(
        (source, target): (&'a Store, &'a Store),
        world: &Arc<dyn World>,
        options: CopyOptions,
        watcher: &'a dyn CopyWatcher,
    ) -> Self {
        let metered: &Arc<StorageOperations> =
            if options.meters_target { &target.operations } else { &source.operations };
        let pace = Pace::new(metered, world, options.operations_per_second);
        let (world, reads, totals) = (Arc::clone(world), AtomicU64::new(0), Mutex::default());
        let saving = tokio::sync::Mutex::default();
        Self { source, target, world, options, watcher, pace, reads, totals, saving }
    }

    /// Makes or continues a copy, and audits it. While the audit has findings, makes further passes, unless one changes
    /// nothing of them. `accepted` are the keys of anchors with which the accounts are compared.
    ///
    /// # Errors
    /// [`CopyFault`]
    pub async fn run(&self, accepted: &[AnchorPublicKey]) -> Result<Copied, CopyFault> {
        let mut before: Option<Vec<String>> = None;
        loop {
            let taken_at = self.pass().await?;
            let (audited, findings) = self.audit(accepted).await?;
            let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
            let totals = *self.totals.lock();
            let is_last = texts.is_empty() || totals.passes >= PASSES_MAX || before.as_ref() == Some(&texts);
            if is_last {
                return Ok(Copied { totals, taken_at, audited, findings });
            }
            let notice =
                format!("the audit of the copy has {} findings: what changed is read again", texts.len());
            self.watcher.noticed(&notice);
            before = Some(texts);
        }
    }

    /// Returns what was copied so far.
    pub fn totals(&self) -> CopyTotals {
        self.progress();
        *self.totals.lock()
    }

    /// Writes the begin of the next pass into the target, unless one was interrupted: from then on, the target is one of this
    /// copy.
    ///
    /// # Errors
    /// [`CopyFault`]
    pub async fn begin(&self) -> Result<(), CopyFault> {
        self.begin_or_continue().await.map(drop)
    }

    /// Makes one pass, or the rest of an interrupted one, without an audit. Returns its begin.
    ///
    /// # Errors
    /// [`CopyFault`]
    pub async fn pass(&self) -> Result<Timestamp, CopyFault> {
        let saved = self.begin_or_continue().await?;
        {
            let mut totals = self.totals.lock();
            totals.passes = totals.passes.saturating_add(1);
            totals.permille = 0;
        }
        let is_first = saved.since.is_none();
        self.copy_anchors(is_first).await?;
        self.copy_batches().await?;
        let began_at = Timestamp::from_unix_ms(saved.began_at);
        let saved = Mutex::new(saved);
        self.copy_ledger(&saved).await?;
        self.copy_documents(is_first).await?;
        self.copy_values().await?;
        let finished = Saved { finished: true, ..saved.into_inner() };
        self.save(&finished).await?;
        self.progress();
        Ok(began_at)
    }

    async fn audit(&self, accepted: &[AnchorPublicKey]) -> Result<(Totals, Vec<Finding>), CopyFault> {
        let copies = if accepted.is_empty() { Vec::new() } else { self.copied_anchors().await? };
        let (accepted, has_anchors) = (accepted.to_vec(), !copies.is_empty());
        let copies = has_anchors.then_some(AnchorCopies { copies, accepted });
        let audit = Audit { watcher: self.watcher, findings: Mutex::default() };
        self.watcher.audited(&Totals::default());
        let totals = Verifier::new(self.target, Arc::clone(&self.world), &audit)
            .anchored_by(copies)
            .run(Extent {
                account: None,
                concurrency: AUDITED_AT_ONCE,
                batches_at_once: Extent::BATCHES_AT_ONCE,
            })
            .await?;
        Ok((totals, audit.findings.into_inner()))
    }

    /// Does one step after the pause that the limit of operations needs, and again while the store is unavailable.
    async fn step<'s, T>(
        &self,
        step: impl FnMut() -> BoxFuture<'s, Result<T, StoreFault>> + Send,
    ) -> Result<T, StoreFault> {
        self.pace.keep().await;
        AUDIT_READ.while_unavailable(&*self.world, &self.reads, "The copy repeats a step", step).await
    }

    fn note(&self, change: impl FnOnce(&mut CopyTotals)) {
        change(&mut self.totals.lock());
    }

    fn note_damaged(&self, damaged: &Damaged) {
        self.note(|totals| totals.damaged = totals.damaged.saturating_add(1));
        self.watcher.noticed(&format!("not copied, because it cannot be read: {damaged}"));
    }

    fn progress(&self) {
        let totals = {
            let mut totals = self.totals.lock();
            totals.operations = self.pace.operations();
            *totals
        };
        self.watcher.progressed(&totals);
    }
}

/// Number of ranges of the copy that are audited at once.
const AUDITED_AT_ONCE: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4).expect("not zero");

/// Keeps the findings of an audit.
struct Audit<'a> {
    watcher: &'a dyn CopyWatcher,
    findings: Mutex<Vec<Finding>>,
}

/// Maximum number of findings that are kept; the totals contain the number of all.
const FINDINGS_MAX: usize = 1000;

impl Watcher for Audit<'_> {
    fn found(&self, finding: &Finding) {
        let mut findings = self.findings.lock();
        if finding.kind.severity() == Severity::Finding && findings.len() < FINDINGS_MAX {
            findings.push(finding.clone());
        }
    }

    fn progressed(&self, totals: &Totals) {
        self.watcher.audited(totals);
    }
}
