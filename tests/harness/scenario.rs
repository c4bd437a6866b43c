//! A bank for one test: its store, processes and settings, created by one builder.
#![expect(clippy::disallowed_methods, reason = "tests need ids that no other test has")]

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::store;
use postonce_shared::testing::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

use crate::azurite::{Azurite, Ports};
use crate::certificates::Certified;
use crate::endpoints::{Endpoints, Proxies};
use crate::faults::CrashPoint;
use crate::prelude::*;
use crate::tables::AzuriteTables;
use crate::tamper::Tamper;

/// The kind of the store of a bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// The embedded store, a SQLite file.
    Sqlite,
    /// Azure Storage, emulated by Azurite.
    Azurite,
}

/// Builder of a scenario.
#[derive(Debug, Clone)]
pub struct Plan {
    store_kind: StoreKind,
    webs: usize,
    workers: usize,
    /// Ports of a private Azurite, which replaces the shared one.
    private: Option<Ports>,
    proxies: bool,
    likeness: Likeness,
    /// Whether web processes host a worker.
    hosts_worker: bool,
    settings: Settings,
    trusted: Option<String>,
    identity: Option<Certified>,
    directory: Option<PathBuf>,
    /// The SQLite file that the store is copied from at the start.
    store_file: Option<PathBuf>,
}

impl Plan {
    /// Plans the smallest bank on a store: one process on SQLite, or one web and one worker process on Azurite.
    pub fn on(store_kind: StoreKind) -> Self {
        let workers = match store_kind {
            StoreKind::Sqlite => 0,
            StoreKind::Azurite => 1,
        };
        let settings = Settings::default();
        let hosts_worker = store_kind == StoreKind::Sqlite;
        Self {
            store_kind,
            webs: 1,
            workers,
            private: None,
            proxies: false,
            likeness: Likeness::chosen(),
            hosts_worker,
            settings,
            trusted: None,
            identity: None,
            directory: None,
            store_file: None,
        }
    }

    /// Like [`Self::on`], with an Azurite that the test can stop and start.
    pub fn on_private(azurite: &Azurite) -> Self {
        Self { private: Some(azurite.ports()), ..Self::on(StoreKind::Azurite) }
    }

    /// Sets the number of processes of each kind; web processes do not host a worker. Without a worker process, work stays on the
    /// queue until a test starts one.
    #[must_use]
    pub const fn processes(mut self, webs: usize, workers: usize) -> Self {
        self.webs = webs;
        self.workers = workers;
        self.hosts_worker = false;
        self
    }

    /// Uses one web process that hosts a worker, on any store.
    #[must_use]
    pub const fn in_one_process(self) -> Self {
        let mut plan = self.processes(1, 0);
        plan.hosts_worker = true;
        plan
    }

    /// Puts proxies that the test controls in front of the services of Azurite.
    #[must_use]
    pub const fn behind_proxies(mut self) -> Self {
        self.proxies = true;
        self
    }

    /// Gives the storage the latency of Azure.
    #[must_use]
    pub const fn with_latency(mut self) -> Self {
        self.likeness = Likeness::RulesAndLatency;
        self
    }

    /// Sets the visibility timeout of received messages, and the number of receipts after which a message becomes a dead letter.
    #[must_use]
    pub fn receipts(self, visibility_timeout_s: u32, dequeue_count_max: u32) -> Self {
        self.with("POSTONCE_VISIBILITY_TIMEOUT_S", &visibility_timeout_s.to_string())
            .with("POSTONCE_DEQUEUE_COUNT_MAX", &dequeue_count_max.to_string())
    }

    /// Makes safety polls frequent, for tests that send messages directly to a queue, without a ring.
    #[must_use]
    pub fn polling_often(self) -> Self {
        self.with("POSTONCE_IDLE_POLL_MAX_MS", "150")
    }

    /// Adds an ingest queue, which is polled often, for a partner.
    #[must_use]
    pub fn with_ingest(self, name: &str, partner: &str) -> Self {
        let variable = |member: &str| format!("POSTONCE_INGEST_{}_{member}", name.to_ascii_uppercase());
        // Other tests use the same Azurite.
        self.with(&variable("QUEUE"), &format!("{name}-{}", fresh_prefix()))
            .with(&variable("PARTNER"), partner)
            .with(&variable("POLL_MAX_MS"), "150")
    }

    /// Makes requests that wait use the queue too, for tests of the queue and of the worker.
    #[must_use]
    pub fn through_the_queue(self) -> Self {
        self.with("POSTONCE_IMMEDIATE_POSTING", "off")
    }

    /// Sets an environment variable for all processes.
    #[must_use]
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.settings = self.settings.with(variable, value);
        self
    }

    /// Serves the bank over TLS, to clients that trust this authority.
    #[must_use]
    pub fn trusting(mut self, authority: &str) -> Self {
        self.trusted = Some(authority.to_owned());
        self
    }

    /// Sets the certificate of the clients.
    #[must_use]
    pub fn identified(mut self, own: &Certified) -> Self {
        self.identity = Some(own.clone());
        self
    }

    /// Keeps the files below this directory, such as on a disk to be measured.
    #[must_use]
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Uses a copy of this SQLite file as the store.
    #[must_use]
    pub fn on_copy_of(mut self, store_file: &Path) -> Self {
        self.store_file = Some(store_file.to_owned());
        self
    }

    /// Prepares the store, starts the processes, and waits until the web processes are ready.
    pub async fn start(self) -> Scenario {
        let Self { store_kind, webs, workers, private, proxies, hosts_worker, settings, .. } = self;
        let Self { likeness, trusted, identity, directory, store_file, .. } = self;
        let directory = directory.unwrap_or_else(std::env::temp_dir);
        let directory = TempDir::with_prefix_in("postonce-test-", directory).expect("a directory for a test");
        let endpoints = match store_kind {
            StoreKind::Sqlite => {
                let path = directory.path().join("postonce.db");
                store_file.iter().for_each(|store_file| copy_durably(store_file, &path));
                let storage = format!("sqlite:{}", path.display());
                Endpoints::of_sqlite(storage)
            }
            StoreKind::Azurite => {
                let ports = private.unwrap_or_else(|| Azurite::shared().ports());
                Endpoints::of_azurite(ports, likeness, proxies)
            }
        };
        let Endpoints { emulator, direct, through, storage_proxies, proxies } = endpoints;
        let prefix = fresh_prefix();
        let key = format!("test-key-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let settings = settings
            .with("POSTONCE_STORAGE", through)
            .with("POSTONCE_BIND", "127.0.0.1:0")
            .with("POSTONCE_WORKER_BIND", "127.0.0.1:0")
            .with("POSTONCE_NAME_PREFIX", prefix.clone())
            .with("POSTONCE_BOOTSTRAP_KEY", key.clone());
        let mut scenario = Scenario {
            store_kind,
            emulator,
            direct,
            prefix,
            key,
            settings,
            hosts_worker,
            proxies,
            storage_proxies,
            webs: Vec::new(),
            workers: Vec::new(),
            trusted,
            identity,
            directory,
        };
        (0..webs).for_each(|_| scenario.start_web());
        (0..workers).for_each(|_| scenario.start_worker());
        for web in 0..webs {
            scenario.client(web).until_ready().await;
        }
        scenario
    }
}

/// Copies a file, and waits until the copy is on disk, so that its writes do not slow down later ones.
fn copy_durably(from: &Path, to: &Path) {
    let copied = std::fs::copy(from, to).and_then(|_| File::open(to)?.sync_all());
    copied.expect("the store file can be copied");
}

/// A bank for one test. Its processes end when it is dropped.
#[derive(Debug)]
pub struct Scenario {
    /// The kind of the store.
    pub store_kind: StoreKind,
    /// The web processes, in the order of their starts.
    pub webs: Vec<Service>,
    /// The worker processes, in the order of their starts.
    pub workers: Vec<Service>,
    /// The proxies that the test controls, if the plan has them.
    pub proxies: Option<Proxies>,
    /// The settings of every process.
    pub settings: Settings,
    emulator: String,
    direct: String,
    prefix: String,
    key: String,
    hosts_worker: bool,
    trusted: Option<String>,
    identity: Option<Certified>,
    /// Fails the test on drop if Azure would refuse a request. Declared after the processes, so that they have ended then.
    storage_proxies: Option<StorageProxies>,
    /// Declared last, so that it is removed after the processes have ended.
    directory: TempDir,
}

impl Scenario {
    /// Lets web processes that are started later host a worker.
    pub const fn host_worker(&mut self) {
        self.hosts_worker = true;
    }

    /// Starts another web process. It listens when this method returns, but may not be ready.
    pub fn start_web(&mut self) {
        let arguments: &[&str] = if self.hosts_worker { &["--with-worker"] } else { &["--no-worker"] };
        let web = Service::start(Binary::Web, &self.settings, arguments, self.directory.path());
        self.webs.push(web);
    }

    /// Starts another worker process. It serves HTTP when this method returns, but may not be ready.
    pub fn start_worker(&mut self) {
        self.start_worker_with(&[]);
    }

    /// Starts another worker process with arguments.
    pub fn start_worker_with(&mut self, arguments: &[&str]) {
        let worker = Service::start(Binary::Worker, &self.settings, arguments, self.directory.path());
        self.workers.push(worker);
    }

    /// Starts another worker process that scrubs the store. It begins before processes with the default delay, and does not pause
    /// for long between reads.
    pub fn start_scrubber(&mut self) {
        self.start_worker_with(&["--scrubber-delay-s", "1", "--scrubber-operations-per-day", "1000000"]);
    }

    /// Returns a probe of a worker process.
    pub fn probe(&self, worker: usize) -> ProcessProbe {
        let worker =
            self.workers.get(worker).unwrap_or_else(|| panic!("there is no worker process {worker}"));
        ProcessProbe::of(worker.address())
    }

    /// Waits until every worker process is ready: registered and reachable.
    pub async fn until_workers_ready(&self) {
        for worker in 0..self.workers.len() {
            self.probe(worker).until_ready().await;
        }
    }

    /// Returns the proxies of a plan that has them.
    pub fn proxies(&self) -> &Proxies {
        self.proxies.as_ref().expect("the plan has proxies")
    }

    /// Returns the proxies that make Azurite more similar to Azure.
    pub fn storage_proxies(&self) -> &StorageProxies {
        self.storage_proxies.as_ref().expect("the plan is on Azurite")
    }

    /// Returns a client of a web process with the first key.
    pub fn client(&self, web: usize) -> Client {
        let web = self.webs.get(web).unwrap_or_else(|| panic!("there is no web process {web}"));
        match &self.trusted {
            Some(authority) => Client::trusting(web.address(), &self.key, authority, self.identity.as_ref()),
            None => Client::new(web.address(), &self.key),
        }
    }

    /// Returns the first key, which has all scopes.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the directory of the test.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Returns the number of work queues.
    pub fn queue_count(&self) -> u16 {
        let set = self.settings.get("POSTONCE_QUEUE_COUNT").and_then(|count| count.parse().ok());
        set.unwrap_or(match self.store_kind {
            StoreKind::Sqlite => 1,
            StoreKind::Azurite => 4,
        })
    }

    /// Returns an ingest queue of [`Plan::with_ingest`].
    pub fn ingest_queue(&self, name: &str) -> QueueName {
        let variable = format!("POSTONCE_INGEST_{}_QUEUE", name.to_ascii_uppercase());
        let queue = self.settings.get(&variable).and_then(QueueName::of_ingest);
        queue.expect("the plan has the ingest queue")
    }

    /// Waits until an ingest queue is empty, and the work from it is final or a dead letter.
    pub async fn until_ingested(&self, name: &str) {
        let (queue, store) = (self.ingest_queue(name), self.store().await);
        wait::until("the ingest queue is empty", wait::TIMEOUT, async || {
            match store.queue.backlog(&queue).await.expect("the store answers").depth {
                0 => Ok(()),
                depth => Err(format!("{depth} messages")),
            }
        })
        .await;
        self.client(0).until_drained(wait::TIMEOUT).await;
    }

    /// Opens the store directly, without the proxies that the test controls.
    pub async fn store(&self) -> Store {
        self.store_in(Arc::new(SystemWorld::new())).await
    }

    /// Like [`Self::store`], with another clock.
    pub async fn store_in(&self, world: Arc<dyn World>) -> Store {
        if let Some(path) = self.direct.strip_prefix("sqlite:") {
            let enqueue =
                store::enqueue(self.queue_count(), Arc::default(), Seal::new(&DoorbellSecret::new(None)));
            return SqliteStore::open(Path::new(path), enqueue, world).expect("the file can be opened");
        }
        let connection = self.direct.strip_prefix("azure:").expect("there are two kinds of stores");
        let connection = AzureConnection::parse(connection).expect("a valid connection string");
        let config = AzureConfig::new(connection, self.prefix.clone());
        azure::open(&config, world).await.expect("opening makes no request")
    }

    /// Returns the seal of the bank's messages, with the secret in the store.
    pub async fn seal(&self) -> Seal {
        let secret = DoorbellSecret::new(None);
        secret.establish(&*self.store().await.sync, &SystemWorld::new()).await;
        Seal::new(&secret)
    }

    /// Returns access to the store that bypasses the bank.
    pub fn tamper(&self) -> Tamper {
        Tamper::with(&self.emulator, &self.prefix)
    }

    /// Returns the tables of Azurite, and the full name of one of the bank's tables.
    ///
    /// # Panics
    /// On SQLite.
    pub fn tables(&self, table: &str) -> (AzuriteTables, String) {
        (AzuriteTables::of(&self.emulator), format!("{}{table}", self.prefix))
    }

    /// Runs `postonce-web` with an operator command, and returns its output.
    ///
    /// # Panics
    /// When the command fails.
    pub fn operate(&self, arguments: &[&str]) -> String {
        let launch = service::launch(Binary::Web, &self.settings, arguments, self.directory.path());
        let mut process = Process::start(&launch);
        let status = process.wait(wait::TIMEOUT);
        process.wait_for_output();
        let printed = process.log().lines().join("\n");
        assert!(status.success(), "{arguments:?} failed:\n{printed}");
        printed
    }

    /// Creates a partner with access to every account, by an operator command. Returns its first API key.
    pub fn add_partner(&self, partner: &str, scopes: &[&str]) -> String {
        let mut arguments = vec!["partners", "add", partner, "--all-accounts"];
        arguments.extend(scopes.iter().flat_map(|scope| ["--scope", scope]));
        let printed = self.operate(&arguments);
        let is_key = |word: &&str| word.starts_with("po_");
        let key = printed.split_whitespace().find(is_key);
        key.unwrap_or_else(|| panic!("no key in {printed}")).to_owned()
    }

    /// Runs a worker that crashes at this point. Returns the signal that ended it.
    pub fn run_crashing_worker(&self, point: CrashPoint) -> Option<i32> {
        let arguments = [point.code()];
        let launch =
            service::launch(Binary::CrashingWorker, &self.settings, &arguments, self.directory.path());
        let mut process = Process::start(&launch);
        process.wait(wait::TIMEOUT).signal()
    }
}

/// Returns a new account key.
pub fn fresh_account() -> AccountKey {
    let (user, account) = (UserId::from_uuid(Uuid::new_v4()), AccountId::from_uuid(Uuid::new_v4()));
    AccountKey { user, account }
}

/// Returns a new message id.
pub fn fresh_id() -> MessageId {
    MessageId::from_uuid(Uuid::new_v4())
}

/// Returns a new prefix of names in a storage account. Table names must start with a letter and be short.
pub fn fresh_prefix() -> String {
    let mut prefix = format!("t{}", Uuid::new_v4().simple());
    prefix.truncate(13);
    prefix
}
