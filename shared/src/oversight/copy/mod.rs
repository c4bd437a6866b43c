//! Copies the contents of one store into another: to back up a store that is not a file, and to restore into one. The
//! source may be in use; the target must not.
//!
//! A copy is made in passes. The first pass reads everything. Each further pass, also in a later run, reads only what was
//! written since the start of the previous one. A pass copies in this order:
//!
//! 1. the anchors with their leaf lists ([`anchors`]) and the batches with their bodies ([`batches`]), so that their
//!    statements about accounts were true before any account is read;
//! 2. the ledger ([`ledger`]): each account as of the version in its row, which is read first ([`account`]);
//! 3. dead letters, partners, keys, signatures and the audit trail ([`documents`]);
//! 4. the shared values ([`values`]), with the register of order numbers last, so that no copied number is above it.
//!
//! Related rows that are read at different times can be inconsistent, such as a dead letter resolved or a batch completed
//! meanwhile. The copy is therefore audited, and further passes are made while the audit has findings ([`Copier::run`]).
//! They remove findings caused by concurrency, but not those that the source has itself.
//!
//! The position in the pass is stored in the target ([`progress`]), so that a later run continues an interrupted pass. All
//! writes can be repeated. [`pace`] limits the rate of operations.
//!
//! Not copied: queue messages (accepted transactions are enqueued again after a restore), payloads of queued work, the
//! process registry, and values about these.

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
use self::progress::{ProgressError, Saved};
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

const PASSES_MAX: u32 = 4;

/// Progress of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyTotals {
    /// Number of passes started.
    pub passes: u32,
    /// Number of accounts with copied rows.
    pub accounts: u64,
    /// Number of journal pages.
    pub pages: u64,
    /// Number of transactions.
    pub transactions: u64,
    /// Number of bodies of batches and dead letters.
    pub payloads: u64,
    /// Number of unreadable rows, which were skipped.
    pub damaged: u64,
    /// Completed fraction of the ledger pass, in thousandths.
    pub permille: u64,
    /// Number of storage operations.
    pub operations: u64,
}

/// Receives the progress of a copy. Called between operations; must not block.
pub trait CopyWatcher: Send + Sync {
    /// Called when the copy makes progress.
    fn progressed(&self, totals: &CopyTotals);
    /// Called when an audit of the copy starts or makes progress.
    fn audited(&self, totals: &Totals);
    /// Called with a notice for the operator.
    fn noticed(&self, notice: &str);
}

/// Which shared values are written at the end of a pass.
#[derive(Debug, Clone)]
pub enum FinalValues {
    /// The values of the source.
    OfSource,
    /// These values by name, and the values of the source for other names. A restore advances some values.
    Advanced(Vec<(&'static str, String)>),
}

/// Options of a copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Identifies the source, so that a copy of another source is not continued.
    pub source: String,
    /// Maximum average number of storage operations per second.
    pub operations_per_second: NonZeroU32,
    /// How far before the start of a pass the next pass begins to read. Must exceed the clock differences within the store.
    pub overlap: Duration,
    /// The values written at the end of a pass.
    pub values: FinalValues,
    /// Whether the operations of the target are limited and counted; otherwise the operations of the source are.
    pub meters_target: bool,
}

/// Why a copy is not complete. What was copied is kept, and a later run continues.
#[derive(Debug, thiserror::Error)]
pub enum CopyFault {
    /// One of the stores cannot be used.
    #[error("a store cannot be used")]
    Store(#[from] StoreFault),
    /// The target has a copy of another source.
    #[error(transparent)]
    Foreign(#[from] ProgressError),
    /// The copy cannot be audited.
    #[error("the copy cannot be audited")]
    Audit(#[from] VerifyFault),
}

/// The result of a complete copy.
#[derive(Debug)]
pub struct Copied {
    /// What this run copied.
    pub totals: CopyTotals,
    /// The start of the last pass. The copy contains everything that the source confirmed before.
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
    /// Serializes the saves of concurrent ranges, whose positions are in one value.
    saving: tokio::sync::Mutex<()>,
}

impl<'a> Copier<'a> {
    /// Creates a copier. The first store is the source, the second one the target.
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

    /// Starts or continues a copy, and audits it. Makes further passes while the audit has findings, until a pass does not
    /// change them. `accepted` are the keys of anchors with which the accounts are compared.
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

    /// Returns the progress so far.
    pub fn totals(&self) -> CopyTotals {
        self.progress();
        *self.totals.lock()
    }

    /// Saves the start of the next pass in the target, unless a pass was interrupted. From then on, the target belongs to
    /// this copy.
    ///
    /// # Errors
    /// [`CopyFault`]
    pub async fn begin(&self) -> Result<(), CopyFault> {
        self.begin_or_continue().await.map(drop)
    }

    /// Makes one pass, or completes an interrupted one, without an audit. Returns the start of the pass.
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

    /// Runs one step when the operation limit allows it. Retries while the store is unavailable.
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

const AUDITED_AT_ONCE: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4).expect("not zero");

/// Collects the findings of an audit.
struct Audit<'a> {
    watcher: &'a dyn CopyWatcher,
    findings: Mutex<Vec<Finding>>,
}

/// Maximum number of findings that are kept. The totals count all of them.
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
