//! Chaos tests: real processes on a real store are killed at random and restarted. A proxy in front of the storage loses,
//! delays, repeats and refuses requests. Partners retry until they have a response. A run has three phases:
//!
//! 1. **Faults.** Processes are killed (SIGKILL), sometimes several at once, suspended for longer than their leases, or
//!    drained. Requests to Azurite have [`StorageFault`]s. Another connection holds the lock of the SQLite file. An operator
//!    holds and releases the gate.
//! 2. **Recovery.** No more faults. Every open request gets its response, and every acknowledged transaction becomes final
//!    within a deadline.
//! 3. **Audit.** The auditor compares its own records with the bank, to the cent, and the results of batches with the rows of
//!    their items.
//!
//! The seed determines which processes are killed and when, which requests fail, and what partners send. Real processes have
//! their own timing, so a seed does not reproduce the exact run.

pub mod retrying_client;

pub mod process_group;

pub mod process_faults;

pub mod operator;

pub mod partner;

pub mod report;

pub mod results;

pub mod phase;

mod immediate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{OptionFuture, join, join_all, join3, join4};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::prelude::*;
use crate::storage_proxy::storage_fault::{FaultInjector, StorageFault};
use crate::verify::verify;
use partner::{Partner, SharedRecords};
use phase::CurrentPhase;
use process_group::{ProcessGroup, ProcessSpec};
use report::Report;
use results::{ProcessKind, RunResults};
use retrying_client::RetryingClient;

/// Maximum time until all processes are ready after the last fault.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum time until the queues are empty after that. A message waits until the end of the processes that were killed during
/// its attempts is known: their registry entries become stale after 36 minutes.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(40 * 60);
/// Maximum time until all transactions are final after that.
const FINAL_TIME_MAX: Duration = Duration::from_secs(120);
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// Prefixes of the reasons of dead letters that only kills cause: for single requests, and for batches.
const KILLED_TOO_OFTEN: [&str; 2] =
    ["5 processes ended while they posted it alone", "5 processes ended while they handled message "];

/// Number of seeds for tasks that inject faults.
const SEEDS_OF_FAULTS: usize = 4;

/// The batches of a run, which start during the first half of the fault phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchPlan {
    /// Number of batches.
    pub batches: u32,
    /// Number of items of each batch.
    pub items: usize,
}

/// The configuration of a run.
#[derive(Debug, Clone)]
pub struct ChaosConfig {
    /// The store of the bank.
    pub store_kind: StoreKind,
    /// The seed of all random decisions.
    pub seed: u64,
    /// Minimum duration of the fault phase.
    pub duration: Duration,
    /// Minimum number of kills. The fault phase continues until it is reached.
    pub kills_min: u64,
    /// Whether the fault phase continues until every kind of fault of the store and every kind of outcome has occurred.
    pub every_kind: bool,
    /// Maximum duration of the fault phase, even if a condition is not met.
    pub duration_max: Duration,
    /// Number of concurrent partners.
    pub partners: usize,
    /// The batches that the partners send.
    pub batches: BatchPlan,
    /// The processes of the bank.
    pub processes: Vec<ProcessSpec>,
    /// The kind of processes to kill; `None` for all kinds.
    pub killed_kind: Option<ProcessKind>,
    /// Visibility timeout of received messages, in seconds. With a short one, messages of a killed process are retried soon; a
    /// slow storage needs a longer one.
    pub visibility_timeout_s: u32,
    /// Whether to inject faults other than kills: in the storage, at the gate, and suspensions.
    pub every_fault: bool,
}

impl ChaosConfig {
    /// Returns a configuration with two web and two worker processes, every kind of fault, and no batches.
    pub fn on(store_kind: StoreKind, seed: u64, duration: Duration) -> Self {
        let first = match store_kind {
            // On one machine a web process hosts a worker by default.
            StoreKind::Sqlite => ProcessSpec::web_with_worker(),
            StoreKind::Azurite => ProcessSpec::web(),
        };
        Self {
            store_kind,
            seed,
            duration,
            kills_min: 0,
            every_kind: false,
            duration_max: duration,
            partners: 8,
            batches: BatchPlan::default(),
            processes: vec![first, ProcessSpec::web(), ProcessSpec::worker(), ProcessSpec::worker()],
            killed_kind: None,
            visibility_timeout_s: 2,
            every_fault: true,
        }
    }

    /// Runs the test. `show` is called with a report several times a second.
    pub async fn run(self, show: impl Fn(&Report)) -> Report {
        Run::prepare(self).await.through(show).await
    }
}

/// A run in progress.
struct Run {
    config: ChaosConfig,
    bank: Scenario,
    faults: Arc<FaultInjector>,
    proxies: Option<StorageProxies>,
    processes: ProcessGroup,
    records: SharedRecords,
    phase: CurrentPhase,
    results: RunResults,
    since: Stopwatch,
    rng: StdRng,
}

impl Run {
    async fn prepare(config: ChaosConfig) -> Self {
        let mut rng = StdRng::seed_from_u64(config.seed);
        let faults = Arc::new(FaultInjector::new(rng.random()));
        // A killed process does not ring others when its leases end, so safety polls must be frequent.
        let plan = Plan::on(config.store_kind)
            .processes(0, 0)
            .receipts(config.visibility_timeout_s, 5)
            .with("POSTONCE_IDLE_POLL_MAX_MS", "1000");
        let mut bank = plan.start().await;
        let proxies = match config.store_kind {
            StoreKind::Sqlite => None,
            StoreKind::Azurite => {
                let proxies = StorageProxies::with_faults(Azurite::shared().ports(), &faults);
                let storage = format!("azure:{}", proxies.ports().connection_string());
                bank.settings = bank.settings.with("POSTONCE_STORAGE", storage);
                Some(proxies)
            }
        };
        let results = RunResults::default();
        let processes = ProcessGroup::new(&config.processes, &bank.settings, &bank.directory(), &results);
        Self {
            config,
            bank,
            faults,
            proxies,
            processes,
            records: SharedRecords::default(),
            phase: CurrentPhase::default(),
            results,
            since: Stopwatch::start(),
            rng,
        }
    }

    async fn through(mut self, show: impl Fn(&Report)) -> Report {
        let seed = self.rng.random();
        let count = self.config.partners.saturating_add(SEEDS_OF_FAULTS).saturating_add(self.batch_count());
        let seeds: Vec<u64> = std::iter::repeat_with(|| self.rng.random()).take(count).collect();
        let run = &self;
        let phases = async {
            run.fault_phase(&seeds).await;
            run.recovery_phase().await;
            run.audit_phase().await;
            run.phase.end();
        };
        let reporting = async {
            while !run.phase.has_ended() {
                show(&run.report());
                wait::pass(REPORT_INTERVAL).await;
            }
        };
        let counting = immediate::count(&self.processes, self.bank.key(), &self.phase, &self.results);
        join4(self.processes.supervise(&self.phase, seed), phases, reporting, counting).await;
        self.report()
    }

    /// Runs phase 1, until its conditions are met and the last requests of the partners have responses.
    async fn fault_phase(&self, seeds: &[u64]) {
        let Self { config, processes, phase, results, .. } = self;
        let client = RetryingClient::new(self.bank.key(), processes, results);
        let (own, of_partners) = seeds.split_at(SEEDS_OF_FAULTS);
        let [kill_seed, suspend_seed, lock_seed, operator_seed] = own else { return };
        let partner = |seed: &u64| Partner::new(&client, &self.records, phase, results, *seed);
        let (of_batches, of_partners) = of_partners.split_at(self.batch_count());
        let partners = of_partners.iter().map(|seed| partner(seed).run());
        let BatchPlan { batches, items } = config.batches;
        let pace = config.duration.checked_div(batches.saturating_mul(2)).unwrap_or_default();
        let batches = (0..).zip(of_batches);
        let batches =
            batches.map(|(number, seed)| partner(seed).run_batch(items, pace.saturating_mul(number)));
        let timer = async {
            while !self.is_enough() {
                wait::pass(REPORT_INTERVAL).await;
            }
            self.faults.set_enabled(false);
            phase.stop_faults();
        };
        let file = self.file();
        let lock = OptionFuture::from(
            file.as_ref().map(|file| process_faults::hold_lock(file, phase, results, *lock_seed)),
        );
        let suspend = process_faults::suspend_and_drain(processes, phase, results, *suspend_seed);
        let gate = operator::hold_and_release(&client, phase, results, *operator_seed);
        let others = OptionFuture::from(config.every_fault.then(|| join3(lock, suspend, gate)));
        let kill = process_faults::kill_processes(processes, phase, config.killed_kind, results, *kill_seed);
        self.faults.set_enabled(config.every_fault);
        join4(kill, others, timer, join(join_all(partners), join_all(batches))).await;
    }

    fn batch_count(&self) -> usize {
        usize::try_from(self.config.batches.batches).unwrap_or(usize::MAX)
    }

    fn is_enough(&self) -> bool {
        let elapsed = self.since.elapsed();
        let enough = self.results.counts().kills() >= self.config.kills_min
            && (!self.config.every_kind || self.had_every_kind());
        elapsed >= self.config.duration_max || (elapsed >= self.config.duration && enough)
    }

    fn had_every_kind(&self) -> bool {
        let (counts, faults) = (self.results.counts(), self.faults.counts());
        let of_storage = match self.config.store_kind {
            StoreKind::Azurite => StorageFault::ALL.iter().all(|fault| faults.contains_key(fault)),
            StoreKind::Sqlite => counts.locks_held > 0,
        };
        let of_processes = counts.webs_killed > 0 && counts.workers_killed > 0 && counts.suspensions > 0;
        let of_outcomes = counts.transactions > 0 && counts.refusals > 0 && counts.posted_at_once > 0;
        of_storage && of_processes && of_outcomes
    }

    fn file(&self) -> Option<PathBuf> {
        self.bank.settings.get("POSTONCE_STORAGE")?.strip_prefix("sqlite:").map(PathBuf::from)
    }

    /// Runs phase 2.
    async fn recovery_phase(&self) {
        self.until("every process is ready", READY_TIME_MAX, async || self.readiness().await).await;
        self.until("the queues are empty", EMPTY_TIME_MAX, async || self.depth().await).await;
        if self.replay_letters().await > 0 {
            self.until("the queues are empty again", EMPTY_TIME_MAX, async || self.depth().await).await;
        }
        let client = RetryingClient::new(self.bank.key(), &self.processes, &self.results);
        let mut partner = Partner::new(&client, &self.records, &self.phase, &self.results, self.config.seed);
        for number in 0..partner.batches() {
            self.until("a batch is completed", FINAL_TIME_MAX, async || partner.read_batch(number).await)
                .await;
        }
        if let Some(proxies) = &self.proxies {
            // There are always requests while batches are posted. Late requests may have sent messages again.
            proxies.until_idle().await;
            self.until("the queues are empty at the end", EMPTY_TIME_MAX, async || self.depth().await).await;
        }
    }

    /// Replays dead letters whose attempts were killed. Any other dead letter is a finding.
    async fn replay_letters(&self) -> u64 {
        let Some(client) = self.client() else { return 0 };
        let mut replayed = 0_u64;
        for letter in client.dead_letters().await {
            let text = |member: &str| letter.get(member).and_then(Value::as_str).unwrap_or_default();
            if !KILLED_TOO_OFTEN.iter().any(|reason| text("reason").starts_with(reason)) {
                self.results.report(format!("a dead letter: {letter}"));
                continue;
            }
            let path = format!("/v1/admin/dead-letters/{}/replay", text("id"));
            let answer = client.send(client.request(reqwest::Method::POST, &path)).await;
            if answer.status != 200 {
                self.results.report(format!("a dead letter could not be replayed: {answer:?}"));
            }
            replayed = replayed.saturating_add(1);
        }
        self.results
            .count(|counts| counts.replayed_letters = counts.replayed_letters.saturating_add(replayed));
        replayed
    }

    /// Runs phase 3.
    async fn audit_phase(&self) {
        let Some(client) = self.client() else { return };
        let auditor = self.records.auditor.take();
        for account in auditor.accounts() {
            let path = format!("/v1/users/{}/accounts", account.user);
            let listed = client.get(&path).await;
            if !listed.text.contains(&account.account.to_string()) {
                self.results.report(format!("the account {account} is not listed: {listed:?}"));
            }
        }
        let store = self.bank.store().await;
        let (totals, findings) = auditor.compare(&client, &store).await;
        let of_batches = partner::batches::compare(&self.records, &store).await;
        findings.into_iter().chain(of_batches).for_each(|finding| self.results.report(finding));
        let verified = verify(&self.bank, &[]).await;
        if verified.code != Some(0) {
            self.results
                .report(format!("`postonce-web verify`: {:?}, {:?}", verified.code, verified.findings));
        }
        if let Some(file) = self.file() {
            integrity(&file).into_iter().for_each(|flaw| self.results.report(format!("the file: {flaw}")));
        }
        self.results.count(|counts| {
            counts.posted = u64::try_from(totals.posted).unwrap_or(u64::MAX);
            counts.rejected = u64::try_from(totals.rejected).unwrap_or(u64::MAX);
        });
    }

    async fn readiness(&self) -> Result<(), String> {
        for (name, address) in self.processes.all_addresses() {
            let Some(address) = address else { return Err(format!("{name} does not listen")) };
            let client = Client::new(&address, self.bank.key());
            match client.try_send(client.request(reqwest::Method::GET, "/readyz")).await {
                Ok(answer) if answer.status == 200 => {}
                other => return Err(format!("{name}: {other:?}")),
            }
        }
        Ok(())
    }

    async fn depth(&self) -> Result<(), String> {
        let Some(client) = self.client() else { return Err("no web process listens".to_owned()) };
        match client.over_queues("depth").await {
            0 => Ok(()),
            depth => Err(format!("{depth} messages")),
        }
    }

    fn client(&self) -> Option<Client> {
        let address = self.processes.addresses().into_iter().next()?;
        Some(Client::new(&address, self.bank.key()))
    }

    /// Waits for a condition. A missed deadline is a finding.
    async fn until(&self, what: &str, within: Duration, mut check: impl AsyncFnMut() -> Result<(), String>) {
        let since = Stopwatch::start();
        loop {
            match check().await {
                Ok(()) => return,
                Err(state) if since.elapsed() > within => {
                    self.results.report(format!("{what}: not within {within:?}; last: {state}"));
                    return;
                }
                Err(_) => wait::pass(REPORT_INTERVAL).await,
            }
        }
    }

    fn report(&self) -> Report {
        Report {
            store_kind: self.config.store_kind,
            seed: self.config.seed,
            elapsed: self.since.elapsed(),
            counts: self.results.counts(),
            requests: self.faults.requests(),
            faults: self.faults.counts(),
            findings: self.results.findings(),
        }
    }
}

/// Returns the problems that SQLite finds in the file.
fn integrity(file: &Path) -> Vec<String> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE);
    let connection = connection.expect("the file can be opened");
    let mut check = connection.prepare("PRAGMA integrity_check").expect("SQLite can check its file");
    let lines = check.query_map([], |row| row.get::<_, String>(0)).expect("the check runs");
    let lines = lines.map(|line| line.expect("a line of text"));
    lines.filter(|line| line != "ok").collect()
}
