//! The audit of a whole ledger, for operators: reads everything, recomputes everything, and tells what
//! is not as the bank wrote it. It only reads, and money may move all the while:
//!
//! 1. The account row is read first; what lies behind the sequence that it names is passed over. What
//!    lies before it never changes.
//! 2. A suspicion is read again, twice, with some time between, against the same state of the account.
//!    Only what is still there then is told. So neither a commit between two reads nor one that a store
//!    shows piece by piece becomes a finding.
//! 3. What cannot be known is not told: limits change, clocks differ, work may wait for its release.
//!
//! To read it: [`walk`] goes over the accounts; [`reading`] reads one of them, [`account`] judges it,
//! by its journal ([`chain`]) and by comparing journal and log ([`sieve`]); [`numbers`] are unique over
//! all accounts; [`letters`] looks for what was set aside; [`finding`] is what is told. All but `walk`,
//! `reading` and `letters` is pure.
//!
//! Memory does not grow with the ledger, but for the order numbers (see [`numbers`]): each account
//! under audit costs some 50 KB and a page of its rows at a time.

mod account;
mod chain;
mod finding;
mod letters;
mod numbers;
mod reading;
mod sieve;
mod walk;

use std::num::NonZeroUsize;
use std::sync::Arc;

use futures::{TryStreamExt as _, stream};
use parking_lot::Mutex;

pub use account::{AccountAudit, AccountRow, Beyond, Counts, Look, OVERDUE_AFTER, Report, Subject};
pub use finding::{Finding, FindingKind, Weight};
pub use numbers::{NumbersSeen, Places};
pub use sieve::Suspects;

use crate::backoff::AUDIT_READ;
use crate::domain::ids::{AccountKey, Nonce, TransactionKey};
use crate::ports::Store;
use crate::ports::archive::StoredPage;
use crate::ports::fault::{StoreFault, chain as causes};
use crate::ports::world::{World, WorldExt as _};
use crate::protocol::order_numbers::{REGISTER, Register, UnsoundRegister};
use walk::{Step, Walk};

/// Marked transactions that are looked for among the dead letters; more are counted.
const MARKED_MAX: usize = 100_000;

/// What to audit, and how.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// One account only: its order numbers are then compared among themselves.
    pub account: Option<AccountKey>,
    /// Accounts that are read at the same time.
    pub concurrency: NonZeroUsize,
}

/// How far an audit is, and in the end what it covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Accounts that were audited.
    pub accounts: u64,
    /// Their journal pages.
    pub pages: u64,
    /// The entries on them.
    pub entries: u64,
    /// Transactions in every status.
    pub transactions: u64,
    /// Different order numbers.
    pub order_numbers: u64,
    /// What is wrong.
    pub findings: u64,
    /// What is worth a look.
    pub notices: u64,
}

/// Who is told what an audit finds and how far it is. It is called between reads, and must not wait.
pub trait Watcher: Send + Sync {
    /// Something was found, or is worth a look.
    fn found(&self, finding: &Finding);
    /// The audit went on.
    fn progressed(&self, totals: &Totals);
}

/// The audit could not be done: what was found until then stands, and nothing says that the rest is sound.
#[derive(Debug, thiserror::Error)]
pub enum VerifyFault {
    /// The store could not be read.
    #[error("the ledger could not be read to its end")]
    Store(#[from] StoreFault),
    /// Neither an account nor a register of order numbers, which the first process writes when it
    /// starts: most likely this is not the store that was meant.
    #[error("nothing was ever stored here: is this the store that you mean?")]
    Nothing,
    /// There is no such account.
    #[error("there is no account {0}: no list names it, and the ledger has no row of it")]
    NoSuchAccount(AccountKey),
}

/// Tries a read again that did not get an answer.
#[derive(Clone)]
struct Patient {
    world: Arc<dyn World>,
}

impl Patient {
    async fn read<T>(&self, mut read: impl AsyncFnMut() -> Result<T, StoreFault>) -> Result<T, StoreFault> {
        for attempt in 1..AUDIT_READ.attempts {
            match read().await {
                Err(fault @ StoreFault::Unavailable { .. }) => {
                    tracing::warn!("The audit waits: {}", causes(&fault));
                    AUDIT_READ.pause(attempt, &*self.world).await;
                }
                answer => return answer,
            }
        }
        read().await
    }
}

/// What all accounts of an audit share.
#[derive(Default)]
struct Shared {
    totals: Totals,
    numbers: NumbersSeen,
    /// The first counter that nobody had reserved when the register was read last.
    unreserved_from: Option<u64>,
    marked: Vec<TransactionKey>,
    marked_more: u64,
}

/// Audits one store.
pub struct Verifier<'a> {
    store: &'a Store,
    world: Arc<dyn World>,
    patient: Patient,
    watcher: &'a dyn Watcher,
    salt: Nonce,
    shared: Mutex<Shared>,
}

impl<'a> Verifier<'a> {
    /// An audit that has not begun.
    pub fn new(store: &'a Store, world: Arc<dyn World>, watcher: &'a dyn Watcher) -> Self {
        let (salt, patient) = (world.nonce(), Patient { world: Arc::clone(&world) });
        Self { store, world, patient, watcher, salt, shared: Mutex::default() }
    }

    /// Reads and recomputes everything of that extent. What is found is told to the watcher as it is
    /// found.
    ///
    /// # Errors
    /// [`VerifyFault`] when the store could not be read to the end.
    pub async fn run(self, extent: Extent) -> Result<Totals, VerifyFault> {
        // Without patience: a store that is not there at all is told at once.
        self.store.ledger.probe().await?;
        let has_register = self.read_register(true).await?;
        match extent.account {
            Some(key) => self.audit_one(key).await?,
            None => self.audit_all(extent.concurrency).await?,
        }
        if !has_register && self.shared.lock().totals == Totals::default() {
            return Err(VerifyFault::Nothing);
        }
        self.check_numbers(extent).await?;
        self.check_marked().await?;
        let totals = self.shared.lock().totals;
        self.watcher.progressed(&totals);
        Ok(totals)
    }

    async fn audit_all(&self, concurrency: NonZeroUsize) -> Result<(), VerifyFault> {
        let audited = self.walk().try_for_each_concurrent(concurrency.get(), async |step| {
            match step {
                Step::Account { key, listed } => self.audit(key, listed).await.map(drop)?,
                Step::Unreadable(damaged) => {
                    self.tell(&Finding::of(FindingKind::NameUnreadable, None).finding(damaged));
                }
            }
            Ok(())
        });
        Ok(audited.await?)
    }

    async fn audit_one(&self, key: AccountKey) -> Result<(), VerifyFault> {
        let listed = self.patient.read(async || self.store.archive.is_listed(key).await).await?;
        let exists = self.audit(key, listed).await?;
        if exists { Ok(()) } else { Err(VerifyFault::NoSuchAccount(key)) }
    }

    fn walk(&self) -> impl stream::TryStream<Ok = Step, Error = StoreFault, Item = Result<Step, StoreFault>> {
        let walk = Walk::new(Arc::clone(&self.store.archive), self.patient.clone());
        stream::try_unfold(walk, async |mut walk| Ok(walk.next().await?.map(|step| (step, walk))))
    }

    /// Notes the first counter that nobody has reserved by now; `None` when that cannot be known. Gives
    /// whether there is a register at all. What is wrong with it is told once.
    async fn read_register(&self, tell: bool) -> Result<bool, StoreFault> {
        let (register, exists) = match self.patient.read(async || self.store.sync.get(REGISTER).await).await {
            Ok(Some(found)) => {
                (Register::decode(&found.value).map_err(|unsound| unsound_register(&unsound)), true)
            }
            Ok(None) => (Ok(Register::fresh()), false),
            Err(fault @ StoreFault::Corrupt { .. }) => {
                (Err(Finding::of(FindingKind::RegisterUnsound, None).finding(causes(&fault))), true)
            }
            Err(fault) => return Err(fault),
        };
        if let Err(finding) = register.as_ref()
            && tell
        {
            self.tell(finding);
        }
        self.shared.lock().unreserved_from = register.ok().map(|register| register.next);
        Ok(exists)
    }

    /// Numbers that came more than once are looked for once more, to tell all of their places.
    async fn check_numbers(&self, extent: Extent) -> Result<(), StoreFault> {
        let numbers = std::mem::take(&mut self.shared.lock().numbers);
        self.shared.lock().totals.order_numbers = numbers.len();
        let Some(places) = numbers.into_places() else { return Ok(()) };
        let places = Mutex::new(places);
        let places_seen = &places;
        let look = async |key: AccountKey| {
            let note = |page: &StoredPage| {
                let mut places = places_seen.lock();
                let entries = page.page.iter().flat_map(|page| &page.entries);
                for (entry, place) in entries.zip(page.first_sequence.unwrap_or(0)..) {
                    places.look_at(key, place, entry);
                }
            };
            reading::for_each_page(&self.patient, self.store, key, note).await
        };
        match extent.account {
            Some(key) => look(key).await?,
            None => {
                let looked =
                    self.walk().try_for_each_concurrent(extent.concurrency.get(), async |step| match step {
                        Step::Account { key, listed: _ } => look(key).await,
                        Step::Unreadable(_) => Ok(()),
                    });
                looked.await?;
            }
        }
        let places = places.into_inner();
        places.findings().iter().for_each(|finding| self.tell(finding));
        Ok(())
    }

    fn tell(&self, finding: &Finding) {
        let mut shared = self.shared.lock();
        let totals = &mut shared.totals;
        let count = match finding.kind.weight() {
            Weight::Finding => &mut totals.findings,
            Weight::Notice => &mut totals.notices,
        };
        *count = count.saturating_add(1);
        drop(shared);
        self.watcher.found(finding);
    }
}

fn unsound_register(unsound: &UnsoundRegister) -> Finding {
    let kind = match unsound {
        UnsoundRegister::Newer(_) => FindingKind::RegisterUnknown,
        UnsoundRegister::Unreadable(_)
        | UnsoundRegister::Impossible(_)
        | UnsoundRegister::WentBack { .. }
        | UnsoundRegister::UsedUp => FindingKind::RegisterUnsound,
    };
    Finding::of(kind, None).finding(causes(unsound))
}

/// How many accounts the lists of the users name: what an audit is measured by.
///
/// # Errors
/// [`StoreFault`] when the lists cannot be read.
pub async fn count_accounts(store: &Store, world: &Arc<dyn World>) -> Result<u64, StoreFault> {
    let patient = Patient { world: Arc::clone(world) };
    let (mut count, mut cursor) = (0_u64, None::<String>);
    loop {
        let read = async || store.archive.listed_accounts(cursor.as_deref(), walk::LIMIT).await;
        let listing = patient.read(read).await?;
        count = count.saturating_add(u64::try_from(listing.items.len()).unwrap_or(u64::MAX));
        match listing.next {
            Some(next) => cursor = Some(next),
            None => return Ok(count),
        }
    }
}
