//! The scrubber repeatedly walks over all rows of the store at a limited rate.
//!
//! 1. **Claim.** One process at a time scrubs. It writes a claim and, from time to time, its place into the shared
//!    [`State`], so that another process can continue there.
//! 2. **Crashed processes.** A process that stops normally removes its registry entry. A stale entry means that a process
//!    may have left accepted transactions without a message. All accepted transactions are then examined at full speed.
//! 3. **Rounds.** A round reads each row once. It audits each account like `verify`, but does not compare the order
//!    numbers of different accounts. Accepted transactions without a message are enqueued again ([`Repair`]), so a lost
//!    transaction waits for at most one round. Unreadable rows are reported, and the walk continues.
//!
//! When another process continues a round, it checks the pages of the current account one by one instead of auditing it.
//!
//! A round also records order numbers that are missing in their index ([`gaps`]). Once a day it collects the leaves of an
//! anchor ([`leaves`]), if the process has the signing key.
//!
//! The rate is a number of reads per day, so the cost does not depend on the size of the ledger. The duration of a round
//! does, and is reported.

mod gaps;
mod leaves;
mod letters;
mod report;
mod state;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use parking_lot::Mutex;
use tracing::{info, warn};

use self::gaps::Comparison;
pub use self::leaves::Anchoring;
use self::leaves::Collected;
use self::letters::LetterCount;
pub use self::report::{
    OpenLetters, RecoveryReport, RoundReport, ScrubberFinding, ScrubberReport, ScrubberStatus, report,
};
pub(crate) use self::state::NAME as STATE_VALUE;
use self::state::{Interruption, Recovery, Round, State, StateStore};
use crate::cluster::registration::Registration;
use crate::domain::account::Revision;
use crate::domain::ids::Nonce;
use crate::domain::time::Timestamp;
use crate::oversight::verify::{
    Finding, FindingKind, FirstPass, Severity, Step, Totals, Verifier, Walk, Watcher,
};
use crate::ports::Store;
use crate::ports::archive::RowContent;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::ledger::StoredTransaction;
use crate::ports::process_registry::{ProcessId, RegisteredProcess};
use crate::ports::world::{World, WorldExt as _};
use crate::protocol::recover::{RecoveryScope, Repair};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between the starts of two rounds, so that a small store costs few operations.
const ROUND_INTERVAL: Duration = Duration::from_secs(3600);
/// Validity of a claim after its last renewal.
const CLAIM_TIME: Duration = Duration::from_secs(2 * 3600);
/// Interval at which the state is saved during a round, and the claim is renewed during a recovery.
const SAVE_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Interval at which a process checks whether the claim of another process has ended.
const CLAIM_CHECK_INTERVAL: Duration = Duration::from_secs(30 * 60);
const FAULT_PAUSE: Duration = Duration::from_secs(60);
/// Storage operations to enqueue a transaction again: mark, send, and reads of gate and queue.
const OPERATIONS_PER_REPAIR: u64 = 4;

#[derive(Default)]
struct Found(Mutex<Vec<Finding>>);

impl Watcher for Found {
    fn found(&self, finding: &Finding) {
        if finding.kind.severity() == Severity::Finding {
            self.0.lock().push(finding.clone());
        }
    }

    fn progressed(&self, _: &Totals) {}
}

/// State of a process that holds the claim.
struct Claimed {
    process: ProcessId,
    state: State,
    revision: Option<Revision>,
    saved_at: Duration,
    walk: Option<ActiveWalk>,
}

struct ActiveWalk {
    walk: Walk,
    salt: Nonce,
    /// The first pass over the current account; `None` if the round was continued within the account.
    pass: Option<FirstPass>,
    /// Accepted transactions that were read but not examined yet.
    accepted: Vec<StoredTransaction>,
    collected: Collected,
    comparison: Comparison,
}

/// Rate and start delay of the scrubber.
#[derive(Debug, Clone, Copy)]
pub struct ScrubberTerms {
    /// Storage operations per day. With 0 there are no rounds, only recoveries after crashes.
    pub operations_per_day: u32,
    /// Delay from the start of the process to the first step. A random time up to the same length is added.
    pub delay: Duration,
}

/// Scrubs a store, step by step.
pub struct Scrubber {
    store: Store,
    repair: Repair,
    registration: Arc<Registration>,
    world: Arc<dyn World>,
    states: StateStore,
    status: Arc<ScrubberStatus>,
    /// Time per storage operation; `None` if there are no rounds.
    interval: Option<Duration>,
    claimed: Option<Claimed>,
    /// Delay before the first step; `None` afterwards.
    delay: Option<Duration>,
    letters: LetterCount,
    /// `None` if the process makes no anchors.
    anchoring: Option<Anchoring>,
}

impl Scrubber {
    /// Creates the scrubber of a process. It keeps `status` up to date.
    pub fn new(
        store: &Store,
        repair: Repair,
        registration: Arc<Registration>,
        world: Arc<dyn World>,
        terms: ScrubberTerms,
        status: Arc<ScrubberStatus>,
    ) -> Self {
        Self {
            store: store.clone(),
            repair,
            registration,
            world,
            states: StateStore::new(Arc::clone(&store.sync)),
            status,
            interval: DAY.checked_div(terms.operations_per_day),
            claimed: None,
            delay: Some(terms.delay),
            letters: LetterCount::default(),
            anchoring: None,
        }
    }

    /// Makes one step with about one read of the store. Returns the time until the next step. Faults are logged, and the
    /// next step retries. If a step is cancelled or the process ends, another process continues at the last saved place.
    pub async fn step(&mut self) -> Duration {
        if let Some(delay) = self.delay.take() {
            return delay.saturating_add(self.world.jitter(delay));
        }
        let pause = match self.try_step().await {
            Ok(pause) => pause,
            Err(Interruption::Fault(fault)) => {
                warn!("The scrubber pauses: {}", chain(&fault));
                FAULT_PAUSE
            }
            Err(Interruption::Displaced) => {
                info!("Another process scrubs now");
                self.claimed = None;
                CLAIM_CHECK_INTERVAL
            }
        };
        self.status.set(self.claimed.as_ref().map(|claimed| claimed.state.clone()));
        if let Some(interval) = self.interval.filter(|_| self.claimed.is_some()) {
            self.letters.refresh(&self.store, &*self.world, (&self.status, interval)).await;
        }
        pause
    }

    async fn try_step(&mut self) -> Result<Duration, Interruption> {
        let Some(mut claimed) = self.claimed.take() else { return self.try_claim().await };
        let stepped = self.step_claimed(&mut claimed).await;
        // After a failed write the revision is unknown. The claim is then acquired again from the stored state.
        if !matches!(stepped, Err(Interruption::Displaced)) && claimed.revision.is_some() {
            self.claimed = Some(claimed);
        }
        stepped
    }

    async fn try_claim(&mut self) -> Result<Duration, Interruption> {
        let Some(process) = self.registration.process(self.world.uptime()) else { return Ok(FAULT_PAUSE) };
        let (mut state, revision) = self.states.load().await?;
        let registered = self.store.process_registry.list().await?;
        let now = self.world.now();
        if !state.is_free_for(process, &registered, now) {
            return Ok(CLAIM_CHECK_INTERVAL);
        }
        self.note_ended(&mut state, &registered);
        state.claim(process, now.after(CLAIM_TIME));
        let saved_at = self.world.uptime();
        let Some(revision) = self.states.save(&state, revision.as_ref()).await? else {
            return Err(Interruption::Displaced);
        };
        self.claimed = Some(Claimed { process, state, revision: Some(revision), saved_at, walk: None });
        Ok(Duration::ZERO)
    }

    async fn step_claimed(&self, claimed: &mut Claimed) -> Result<Duration, Interruption> {
        if claimed.state.recovery_requested.is_some() {
            self.recover(claimed).await?;
            return Ok(Duration::ZERO);
        }
        if claimed.walk.is_some() {
            return self.continue_round(claimed).await;
        }
        if claimed.state.round.is_some() && self.interval.is_some() {
            self.begin_walk(claimed);
            return Ok(Duration::ZERO);
        }
        let due_in = self.next_round_in(&claimed.state);
        let begins = due_in == Some(Duration::ZERO);
        if begins || self.since_saved(claimed) >= CLAIM_CHECK_INTERVAL {
            self.search_ended(claimed).await?;
            if begins {
                let list = self.begin_list().await;
                claimed.state.round = Some(Round::begin(self.world.now(), list));
            }
            self.save(claimed).await?;
            return Ok(Duration::ZERO);
        }
        Ok(due_in.map_or(CLAIM_CHECK_INTERVAL, |due_in| due_in.min(CLAIM_CHECK_INTERVAL)))
    }

    /// Returns the time until the next round starts; `None` if there are no rounds.
    fn next_round_in(&self, state: &State) -> Option<Duration> {
        self.interval?;
        let Some(last) = &state.last_round else { return Some(Duration::ZERO) };
        Some(Timestamp::from_unix_ms(last.started_at).after(ROUND_INTERVAL).since(self.world.now()))
    }

    /// Requests a recovery if processes crashed.
    fn note_ended(&self, state: &mut State, registered: &[RegisteredProcess]) {
        let ended = state.note_ended(registered, self.world.now());
        if ended > 0 {
            warn!("{ended} process(es) ended without notice: all accepted transactions are examined");
        }
    }

    async fn search_ended(&self, claimed: &mut Claimed) -> Result<(), StoreFault> {
        let registered = self.store.process_registry.list().await?;
        self.note_ended(&mut claimed.state, &registered);
        Ok(())
    }

    fn since_saved(&self, claimed: &Claimed) -> Duration {
        self.world.uptime().saturating_sub(claimed.saved_at)
    }

    /// Saves the state with a renewed claim.
    async fn save(&self, claimed: &mut Claimed) -> Result<(), Interruption> {
        self.write_leaves_before_place(claimed).await?;
        gaps::note(claimed);
        claimed.state.claim(claimed.process, self.world.now().after(CLAIM_TIME));
        let revision = claimed.revision.take();
        let saved_at = self.world.uptime();
        self.status.operations.add(1);
        let saved = self.states.save(&claimed.state, revision.as_ref()).await?;
        claimed.revision = Some(saved.ok_or(Interruption::Displaced)?);
        claimed.saved_at = saved_at;
        Ok(())
    }

    /// Examines all accepted transactions at full speed, and renews the claim meanwhile.
    async fn recover(&self, claimed: &mut Claimed) -> Result<(), Interruption> {
        let requested_at = claimed.state.recovery_requested.unwrap_or_default();
        let mut recovery = self.repair.recover(RecoveryScope::Old).boxed();
        let recovered = loop {
            match select(recovery, self.world.sleep(SAVE_INTERVAL)).await {
                Either::Left((recovered, _)) => break recovered?,
                Either::Right(((), rest)) => recovery = rest,
            }
            self.save(claimed).await?;
        };
        self.status.enqueued.add(recovered.enqueued);
        claimed.state.recovery_requested = None;
        claimed.state.last_recovery = Some(Recovery {
            requested_at,
            ended_at: self.world.now().unix_ms(),
            examined: recovered.examined,
            enqueued: recovered.enqueued,
            damaged: recovered.damaged,
        });
        self.save(claimed).await
    }

    /// Starts the walk of a round, or continues it at the saved place.
    fn begin_walk(&self, claimed: &mut Claimed) {
        let salt = self.world.nonce();
        let found = Found::default();
        let verifier = Verifier::of_accounts(&self.store, Arc::clone(&self.world), &found, salt);
        self.drop_list_without_key(claimed);
        let place = claimed.state.round.as_ref().and_then(Round::place);
        let comparison = Comparison::of(claimed.state.round.as_ref());
        let (walk, collected, pass, accepted) =
            (verifier.walk(place), Collected::default(), None, Vec::new());
        claimed.walk = Some(ActiveWalk { walk, salt, pass, accepted, collected, comparison });
    }

    async fn continue_round(&self, claimed: &mut Claimed) -> Result<Duration, Interruption> {
        let Some(active) = &mut claimed.walk else { return Ok(Duration::ZERO) };
        let found = Found::default();
        let verifier = Verifier::of_accounts(&self.store, Arc::clone(&self.world), &found, active.salt);
        let mut round = claimed.state.round.take().unwrap_or_default();
        let reads = active.walk.reads();
        let stepped = self.read_rows(&verifier, active, &mut round).await;
        let further_reads = verifier.reads();
        let reads = active.walk.reads().saturating_sub(reads).saturating_add(further_reads);
        round.operations = round.operations.saturating_add(reads);
        self.status.operations.add(reads);
        if let Some(place) = active.walk.place() {
            round.set_place(place);
            active.collected.reach_place();
        }
        claimed.state.round = Some(round);
        let accepted = std::mem::take(&mut active.accepted);
        self.add_findings(claimed, found.0.into_inner());
        self.examine(claimed, &accepted).await;
        self.record_missing_numbers(claimed, stepped.as_ref().is_ok_and(|is_end| *is_end)).await;
        if stepped.as_ref().is_err_and(|fault| !fault.is_transient()) {
            // For example, a cursor that the store no longer knows. The next step starts a new round.
            (claimed.walk, claimed.state.round) = (None, None);
        }
        let pause = self.continue_list(claimed, stepped.as_ref().is_ok_and(|is_end| *is_end)).await;
        if stepped? {
            self.end_round(claimed).await?;
        } else if self.since_saved(claimed) >= SAVE_INTERVAL {
            // A round can take days, and crashes must be noticed earlier.
            self.search_ended(claimed).await?;
            self.save(claimed).await?;
        }
        let interval = self.interval.unwrap_or(DAY);
        Ok(interval.saturating_mul(u32::try_from(reads).unwrap_or(u32::MAX)).saturating_add(pause))
    }

    /// Examines the accepted transactions of a step. Their cost does not slow down the walk: after the loss of a queue,
    /// its work is enqueued again without delay.
    async fn examine(&self, claimed: &mut Claimed, accepted: &[StoredTransaction]) {
        let Some(round) = &mut claimed.state.round else { return };
        let mut examination = round.examination();
        let before = examination.recovered.enqueued;
        let examined = self.repair.examine(accepted, &mut examination).await;
        let enqueued = examination.recovered.enqueued.saturating_sub(before);
        let operations = enqueued.saturating_mul(OPERATIONS_PER_REPAIR);
        round.set_examination(&examination, self.world.now());
        round.operations = round.operations.saturating_add(operations);
        self.status.operations.add(operations);
        self.status.enqueued.add(enqueued);
        // The next round finds these transactions again.
        if let Err(fault) = examined {
            round.leaves_out_some();
            warn!("The scrubber could not enqueue lost work: {}", chain(&fault));
        }
    }

    /// Adds rows to the audits of their accounts until the next read is due. Returns whether the round is complete.
    async fn read_rows(
        &self,
        verifier: &Verifier<'_>,
        active: &mut ActiveWalk,
        round: &mut Round,
    ) -> Result<bool, StoreFault> {
        loop {
            let Some(step) = active.walk.next().await? else {
                if let Some(pass) = active.pass.take() {
                    conclude(verifier, pass, round).await?;
                }
                return Ok(true);
            };
            match step {
                Step::Account { key, listed } => {
                    if let Some(pass) = active.pass.replace(verifier.begin(key, listed)) {
                        conclude(verifier, pass, round).await?;
                    }
                }
                Step::Row(content) => {
                    round.rows = round.rows.saturating_add(1);
                    match &mut active.pass {
                        Some(pass) => verifier.add(pass, &content),
                        None => active
                            .walk
                            .account()
                            .into_iter()
                            .for_each(|account| verifier.check_alone(account, &content)),
                    }
                    if let RowContent::Account(account) = &content {
                        account.iter().for_each(|account| active.collected.add(account));
                    }
                    if let RowContent::Transaction(stored) = content
                        && let Ok(stored) = *stored
                    {
                        active.comparison.add(&stored);
                        if stored.outcome.is_none() {
                            active.accepted.push(stored);
                        }
                    }
                }
                Step::Unreadable(damaged) => {
                    verifier.report(&Finding::of(FindingKind::NameUnreadable, None).finding(damaged));
                }
            }
            if active.walk.needs_read() {
                return Ok(false);
            }
        }
    }

    async fn end_round(&self, claimed: &mut Claimed) -> Result<(), Interruption> {
        gaps::note(claimed);
        claimed.walk = None;
        let Some(mut round) = claimed.state.round.take() else { return Ok(()) };
        self.repair.conclude(&round.examination()).await?;
        round.ended_at = Some(self.world.now().unix_ms());
        self.conclude_numbers(claimed, &round);
        let Round { accounts, rows, operations, findings, enqueued, .. } = &round;
        info!(
            "Scrubbed {accounts} accounts with {rows} rows in {operations} operations: {findings} findings, \
             {enqueued} lost transactions enqueued again"
        );
        claimed.state.last_round = Some(round);
        self.save(claimed).await
    }
}

async fn conclude(verifier: &Verifier<'_>, pass: FirstPass, round: &mut Round) -> Result<(), StoreFault> {
    verifier.conclude(pass).await?;
    round.accounts = round.accounts.saturating_add(1);
    Ok(())
}
