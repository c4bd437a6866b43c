//! A town of processes: one store, and whoever serves over it.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use postonce_shared::access::partner_grants::PartnerGrants;
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::completions::Completion;
use postonce_shared::cluster::doorbell_secret::DoorbellKeys;
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, TransactionKey, UserId};
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::ports::doorbell::Doorbell as _;
use postonce_shared::ports::process_registry::{Address, ProcessId, ProcessKind, RegisteredProcess};
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::{World, WorldExt as _};
use postonce_shared::testing::conformance::sealed::seal;
use postonce_worker::http::{PeerState, WorkerApp, serve};
use postonce_worker::readiness::{Part, Readiness};

/// Nothing here takes longer; most takes milliseconds.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub fn queue(partition: u16) -> QueueName {
    QueueName::of_partition("work", partition)
}

pub fn keys(text: &str) -> DoorbellKeys {
    DoorbellKeys::parse(text).unwrap()
}

/// One store, and processes that share it.
pub struct Town {
    pub world: Arc<dyn World>,
    pub clock: Arc<TestWorld>,
    pub store: MemoryStore,
    pub secret: DoorbellKeys,
}

/// A process that serves.
pub struct House {
    pub address: Address,
    pub callee: PeerState,
    pub grants: Arc<PartnerGrants>,
    pub readiness: Arc<Readiness>,
    pub server: ServerHandle,
}

impl Town {
    /// The clock stands still: no wait of the processes ends by itself.
    pub fn new() -> Self {
        let clock = Arc::new(TestWorld::new(1));
        Self::in_world(clock.clone(), clock)
    }

    /// The clock goes.
    pub fn in_real_time() -> Self {
        Self::in_world(Arc::new(SystemWorld::new()), Arc::new(TestWorld::new(1)))
    }

    pub fn in_world(world: Arc<dyn World>, clock: Arc<TestWorld>) -> Self {
        let store = MemoryStore::empty(Arc::clone(&world));
        Self { world, clock, store, secret: keys("0123456789abcdef") }
    }

    pub fn exchange(&self) -> PeerNetwork {
        PeerNetwork::new(&self.store.ports(), &self.world, Some(&self.secret)).unwrap()
    }

    /// A process with the server of a worker. It is not in the roster yet.
    pub fn house(&self) -> House {
        let exchange = self.exchange();
        let bank = Bank::new(self.store.ports(), Arc::clone(&self.world), exchange.local.clone(), seal(), 1);
        let readiness = Readiness::starting([Part::ProcessRegistry]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let callee = PeerState::of(&bank, &exchange, &Arc::default(), None, &readiness, address.clone());
        let app = WorkerApp {
            callee: callee.clone(),
            prices: postonce_shared::oversight::prices::Prices::default(),
        };
        let server = serve(app, listener).unwrap();
        let handle = server.handle();
        tokio::spawn(server);
        House { address, callee, grants: bank.partner_grants, readiness, server: handle }
    }

    /// Puts a process into the roster.
    pub async fn announce(&self, id: ProcessId, address: &Address) {
        self.announce_as(ProcessKind::Worker, id, address).await;
    }

    pub async fn announce_as(&self, kind: ProcessKind, id: ProcessId, address: &Address) {
        let entry = RegisteredProcess {
            id,
            kind,
            address: address.clone(),
            started_at: self.world.now(),
            next_by: self.world.now().after(Duration::from_secs(3600)),
        };
        self.store.ports().roster.announce(&entry).await.unwrap();
    }

    pub async fn worker(&self) -> House {
        let house = self.house();
        self.announce(house.callee.id, &house.address).await;
        house
    }

    pub fn fresh_id(&self) -> ProcessId {
        ProcessId::from_uuid(self.world.uuid())
    }
}

impl House {
    /// Waits for a ring.
    pub async fn heard(&self) -> BTreeSet<QueueName> {
        within(self.callee.bell.rung("work")).await
    }
}

pub async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("it takes no longer than the deadline")
}

pub async fn until(what: impl Fn() -> bool) {
    within(async {
        while !what() {
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
    let outcome = Outcome::Rejected { reason: RejectReason::InsufficientFunds, rejected_at: world.now() };
    Completion { key, outcome }
}
