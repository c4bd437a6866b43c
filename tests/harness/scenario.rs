//! A bank for one test: which store, which processes, which settings; all in one constructor.
#![expect(clippy::disallowed_methods, reason = "tests need ids that no other test has")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::adapters::sqlite::SqliteStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, UserId};
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::ports::Store;
use postonce_shared::ports::world::World;
use postonce_shared::store;
use tempfile::TempDir;
use uuid::Uuid;

use crate::azurite::{Azurite, Ports};
use crate::binaries::Binary;
use crate::certificates::Certified;
use crate::client::Client;
use crate::faults::Point;
use crate::process::Process;
use crate::proxy::{Mode, Proxy};
use crate::service::{self, Service, Settings};
use crate::tamper::Tamper;
use crate::vitals::Vitals;
use crate::wait;

/// Which store the bank stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// The embedded store, a file.
    Sqlite,
    /// Azure Storage, for which Azurite stands in.
    Azurite,
}

/// What a scenario is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    stand: Stand,
    webs: usize,
    workers: usize,
    /// Another Azurite than the shared one.
    private: Option<Ports>,
    proxies: bool,
    /// Web processes host a worker.
    hosts_worker: bool,
    settings: Settings,
    trusted: Option<String>,
    identity: Option<Certified>,
    directory: Option<PathBuf>,
}

impl Plan {
    /// The smallest bank on a store: one process on SQLite, a web and a worker process on Azurite.
    pub fn on(stand: Stand) -> Self {
        let workers = match stand {
            Stand::Sqlite => 0,
            Stand::Azurite => 1,
        };
        let settings = Settings::default();
        let hosts_worker = stand == Stand::Sqlite;
        Self {
            stand,
            webs: 1,
            workers,
            private: None,
            proxies: false,
            hosts_worker,
            settings,
            trusted: None,
            identity: None,
            directory: None,
        }
    }

    /// As [`Self::on`], on an Azurite that the test stops and starts.
    pub fn on_private(azurite: &Azurite) -> Self {
        Self { private: Some(azurite.ports()), ..Self::on(Stand::Azurite) }
    }

    /// That many processes of each kind; no web process hosts a worker. With no worker process, work
    /// stays on the queue until a test starts one.
    #[must_use]
    pub const fn processes(mut self, webs: usize, workers: usize) -> Self {
        self.webs = webs;
        self.workers = workers;
        self.hosts_worker = false;
        self
    }

    /// One web process with a worker inside, on any store.
    #[must_use]
    pub const fn in_one_process(self) -> Self {
        let mut plan = self.processes(1, 0);
        plan.hosts_worker = true;
        plan
    }

    /// Puts proxies before the services of Azurite, which the test can switch.
    #[must_use]
    pub const fn behind_proxies(mut self) -> Self {
        self.proxies = true;
        self
    }

    /// How long a received message stays hidden, and after how many receipts it is set aside.
    #[must_use]
    pub fn receipts(self, visibility_timeout_s: u32, dequeue_count_max: u32) -> Self {
        self.with("POSTONCE_VISIBILITY_TIMEOUT_S", &visibility_timeout_s.to_string())
            .with("POSTONCE_DEQUEUE_COUNT_MAX", &dequeue_count_max.to_string())
    }

    /// Safety polls come soon: for tests that put messages on a queue by themselves, which rings nobody.
    #[must_use]
    pub fn polling_often(self) -> Self {
        self.with("POSTONCE_IDLE_POLL_MAX_MS", "150")
    }

    /// Another setting, for all processes.
    #[must_use]
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.settings = self.settings.with(variable, value);
        self
    }

    /// The bank is served over TLS, and its clients trust that authority.
    #[must_use]
    pub fn trusting(mut self, authority: &str) -> Self {
        self.trusted = Some(authority.to_owned());
        self
    }

    /// Its clients show that certificate.
    #[must_use]
    pub fn identified(mut self, own: &Certified) -> Self {
        self.identity = Some(own.clone());
        self
    }

    /// Keeps its files below that directory: where the disk is, for what measures it.
    #[must_use]
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Prepares the store, starts the processes, and waits until the web processes are ready.
    pub async fn start(self) -> Scenario {
        let Self { stand, webs, workers, private, proxies, hosts_worker, settings, .. } = self;
        let Self { trusted, identity, directory, .. } = self;
        let directory = directory.unwrap_or_else(std::env::temp_dir);
        let directory = TempDir::with_prefix_in("postonce-test-", directory).expect("a directory for a test");
        let (direct, through, proxies) = match stand {
            Stand::Sqlite => {
                let storage = format!("sqlite:{}", directory.path().join("postonce.db").display());
                (storage.clone(), storage, None)
            }
            Stand::Azurite => endpoints(private.unwrap_or_else(|| Azurite::shared().ports()), proxies),
        };
        // Names of tables have to start with a letter, and must not be long.
        let prefix = format!("t{}", short(Uuid::new_v4()));
        let key = format!("test-key-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let settings = settings
            .with("POSTONCE_STORAGE", through)
            .with("POSTONCE_BIND", "127.0.0.1:0")
            .with("POSTONCE_WORKER_BIND", "127.0.0.1:0")
            .with("POSTONCE_NAME_PREFIX", prefix.clone())
            .with("POSTONCE_BOOTSTRAP_KEY", key.clone());
        let mut scenario = Scenario {
            stand,
            direct,
            prefix,
            key,
            settings,
            hosts_worker,
            proxies,
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

/// Proxies before the services of Azurite.
#[derive(Debug)]
pub struct Proxies {
    /// Large bodies.
    pub blobs: Proxy,
    /// Messages.
    pub queues: Proxy,
    /// Rows.
    pub tables: Proxy,
}

impl Proxies {
    /// Puts proxies before the services at those ports.
    pub fn before(ports: Ports) -> Self {
        let Ports { blob, queue, table } = ports;
        Self { blobs: Proxy::before(blob), queues: Proxy::before(queue), tables: Proxy::before(table) }
    }

    /// Their ports.
    pub const fn ports(&self) -> Ports {
        Ports { blob: self.blobs.port(), queue: self.queues.port(), table: self.tables.port() }
    }

    /// Bytes that went through them so far, either way.
    pub fn carried(&self) -> u64 {
        [&self.blobs, &self.queues, &self.tables].map(Proxy::carried).into_iter().sum()
    }

    /// Switches all three.
    pub fn switch_all(&self, mode: Mode) {
        self.blobs.switch(mode);
        self.queues.switch(mode);
        self.tables.switch(mode);
    }
}

fn endpoints(ports: Ports, with_proxies: bool) -> (String, String, Option<Proxies>) {
    let storage = |ports: Ports| format!("azure:{}", ports.connection_string());
    let proxies = with_proxies.then(|| Proxies::before(ports));
    let through = proxies.as_ref().map_or(ports, Proxies::ports);
    (storage(ports), storage(through), proxies)
}

/// A bank for one test. Its processes end with it.
#[derive(Debug)]
pub struct Scenario {
    /// Which store it stands on.
    pub stand: Stand,
    /// The web processes, in the order in which they were started.
    pub webs: Vec<Service>,
    /// The worker processes, in the order in which they were started.
    pub workers: Vec<Service>,
    /// The proxies, where the plan has them.
    pub proxies: Option<Proxies>,
    /// What every process is started with.
    pub settings: Settings,
    direct: String,
    prefix: String,
    key: String,
    hosts_worker: bool,
    trusted: Option<String>,
    identity: Option<Certified>,
    /// Last: removed when the processes are gone.
    directory: TempDir,
}

impl Scenario {
    /// Web processes that are started from now on host a worker.
    pub const fn host_worker(&mut self) {
        self.hosts_worker = true;
    }

    /// Starts another web process. It listens when this returns; it may not be ready.
    pub fn start_web(&mut self) {
        let arguments: &[&str] = if self.hosts_worker { &["--with-worker"] } else { &["--no-worker"] };
        let web = Service::start(Binary::Web, &self.settings, arguments, self.directory.path());
        self.webs.push(web);
    }

    /// Starts another worker process. It can be asked when this returns; it may not be ready.
    pub fn start_worker(&mut self) {
        self.start_worker_with(&[]);
    }

    /// Starts another worker process with arguments.
    pub fn start_worker_with(&mut self, arguments: &[&str]) {
        let worker = Service::start(Binary::Worker, &self.settings, arguments, self.directory.path());
        self.workers.push(worker);
    }

    /// What can be asked of a worker process.
    pub fn vitals(&self, worker: usize) -> Vitals {
        let worker =
            self.workers.get(worker).unwrap_or_else(|| panic!("there is no worker process {worker}"));
        Vitals::of(worker.address())
    }

    /// Waits until every worker process is ready: others know it and can reach it.
    pub async fn until_workers_ready(&self) {
        for worker in 0..self.workers.len() {
            self.vitals(worker).until_ready().await;
        }
    }

    /// The proxies of a plan that has them.
    pub fn proxies(&self) -> &Proxies {
        self.proxies.as_ref().expect("the plan has proxies")
    }

    /// A client of a web process, with the first key.
    pub fn client(&self, web: usize) -> Client {
        let web = self.webs.get(web).unwrap_or_else(|| panic!("there is no web process {web}"));
        match &self.trusted {
            Some(authority) => Client::trusting(web.address(), &self.key, authority, self.identity.as_ref()),
            None => Client::new(web.address(), &self.key),
        }
    }

    /// The first key, which allows everything.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The directory of the test.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Queues that share the work.
    pub fn queue_count(&self) -> u16 {
        let set = self.settings.get("POSTONCE_QUEUE_COUNT").and_then(|count| count.parse().ok());
        set.unwrap_or(match self.stand {
            Stand::Sqlite => 1,
            Stand::Azurite => 4,
        })
    }

    /// The store itself, past the proxies and the processes.
    pub async fn store(&self) -> Store {
        self.store_in(Arc::new(SystemWorld::new())).await
    }

    /// The same, with a clock of its own.
    pub async fn store_in(&self, world: Arc<dyn World>) -> Store {
        if let Some(path) = self.direct.strip_prefix("sqlite:") {
            let enqueue = store::enqueue(
                self.queue_count(),
                Arc::default(),
                Seal::new(&Arc::new(DoorbellSecret::new(None))),
            );
            return SqliteStore::open(Path::new(path), enqueue, world).expect("the file can be opened");
        }
        let connection = self.direct.strip_prefix("azure:").expect("there are two kinds of stores");
        let connection = AzureConnection::parse(connection).expect("the harness knows connection strings");
        let config = AzureConfig { connection, prefix: self.prefix.clone() };
        azure::open(&config, world).await.expect("opening asks nobody")
    }

    /// The seal of the bank's messages: the secret is the one that its processes find in the store.
    pub async fn seal(&self) -> Seal {
        let secret = Arc::new(DoorbellSecret::new(None));
        secret.establish(&*self.store().await.sync, &SystemWorld::new()).await;
        Seal::new(&secret)
    }

    /// Means to change the store past the bank.
    pub fn tamper(&self) -> Tamper {
        Tamper::with(&self.direct, &self.prefix)
    }

    /// Runs `postonce-web` with a subcommand for operators; returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn operate(&self, arguments: &[&str]) -> String {
        let launch = service::launch(Binary::Web, &self.settings, arguments, self.directory.path());
        let mut process = Process::start(&launch);
        let status = process.wait(wait::PATIENCE);
        process.wait_for_output();
        let printed = process.log().lines().join("\n");
        assert!(status.success(), "{arguments:?} failed:\n{printed}");
        printed
    }

    /// Makes an API key with the command for operators.
    pub fn add_key(&self, partner: &str, scopes: &[&str]) -> String {
        let mut arguments = vec!["keys", "add", "--partner", partner];
        arguments.extend(scopes.iter().flat_map(|scope| ["--scope", scope]));
        let printed = self.operate(&arguments);
        let is_key = |word: &&str| word.starts_with("po_");
        let key = printed.split_whitespace().find(is_key);
        key.unwrap_or_else(|| panic!("no key in {printed}")).to_owned()
    }

    /// Runs a worker that dies at that point, until it is dead; returns the signal that ended it.
    pub fn run_dying_worker(&self, point: Point) -> Option<i32> {
        let arguments = [point.code()];
        let launch = service::launch(Binary::DyingWorker, &self.settings, &arguments, self.directory.path());
        let mut process = Process::start(&launch);
        process.wait(wait::PATIENCE).signal()
    }
}

/// An account that nobody else uses.
pub fn fresh_account() -> AccountKey {
    let (user, account) = (UserId::from_uuid(Uuid::new_v4()), AccountId::from_uuid(Uuid::new_v4()));
    AccountKey { user, account }
}

/// An id that nobody else uses.
pub fn fresh_id() -> MessageId {
    MessageId::from_uuid(Uuid::new_v4())
}

fn short(uuid: Uuid) -> String {
    let mut text = uuid.simple().to_string();
    text.truncate(12);
    text
}
