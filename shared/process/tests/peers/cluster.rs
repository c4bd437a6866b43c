//! Processes of one cluster over one memory store, each with the server of a worker.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use postonce_process::http::{PeerState, WorkerApp, serve};
use postonce_process::metrics::ProcessMetrics;
use postonce_process::process_gate::ProcessGate;
use postonce_process::readiness::{Part, Readiness};
use postonce_shared::access::partner_grants::PartnerGrants;
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::testing::prelude::*;
use tokio::task::JoinHandle;

/// Longest wait of a test; most waits take milliseconds.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub fn queue(partition: u16) -> QueueName {
    QueueName::of_partition("work", partition)
}

pub fn keys(text: &str) -> DoorbellKeys {
    DoorbellKeys::parse(text).unwrap()
}

/// One store, and the processes that share it.
pub struct Cluster {
    pub world: Arc<dyn World>,
    pub clock: Arc<TestWorld>,
    pub store: MemoryStore,
    /// The ports of the store for all processes, which count their operations together.
    pub ports: Store,
    pub secret: DoorbellKeys,
}

/// A process with a running server.
pub struct Process {
    pub address: Address,
    pub callee: PeerState,
    pub grants: Arc<PartnerGrants>,
    pub readiness: Arc<Readiness>,
    pub server: ServerHandle,
}

impl Cluster {
    /// The clock stands still, so no wait of the processes ends by itself.
    pub fn new() -> Self {
        let clock = Arc::new(TestWorld::new(1));
        Self::in_world(clock.clone(), clock)
    }

    /// The clock is the system's.
    pub fn in_real_time() -> Self {
        Self::in_world(Arc::new(SystemWorld::new()), Arc::new(TestWorld::new(1)))
    }

    pub fn in_world(world: Arc<dyn World>, clock: Arc<TestWorld>) -> Self {
        let store = MemoryStore::empty(Arc::clone(&world));
        let ports = store.ports();
        Self { world, clock, store, ports, secret: keys("0123456789abcdef") }
    }

    pub fn network(&self) -> PeerNetwork {
        PeerNetwork::new(&self.ports, &self.world, DoorbellSecret::new(Some(&self.secret))).unwrap()
    }

    /// Starts a process with the server of a worker. It is not in the process registry yet.
    pub fn process(&self) -> Process {
        let network = self.network();
        let bank = Bank::new(self.ports.clone(), Arc::clone(&self.world), network.local.clone(), seal(), 1);
        // The test registers it.
        count_as_registered(&bank);
        let readiness = Readiness::starting([Part::ProcessRegistry], &bank.world);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let process_gate = ProcessGate::of(&bank, false);
        let meter = Arc::default();
        let callee = PeerState::of(&bank, &network, &meter, process_gate, &readiness, address.clone());
        let metrics = ProcessMetrics::of(&bank, &meter, &readiness);
        let app = WorkerApp { callee: callee.clone(), metrics };
        let server = serve(app, listener).unwrap();
        let handle = server.handle();
        tokio::spawn(server);
        Process { address, callee, grants: bank.partner_grants, readiness, server: handle }
    }

    /// Registers a worker.
    pub async fn register(&self, id: ProcessId, address: &Address) {
        self.register_as(ProcessKind::Worker, id, address).await;
    }

    pub async fn register_as(&self, kind: ProcessKind, id: ProcessId, address: &Address) {
        let entry = RegisteredProcess {
            id,
            kind,
            address: address.clone(),
            started_at: self.world.now(),
            next_by: self.world.now().after(Duration::from_secs(3600)),
            attempts_survived: 0,
            level: LEVEL,
        };
        self.ports.process_registry.announce(&entry).await.unwrap();
    }

    pub async fn worker(&self) -> Process {
        let process = self.process();
        self.register(process.callee.id, &process.address).await;
        process
    }

    pub fn fresh_id(&self) -> ProcessId {
        ProcessId::from_uuid(self.world.uuid())
    }
}

impl Process {
    /// Pings the other processes, until the task is aborted.
    pub fn keep_pinging(&self) -> JoinHandle<()> {
        let bell = Arc::clone(&self.callee.pings);
        tokio::spawn(async move { bell.keep_pinging(|| 0).await })
    }

    /// Returns whether rings of all processes are proven to arrive.
    pub fn is_proven(&self) -> bool {
        self.callee.pings.proven_until().is_some()
    }

    /// Waits for a ring and returns the queues that it names.
    pub async fn rung(&self) -> BTreeSet<QueueName> {
        within(self.callee.bell.rung("work")).await
    }
}

pub async fn within<T>(condition: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, condition).await.expect("completes before the deadline")
}

pub async fn until(condition: impl Fn() -> bool) {
    within(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub fn completion(world: &dyn World, message: u128) -> Completion {
    let account =
        AccountKey { user: UserId::from_uuid(world.uuid()), account: AccountId::from_uuid(world.uuid()) };
    let message = MessageId::from_uuid(uuid::Uuid::from_u128(message));
    let key = TransactionKey { account, partner: PartnerId::parse("shop").unwrap(), message };
    let outcome = Outcome::Rejected {
        reason: RejectReason::InsufficientFunds,
        rejected_at: world.now(),
        version: None,
    };
    Completion { key, outcome }
}
