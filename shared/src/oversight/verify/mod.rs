//! The audit of a whole ledger, for operators. It reads all rows, recomputes all values, and reports differences from
//! what the bank wrote. It only reads, and postings may continue:
//!
//! 1. All rows are read once, in concurrent ranges of users. The account row is read first. Rows after its sequence are
//!    skipped, and rows up to it never change.
//! 2. A suspected inconsistency is checked in two further passes, with delays, against the same state of the account. Only
//!    what is still inconsistent is reported. Neither a commit between two reads nor a commit that becomes visible row by
//!    row therefore causes a finding.
//! 3. Unknown facts cause no findings: limits change, clocks differ, and work may wait for its release.
//!
//! [`walk`] iterates over the rows. [`reading`] passes them to the audit of their account, [`account`], with its journal
//! ([`chain`], [`decisions`]) and a comparison of journal and log ([`comparison`]). [`numbers`] checks that order numbers
//! are unique over all accounts. [`letters`] checks marked transactions against the dead letters. [`batches`] checks the
//! totals of batches against their rows. [`trail`] checks the audit trail. [`anchors`] compares copies of anchors with the
//! store, and [`leaves`] reads their leaves. [`finding`] defines the results. [`surveys`] reads without auditing. The
//! modules `account`, `chain`, `decisions`, `comparison`, `numbers` and `finding` perform no I/O.
//!
//! Memory does not grow with the ledger, except for the order numbers (see [`numbers`]). Each account in progress takes
//! about 50 KB and one page of its rows, and each batch of a window about 2 KB.

mod account;
mod anchors;
mod batches;
mod chain;
mod comparison;
mod decisions;
mod finding;
mod leaves;
mod letters;
mod numbers;
mod reading;
mod surveys;
mod trail;
mod walk;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use futures::{TryStreamExt as _, stream};
use parking_lot::Mutex;

pub use account::{AccountAudit, AccountRow, Counts, LaterRows, OVERDUE_AFTER, PassOptions, Report, Subject};
pub use anchors::AnchorCopies;
pub use comparison::DifferingGroups;
pub use finding::{Finding, FindingKind, Severity};
pub use numbers::{NumberPositions, NumbersSeen};
pub use reading::FirstPass;
pub use surveys::{count_accounts, highest_order_number, pages_of_versions, walk_over};
pub use walk::{Place, Step, Walk};

use crate::backoff::AUDIT_READ;
use crate::domain::ids::{AccountKey, Nonce, TransactionKey};
use crate::ports::Store;
use crate::ports::archive::{RowContent, StoredPage, UserRange};
use crate::ports::fault::{StoreFault, chain as causes};
use crate::ports::world::{World, WorldExt as _};
use crate::posting::order_numbers::{REGISTER, Register, RegisterError};
use batches::Window;
use leaves::AnchoredLeaves;

/// Maximum number of marked transactions that are looked up in the dead letters. Further ones are counted.
const MARKED_MAX: usize = 100_000;
/// Number of user ranges into which a store is divided, so that they can be read concurrently.
const RANGES: u16 = 64;

/// Scope and concurrency of an audit.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Audits only this account, without batches and audit trail. Its order numbers are compared with each other only.
    pub account: Option<AccountKey>,
    /// Number of user ranges read concurrently.
    pub concurrency: NonZeroUsize,
    /// Number of batches per window. With more batches, the transactions are read several times.
    pub batches_at_once: NonZeroUsize,
}

impl Extent {
    /// The default of `batches_at_once`.
    pub const BATCHES_AT_ONCE: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
}

/// Progress of an audit, and finally its totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of audited accounts.
    pub accounts: u64,
    /// Number of journal pages.
    pub pages: u64,
    /// Number of journal entries.
    pub entries: u64,
    /// Number of transactions in any status.
    pub transactions: u64,
    /// Number of different order numbers.
    pub order_numbers: u64,
    /// Number of batches.
    pub batches: u64,
    /// Number of rows of the audit trail.
    pub audit_rows: u64,
    /// Number of accounts compared with an anchor.
    pub anchored_accounts: u64,
    /// Number of findings.
    pub findings: u64,
    /// Number of notices.
    pub notices: u64,
}

/// Receives the findings and the progress of an audit. Called between reads; must not block.
pub trait Watcher: Send + Sync {
    /// Called for each finding and each notice.
    fn found(&self, finding: &Finding);
    /// Called when the audit makes progress.
    fn progressed(&self, totals: &Totals);
}

/// Why the audit is incomplete. The findings so far are valid, but the rest was not checked.
#[derive(Debug, thiserror::Error)]
pub enum VerifyFault {
    /// The store cannot be read.
    #[error("the ledger could not be read completely")]
    Store(#[from] StoreFault),
    /// The store has neither an account nor a register of order numbers, which the first process writes at its start.
    /// Most likely it is not the intended store.
    #[error("the store is empty: check that this is the intended store")]
    Nothing,
    /// The account does not exist.
    #[error("there is no account {0}: no list contains it, and the ledger has no row of it")]
    NoSuchAccount(AccountKey),
}

/// Retries reads while the store is unavailable, and counts them.
#[derive(Clone)]
struct RetryingReader {
    world: Arc<dyn World>,
    reads: Arc<AtomicU64>,
}

impl RetryingReader {
    fn new(world: &Arc<dyn World>) -> Self {
        Self { world: Arc::clone(world), reads: Arc::default() }
    }

    async fn read<'a, T>(
        &self,
        read: impl FnMut() -> BoxFuture<'a, Result<T, StoreFault>> + Send,
    ) -> Result<T, StoreFault> {
        AUDIT_READ.while_unavailable(&*self.world, &self.reads, "The audit retries a read", read).await
    }
}

#[derive(Default)]
struct Shared {
    totals: Totals,
    /// The order numbers; `None` if their uniqueness is not checked.
    numbers: Option<NumbersSeen>,
    /// The lowest counter that was not reserved when the register was last read.
    unreserved_from: Option<u64>,
    marked: Vec<TransactionKey>,
    marked_more: u64,
    /// The current window of batches; `None` if batches are not audited.
    batches: Option<Window>,
}

/// Audits one store.
pub struct Verifier<'a> {
    store: &'a Store,
    world: Arc<dyn World>,
    reader: RetryingReader,
    watcher: &'a dyn Watcher,
    salt: Nonce,
    shared: Mutex<Shared>,
    copies: Option<AnchorCopies>,
    anchored: Option<AnchoredLeaves>,
}

impl<'a> Verifier<'a> {
    /// Creates an audit.
    pub fn new(store: &'a Store, world: Arc<dyn World>, watcher: &'a dyn Watcher) -> Self {
        let salt = world.nonce();
        let audit = Self::of_accounts(store, world, watcher, salt);
        audit.shared.lock().numbers = Some(NumbersSeen::default());
        audit
    }

    /// Creates an audit for accounts that the caller reads with [`Self::walk`]. Order numbers are not compared with
    /// each other. All passes over one account must use the same salt.
    pub fn of_accounts(
        store: &'a Store,
        world: Arc<dyn World>,
        watcher: &'a dyn Watcher,
        salt: Nonce,
    ) -> Self {
        let reader = RetryingReader::new(&world);
        let (shared, copies, anchored) = (Mutex::default(), None, None);
        Self { store, world, reader, watcher, salt, shared, copies, anchored }
    }

    /// Also compares the store with copies of anchors.
    #[must_use]
    pub fn anchored_by(self, copies: Option<AnchorCopies>) -> Self {
        Self { copies, ..self }
    }

    /// Returns the number of reads so far, including those of walks.
    pub fn reads(&self) -> u64 {
        self.reader.reads.load(Ordering::Relaxed)
    }

    /// Runs the audit. Findings are reported to the watcher immediately.
    ///
    /// # Errors
    /// [`VerifyFault`] when the store cannot be read completely.
    pub async fn run(mut self, extent: Extent) -> Result<Totals, VerifyFault> {
        // Not retried, so that an unavailable store is reported immediately.
        self.store.ledger.probe().await?;
        let has_register = self.read_register(true).await?;
        self.anchored = self.check_anchors(extent).await?;
        match extent.account {
            Some(key) => self.audit_one(key).await?,
            None => {
                self.read_first_batches(extent).await?;
                self.audit_all(extent.concurrency).await?;
            }
        }
        if !has_register && self.shared.lock().totals == Totals::default() {
            return Err(VerifyFault::Nothing);
        }
        self.check_batches(extent).await?;
        self.check_numbers(extent).await?;
        self.check_marked().await?;
        self.check_audit_trail(extent).await?;
        let totals = self.shared.lock().totals;
        self.watcher.progressed(&totals);
        Ok(totals)
    }

    async fn audit_all(&self, concurrency: NonZeroUsize) -> Result<(), VerifyFault> {
        let audited = self.for_each_range(concurrency, async |mut walk| {
            let mut pass: Option<FirstPass> = None;
            let mut leaves = self.anchored.as_ref().map(|anchored| anchored.cursor(walk.range()));
            while let Some(step) = walk.next().await? {
                match step {
                    Step::Account { key, listed } => {
                        let leaf = self.take_leaf(&mut leaves, Some(key)).await?;
                        if let Some(pass) = pass.replace(self.begin(key, listed).with(leaf)) {
                            self.conclude(pass).await?;
                        }
                    }
                    Step::Row(content) => pass.iter_mut().for_each(|pass| self.add(pass, &content)),
                    Step::Unreadable(damaged) => {
                        self.report(&Finding::of(FindingKind::NameUnreadable, None).finding(damaged));
                    }
                }
            }
            if let Some(pass) = pass {
                self.conclude(pass).await?;
            }
            self.take_leaf(&mut leaves, None).await.map(drop)
        });
        Ok(audited.await?)
    }

    async fn audit_one(&self, key: AccountKey) -> Result<(), VerifyFault> {
        let listed = self.reader.read(|| self.store.archive.is_listed(key)).await?;
        let leaf = self.leaf_of(key).await?;
        let exists = self.audit(key, listed, leaf).await?;
        if exists || leaf.is_some() { Ok(()) } else { Err(VerifyFault::NoSuchAccount(key)) }
    }

    /// Returns a walk over the whole store, or from a place to the end.
    pub fn walk(&self, place: Option<Place>) -> Walk {
        let archive = Arc::clone(&self.store.archive);
        match place {
            Some(place) => Walk::continued(archive, self.reader.clone(), place),
            None => Walk::new(archive, self.reader.clone(), UserRange::ALL),
        }
    }

    async fn for_each_range(
        &self,
        concurrency: NonZeroUsize,
        read: impl AsyncFn(Walk) -> Result<(), StoreFault>,
    ) -> Result<(), StoreFault> {
        for_each_range(self.store, &self.reader, concurrency.get(), read).await
    }

    /// Reads the lowest counter that is not reserved; unknown if the register is damaged. Returns whether a register
    /// exists. Reports its defects if `report` is true.
    async fn read_register(&self, report: bool) -> Result<bool, StoreFault> {
        let (register, exists) = match self.reader.read(|| self.store.sync.get(REGISTER)).await {
            Ok(Some(found)) => {
                (Register::decode(&found.value).map_err(|unsound| unsound_register(&unsound)), true)
            }
            Ok(None) if self.reader.read(|| self.store.archive.has_pages()).await? => {
                (Err(unsound_register(&RegisterError::Missing)), false)
            }
            Ok(None) => (Ok(Register::fresh()), false),
            Err(fault @ StoreFault::Corrupt { .. }) => {
                (Err(Finding::of(FindingKind::RegisterUnsound, None).finding(causes(&fault))), true)
            }
            Err(fault) => return Err(fault),
        };
        if let Err(finding) = register.as_ref()
            && report
        {
            self.report(finding);
        }
        self.shared.lock().unreserved_from = register.ok().map(|register| register.next);
        Ok(exists)
    }

    /// Reads the journals again to find and report all positions of repeated numbers.
    async fn check_numbers(&self, extent: Extent) -> Result<(), StoreFault> {
        let Some(numbers) = self.shared.lock().numbers.take() else { return Ok(()) };
        self.shared.lock().totals.order_numbers = numbers.len();
        let Some(positions) = numbers.into_positions() else { return Ok(()) };
        let positions = Mutex::new(positions);
        let positions_seen = &positions;
        let note = |key: AccountKey, page: &StoredPage| {
            let mut positions = positions_seen.lock();
            let entries = page.page.iter().flat_map(|page| &page.entries);
            for (entry, position) in entries.zip(page.first_sequence.unwrap_or(0)..) {
                positions.record(key, position, entry);
            }
        };
        match extent.account {
            Some(key) => {
                reading::for_each_page(&self.reader, self.store, key, |page| note(key, page)).await?
            }
            None => {
                let read = self.for_each_range(extent.concurrency, async |walk| {
                    for_each_row(walk, |key, content| {
                        if let RowContent::Page(page) = content {
                            note(key, page);
                        }
                    })
                    .await
                });
                read.await?;
            }
        }
        let positions = positions.into_inner();
        positions.findings().iter().for_each(|finding| self.report(finding));
        Ok(())
    }

    /// Counts a finding, and passes it to the watcher.
    pub fn report(&self, finding: &Finding) {
        let mut shared = self.shared.lock();
        let totals = &mut shared.totals;
        let count = match finding.kind.severity() {
            Severity::Finding => &mut totals.findings,
            Severity::Notice => &mut totals.notices,
        };
        *count = count.saturating_add(1);
        drop(shared);
        self.watcher.found(finding);
    }
}

fn unsound_register(unsound: &RegisterError) -> Finding {
    let kind = match unsound {
        RegisterError::Newer(_) => FindingKind::RegisterUnknown,
        RegisterError::Unreadable(_)
        | RegisterError::Impossible(_)
        | RegisterError::WentBack { .. }
        | RegisterError::Missing
        | RegisterError::UsedUp => FindingKind::RegisterUnsound,
    };
    Finding::of(kind, None).finding(causes(unsound))
}

/// Calls `read` with a walk over each range of the store, for `concurrency` ranges at a time.
async fn for_each_range(
    store: &Store,
    reader: &RetryingReader,
    concurrency: usize,
    read: impl AsyncFn(Walk) -> Result<(), StoreFault>,
) -> Result<(), StoreFault> {
    let ranges = stream::iter(UserRange::divided(RANGES).into_iter().map(Ok));
    let walk = |range| Walk::new(Arc::clone(&store.archive), reader.clone(), range);
    ranges.try_for_each_concurrent(concurrency, async |range| read(walk(range)).await).await
}

/// Calls `each` for each row whose account is known.
async fn for_each_row(
    mut walk: Walk,
    mut each: impl FnMut(AccountKey, &RowContent),
) -> Result<(), StoreFault> {
    let mut account = None;
    while let Some(step) = walk.next().await? {
        match (step, account) {
            (Step::Account { key, listed: _ }, _) => account = Some(key),
            (Step::Row(content), Some(key)) => each(key, &content),
            (Step::Row(_), None) | (Step::Unreadable(_), _) => {}
        }
    }
    Ok(())
}
