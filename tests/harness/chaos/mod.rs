//! Chaos: real processes on a real store, killed at random and started again, with a proxy in front of
//! the storage that loses, delays, repeats and refuses requests; and partners who ask on until they
//! have an answer. A run has three parts:
//!
//! 1. **Rough.** Processes are killed (SIGKILL), several at once too, stand still for longer than their
//!    leases, or are asked to drain; requests to Azurite have [`mishap`]s; the lock of the SQLite file is
//!    held by somebody else; an operator holds and releases the gate.
//! 2. **Calm.** No more faults. Every request that is open gets its answer, and everything that was
//!    acknowledged becomes final within a deadline.
//! 3. **Audit.** The auditor compares its own books with the bank's, to the cent.
//!
//! The seed decides who is killed and when, what befalls which request and what partners ask for. Real
//! processes have their own timing, so a seed repeats a kind of run and not a run.

pub mod door;

pub mod fleet;

pub mod killer;

pub mod mishap;

pub mod operator;

pub mod partner;

pub mod proxy;

pub mod report;

pub mod tally;

pub mod watch;

mod invented;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{OptionFuture, join, join_all, join3, join4};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::azurite::{Azurite, Ports};
use crate::client::Client;
use crate::scenario::{Plan, Scenario, Stand};
use crate::verify::verify;
use crate::wait::{self, Stopwatch};
use door::Door;
use fleet::{Fleet, Post};
use mishap::{Dice, Mishap};
use partner::{Books, Partner};
use proxy::{RoughProxy, Service};
use report::Report;
use tally::{Kill, Tally};
use watch::Watch;

/// Longest time for all processes to be ready once it is calm.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time for everything to become final after that.
const FINAL_TIME_MAX: Duration = Duration::from_secs(120);
/// How often the counts are shown.
const SHOW_DELAY: Duration = Duration::from_millis(250);
/// The start of the reason of a dead letter that is nobody's fault but the killer's.
const KILLED_TOO_OFTEN: &str = "5 attempts on it alone were begun and none ended";

/// Seeds that are not those of partners.
const SEEDS_OF_FAULTS: usize = 4;

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct Course {
    /// The store.
    pub stand: Stand,
    /// Decides everything that is random.
    pub seed: u64,
    /// Shortest rough part.
    pub duration: Duration,
    /// It goes on until that many processes were killed.
    pub kills_min: u64,
    /// And until every kind of fault that the store can have has happened.
    pub every_kind: bool,
    /// Longest rough part, whatever is missing then.
    pub duration_max: Duration,
    /// Partners who ask at the same time.
    pub partners: usize,
    /// The processes.
    pub posts: Vec<Post>,
    /// Who is killed: processes of one kind, or all.
    pub prey: Option<Kill>,
    /// Whether anything else happens than kills: to the storage, the gate, and processes that stand still.
    pub every_fault: bool,
}

impl Course {
    /// Two web and two worker processes on that store, and every fault there is.
    pub fn on(stand: Stand, seed: u64, duration: Duration) -> Self {
        let first = match stand {
            // As on one machine, where web hosts a worker by default.
            Stand::Sqlite => Post::web_with_worker(),
            Stand::Azurite => Post::web(),
        };
        Self {
            stand,
            seed,
            duration,
            kills_min: 0,
            every_kind: false,
            duration_max: duration,
            partners: 8,
            posts: vec![first, Post::web(), Post::worker(), Post::worker()],
            prey: None,
            every_fault: true,
        }
    }

    /// Runs it. `show` is told what was counted, a few times a second.
    pub async fn run(self, show: impl Fn(&Report)) -> Report {
        Run::prepare(self).await.through(show).await
    }
}

/// A run under way.
struct Run {
    course: Course,
    bank: Scenario,
    dice: Arc<Dice>,
    proxies: Vec<RoughProxy>,
    fleet: Fleet,
    books: Books,
    watch: Watch,
    tally: Tally,
    since: Stopwatch,
    rng: StdRng,
}

impl Run {
    async fn prepare(course: Course) -> Self {
        let mut rng = StdRng::seed_from_u64(course.seed);
        let dice = Arc::new(Dice::new(rng.random()));
        // A killed process rings nobody when its leases end: safety polls have to come soon.
        let plan =
            Plan::on(course.stand).processes(0, 0).receipts(2, 5).with("POSTONCE_IDLE_POLL_MAX_MS", "1000");
        let mut bank = plan.start().await;
        let proxies = match course.stand {
            Stand::Sqlite => Vec::new(),
            Stand::Azurite => {
                let (proxies, ports) = proxies(Azurite::shared().ports(), &dice);
                let storage = format!("azure:{}", ports.connection_string());
                bank.settings = bank.settings.with("POSTONCE_STORAGE", storage);
                proxies
            }
        };
        let tally = Tally::default();
        let fleet = Fleet::new(&course.posts, &bank.settings, &bank.directory(), &tally);
        Self {
            course,
            bank,
            dice,
            proxies,
            fleet,
            books: Books::default(),
            watch: Watch::default(),
            tally,
            since: Stopwatch::start(),
            rng,
        }
    }

    async fn through(mut self, show: impl Fn(&Report)) -> Report {
        let seed = self.rng.random();
        let seeds: Vec<u64> = std::iter::repeat_with(|| self.rng.random())
            .take(self.course.partners.saturating_add(SEEDS_OF_FAULTS))
            .collect();
        let run = &self;
        let story = async {
            run.rough(&seeds).await;
            run.settle().await;
            run.audit().await;
            run.watch.end();
        };
        let showing = async {
            while !run.watch.is_over() {
                show(&run.report());
                wait::pass(SHOW_DELAY).await;
            }
        };
        join(join(self.fleet.keep(&self.watch, seed), story), showing).await;
        self.report()
    }

    /// Part 1, until all that was asked for has happened; and the answers to what partners asked last.
    async fn rough(&self, seeds: &[u64]) {
        let Self { course, fleet, watch, tally, .. } = self;
        let door = Door::new(self.bank.key(), fleet, tally);
        let (own, of_partners) = seeds.split_at(SEEDS_OF_FAULTS);
        let [of_killer, of_disturber, of_locker, of_operator] = own else { return };
        let partners =
            of_partners.iter().map(|seed| Partner::new(&door, &self.books, watch, tally, *seed).trade());
        let clock = async {
            while !self.is_enough() {
                wait::pass(SHOW_DELAY).await;
            }
            self.dice.set_rough(false);
            watch.calm();
        };
        let file = self.file();
        let lock =
            OptionFuture::from(file.as_ref().map(|file| killer::hold_lock(file, watch, tally, *of_locker)));
        let disturb = killer::disturb(fleet, watch, tally, *of_disturber);
        let gate = operator::work_the_gate(&door, watch, tally, *of_operator);
        let others = OptionFuture::from(course.every_fault.then(|| join3(lock, disturb, gate)));
        let kill = killer::kill(fleet, watch, course.prey, tally, *of_killer);
        self.dice.set_rough(course.every_fault);
        join4(kill, others, clock, join_all(partners)).await;
    }

    fn is_enough(&self) -> bool {
        let elapsed = self.since.elapsed();
        let enough = self.tally.counts().kills() >= self.course.kills_min
            && (!self.course.every_kind || self.had_every_kind());
        elapsed >= self.course.duration_max || (elapsed >= self.course.duration && enough)
    }

    fn had_every_kind(&self) -> bool {
        let (counts, mishaps) = (self.tally.counts(), self.dice.counts());
        let of_storage = match self.course.stand {
            Stand::Azurite => Mishap::ALL.iter().all(|mishap| mishaps.contains_key(mishap)),
            Stand::Sqlite => counts.locks_held > 0,
        };
        of_storage && counts.webs_killed > 0 && counts.workers_killed > 0 && counts.suspensions > 0
    }

    fn file(&self) -> Option<PathBuf> {
        self.bank.settings.get("POSTONCE_STORAGE")?.strip_prefix("sqlite:").map(PathBuf::from)
    }

    /// Part 2.
    async fn settle(&self) {
        for proxy in &self.proxies {
            proxy.until_quiet().await;
        }
        self.until("every process is ready", READY_TIME_MAX, async || self.readiness().await).await;
        self.until("the queues are empty", FINAL_TIME_MAX, async || self.depth().await).await;
        if self.replay_letters().await > 0 {
            self.until("the queues are empty again", FINAL_TIME_MAX, async || self.depth().await).await;
        }
    }

    /// What killed attempts left for a person is tried again; any other dead letter is a finding.
    async fn replay_letters(&self) -> u64 {
        let Some(client) = self.client() else { return 0 };
        let mut replayed = 0_u64;
        for letter in client.dead_letters().await {
            let text = |member: &str| letter.get(member).and_then(Value::as_str).unwrap_or_default();
            if !text("reason").starts_with(KILLED_TOO_OFTEN) {
                self.tally.find(format!("a dead letter: {letter}"));
                continue;
            }
            let path = format!("/v1/admin/dead-letters/{}/replay", text("id"));
            let answer = client.send(client.request(reqwest::Method::POST, &path)).await;
            if answer.status != 200 {
                self.tally.find(format!("a dead letter could not be replayed: {answer:?}"));
            }
            replayed = replayed.saturating_add(1);
        }
        self.tally.count(|counts| counts.replayed_letters = counts.replayed_letters.saturating_add(replayed));
        replayed
    }

    /// Part 3.
    async fn audit(&self) {
        let Some(client) = self.client() else { return };
        let auditor = self.books.auditor.take();
        for account in auditor.accounts() {
            let path = format!("/v1/users/{}/accounts", account.user);
            let listed = client.get(&path).await;
            if !listed.text.contains(&account.account.to_string()) {
                self.tally.find(format!("the account {account} is not listed: {listed:?}"));
            }
        }
        let (audited, findings) = auditor.compare(&client, &self.bank.store().await).await;
        findings.into_iter().for_each(|finding| self.tally.find(finding));
        let verified = verify(&self.bank, &[]).await;
        if verified.code != Some(0) {
            self.tally.find(format!("the bank's own audit: {:?}, {:?}", verified.code, verified.findings));
        }
        if let Some(file) = self.file() {
            integrity(&file).into_iter().for_each(|flaw| self.tally.find(format!("the file: {flaw}")));
        }
        self.tally.count(|counts| {
            counts.posted = u64::try_from(audited.posted).unwrap_or(u64::MAX);
            counts.rejected = u64::try_from(audited.rejected).unwrap_or(u64::MAX);
        });
    }

    async fn readiness(&self) -> Result<(), String> {
        for (name, address) in self.fleet.all_addresses() {
            let Some(address) = address else { return Err(format!("{name} is not up")) };
            let client = Client::new(&address, self.bank.key());
            match client.try_send(client.request(reqwest::Method::GET, "/readyz")).await {
                Ok(answer) if answer.status == 200 => {}
                other => return Err(format!("{name}: {other:?}")),
            }
        }
        Ok(())
    }

    async fn depth(&self) -> Result<(), String> {
        let Some(client) = self.client() else { return Err("no web process is up".to_owned()) };
        match client.over_queues("depth").await {
            0 => Ok(()),
            depth => Err(format!("{depth} messages")),
        }
    }

    fn client(&self) -> Option<Client> {
        let address = self.fleet.addresses().into_iter().next()?;
        Some(Client::new(&address, self.bank.key()))
    }

    /// Waits; too late is a finding.
    async fn until(&self, what: &str, within: Duration, mut look: impl AsyncFnMut() -> Result<(), String>) {
        let since = Stopwatch::start();
        loop {
            match look().await {
                Ok(()) => return,
                Err(seen) if since.elapsed() > within => {
                    self.tally.find(format!("{what}: not within {within:?}; seen last: {seen}"));
                    return;
                }
                Err(_) => wait::pass(SHOW_DELAY).await,
            }
        }
    }

    fn report(&self) -> Report {
        Report {
            stand: self.course.stand,
            seed: self.course.seed,
            elapsed: self.since.elapsed(),
            counts: self.tally.counts(),
            requests: self.dice.requests(),
            mishaps: self.dice.counts(),
            findings: self.tally.findings(),
        }
    }
}

fn proxies(ports: Ports, dice: &Arc<Dice>) -> (Vec<RoughProxy>, Ports) {
    let blob = RoughProxy::before(Service::Blob, ports.blob, dice);
    let queue = RoughProxy::before(Service::Queue, ports.queue, dice);
    let table = RoughProxy::before(Service::Table, ports.table, dice);
    let ports = Ports { blob: blob.port(), queue: queue.port(), table: table.port() };
    (vec![blob, queue, table], ports)
}

/// What SQLite itself finds wrong with its file.
fn integrity(file: &Path) -> Vec<String> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE);
    let connection = connection.expect("the file can be opened");
    let mut check = connection.prepare("PRAGMA integrity_check").expect("SQLite can check its file");
    let lines = check.query_map([], |row| row.get::<_, String>(0)).expect("the check runs");
    let lines = lines.map(|line| line.expect("a line of text"));
    lines.filter(|line| line != "ok").collect()
}
