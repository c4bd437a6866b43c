//! HTTP proxies in front of Azurite, which make it behave like Azure Storage where that matters to a client:
//!
//! - A request that Azure would refuse is refused with its status and error code ([`rules`]), and is recorded: the test fails
//!   when the proxies are dropped.
//! - Rates have the limits of Azure, and excess requests get 503 with `Retry-After` ([`rates`]).
//! - Pages of table queries end early, even before the first row ([`pages`]).
//! - An operation ends with an error after 30 seconds, or after the `timeout` of the request.
//! - Optionally, each response has the latency of a storage service ([`latency`]), or requests fail ([`storage_fault`]).

pub(crate) mod error_responses;
mod latency;
pub(crate) mod pages;
mod rates;
pub(crate) mod request;
pub(crate) mod rules;
mod server;
pub mod storage_fault;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use postonce_shared::adapters::system::SystemWorld;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

pub use request::Service;

use crate::azurite::Ports;
use rates::Rates;
use server::StorageProxy;
use storage_fault::FaultInjector;

/// Similarity of the storage of a bank to Azure Storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// Azurite without proxies.
    Emulator,
    /// Azurite behind proxies with the rules and limits of Azure.
    Rules,
    /// The same, with the latency of Azure.
    RulesAndLatency,
}

/// Environment variable with the likeness for all tests of a process, for measurements: `emulator`, `rules`, or
/// `rules-and-latency`.
const VARIABLE: &str = "POSTONCE_TESTS_LIKENESS";

static CHOSEN: OnceLock<Likeness> = OnceLock::new();

impl Likeness {
    /// Sets the likeness for this process, before its first use.
    ///
    /// # Panics
    /// When the process already uses another one.
    pub fn choose(self) {
        assert!(*CHOSEN.get_or_init(|| self) == self, "the likeness is chosen before the first bank starts");
    }

    /// Returns the likeness of this process, which is `Rules` unless another one was chosen.
    ///
    /// # Panics
    /// When the variable has an unknown value.
    pub fn chosen() -> Self {
        *CHOSEN.get_or_init(|| match std::env::var(VARIABLE).as_deref() {
            Err(_) | Ok("rules") => Self::Rules,
            Ok("emulator") => Self::Emulator,
            Ok("rules-and-latency") => Self::RulesAndLatency,
            Ok(unknown) => {
                panic!("{VARIABLE} is {unknown:?}; allowed are emulator, rules and rules-and-latency")
            }
        })
    }
}

/// The state that the proxies of one bank share.
struct Shared {
    world: SystemWorld,
    faults: Arc<FaultInjector>,
    rates: Mutex<Rates>,
    /// Source of random pages and latencies.
    rng: Mutex<StdRng>,
    has_latency: bool,
    /// The requests that Azure would refuse.
    refused: Mutex<Vec<String>>,
    /// Seconds by which the clock of the storage is behind.
    clock_behind_s: AtomicU32,
}

impl Shared {
    fn new(faults: &Arc<FaultInjector>, has_latency: bool) -> Self {
        Self {
            world: SystemWorld::new(),
            faults: Arc::clone(faults),
            rates: Mutex::default(),
            rng: Mutex::new(StdRng::seed_from_u64(SEED)),
            has_latency,
            refused: Mutex::default(),
            clock_behind_s: AtomicU32::new(0),
        }
    }
}

/// Seed of pages and latencies. The order of requests differs between runs anyway.
const SEED: u64 = 1;

/// Proxies in front of the three services of Azurite, or none if the likeness does not need them. They stop when they are
/// dropped.
///
/// # Panics
/// When they are dropped after a request that Azure would refuse.
pub struct StorageProxies {
    ports: Ports,
    proxies: Vec<StorageProxy>,
    shared: Arc<Shared>,
}

impl StorageProxies {
    /// Starts proxies in front of the services at these ports, if the likeness needs them.
    pub fn before(ports: Ports, likeness: Likeness) -> Self {
        let shared = Arc::new(Shared::new(&Arc::default(), likeness == Likeness::RulesAndLatency));
        match likeness {
            Likeness::Emulator => Self { ports, proxies: Vec::new(), shared },
            Likeness::Rules | Likeness::RulesAndLatency => Self::start(ports, shared),
        }
    }

    /// Starts proxies with rules and faults.
    pub fn with_faults(ports: Ports, faults: &Arc<FaultInjector>) -> Self {
        Self::start(ports, Arc::new(Shared::new(faults, false)))
    }

    fn start(ports: Ports, shared: Arc<Shared>) -> Self {
        let start = |service, port| StorageProxy::before(service, port, &shared);
        let blob = start(Service::Blob, ports.blob);
        let queue = start(Service::Queue, ports.queue);
        let table = start(Service::Table, ports.table);
        let ports = Ports { blob: blob.port(), queue: queue.port(), table: table.port() };
        Self { ports, proxies: vec![blob, queue, table], shared }
    }

    /// Returns the ports for the processes of the bank.
    pub const fn ports(&self) -> Ports {
        self.ports
    }

    /// Sets the clock in the responses of the storage back by this many seconds; zero corrects it.
    pub fn set_clock_back(&self, seconds: u32) {
        self.shared.clock_behind_s.store(seconds, Ordering::Relaxed);
    }

    /// Returns the requests so far that Azure would refuse. They do not fail the test any more.
    pub fn take_refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.refused.lock())
    }

    /// Waits until no request is in progress, including requests whose client is gone.
    pub async fn until_idle(&self) {
        for proxy in &self.proxies {
            proxy.until_idle().await;
        }
    }
}

impl std::fmt::Debug for StorageProxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageProxies").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Drop for StorageProxies {
    fn drop(&mut self) {
        let refused = self.take_refused();
        // A test that already fails shows its own reason.
        assert!(refused.is_empty() || std::thread::panicking(), "{}", refused.join("\n"));
    }
}

#[cfg(test)]
mod tests;
