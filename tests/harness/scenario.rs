//! A bank for one test: which store, which processes, which settings; all in one constructor.
#![expect(clippy::disallowed_methods, reason = "tests need ids that no other test has")]

use std::path::PathBuf;

use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, UserId};
use tempfile::TempDir;
use uuid::Uuid;

use crate::azurite::{Azurite, Ports};
use crate::binaries::Binary;
use crate::client::Client;
use crate::proxy::{Mode, Proxy};
use crate::service::{Service, Settings};

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
    proxies: bool,
    settings: Settings,
}

impl Plan {
    /// The smallest bank on a store: one process on SQLite, a web and a worker process on Azurite.
    pub fn on(stand: Stand) -> Self {
        let workers = match stand {
            Stand::Sqlite => 0,
            Stand::Azurite => 1,
        };
        Self { stand, webs: 1, workers, proxies: false, settings: Settings::default() }
    }

    /// That many processes of each kind. With no worker process, work stays on the queue until a
    /// test starts one.
    #[must_use]
    pub const fn processes(mut self, webs: usize, workers: usize) -> Self {
        self.webs = webs;
        self.workers = workers;
        self
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

    /// Another setting, for all processes.
    #[must_use]
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.settings = self.settings.with(variable, value);
        self
    }

    /// Prepares the store and starts the processes.
    pub fn start(self) -> Scenario {
        let Self { stand, webs, workers, proxies, settings } = self;
        let directory = TempDir::with_prefix("postonce-test-").expect("a directory for a test");
        // One process on SQLite hosts its worker; as soon as there are others, it is told not to.
        let hosts_worker = stand == Stand::Sqlite && webs == 1 && workers == 0;
        let (direct, through, proxies) = match stand {
            Stand::Sqlite => {
                let storage = format!("sqlite:{}", directory.path().join("postonce.db").display());
                (storage.clone(), storage, None)
            }
            Stand::Azurite => endpoints(Azurite::shared().ports(), proxies),
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
            directory,
        };
        (0..webs).for_each(|_| scenario.start_web());
        (0..workers).for_each(|_| scenario.start_worker());
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
    /// Last: removed when the processes are gone.
    directory: TempDir,
}

impl Scenario {
    /// Starts another web process.
    pub fn start_web(&mut self) {
        let arguments: &[&str] = if self.hosts_worker { &["--with-worker"] } else { &["--no-worker"] };
        let web = Service::start(Binary::Web, &self.settings, arguments, self.directory.path());
        self.webs.push(web);
    }

    /// Starts another worker process.
    pub fn start_worker(&mut self) {
        let worker = Service::start(Binary::Worker, &self.settings, &[], self.directory.path());
        self.workers.push(worker);
    }

    /// The proxies of a plan that has them.
    pub fn proxies(&self) -> &Proxies {
        self.proxies.as_ref().expect("the plan has proxies")
    }

    /// A client of a web process, with the first key.
    pub fn client(&self, web: usize) -> Client {
        let web = self.webs.get(web).unwrap_or_else(|| panic!("there is no web process {web}"));
        Client::new(web.address(), &self.key)
    }

    /// The first key, which allows everything.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The directory of the test.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Where the store is, past the proxies, and the prefix of its names.
    pub fn store_location(&self) -> (&str, &str) {
        (&self.direct, &self.prefix)
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
