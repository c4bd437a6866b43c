//! A worker for tests: each call receives once from an ingest queue, or posts what was accepted.

use std::sync::Arc;
use std::time::Duration;

use postonce_process::drain::{Drain, DrainStarter, drain};
use postonce_process::meter::Meter;
use postonce_shared::config::IngestQueue;
use postonce_shared::domain::partner::{ActiveKey, Partner, Reach};
use postonce_shared::testing::prelude::*;
use postonce_worker::config::WorkerConfig;
use postonce_worker::ingest::direct_orders::DirectOrders;
use postonce_worker::ingest::intake::{Intake, Received};
use postonce_worker::listening::handler::Health;
use postonce_worker::posting::posting_handler::PostingHandler;
use uuid::Uuid;

use crate::posting::fixture::{Fixture, account, config, read_and_handle, until};

pub const VISIBILITY: Duration = Duration::from_secs(20);
/// Longer than any delay before a retry.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(11);

pub fn shop() -> PartnerId {
    PartnerId::parse("shop").unwrap()
}

pub fn orders_queue() -> IngestQueue {
    IngestQueue {
        name: "shop".to_owned(),
        queue: QueueName::of_ingest("orders").unwrap(),
        partner: shop(),
        poll_max: Duration::from_secs(60),
    }
}

/// The body of an order.
pub fn body(number: u128, message: u128, amount: &str) -> String {
    let key = account(number);
    format!("{}|{}|{}|{amount}", key.user, key.account, Uuid::from_u128(message))
}

/// A worker process.
pub struct TestWorker {
    pub fixture: Fixture<TestWorld>,
    pub bank: Bank,
    pub meter: Arc<Meter>,
    pub control: Arc<Control>,
    direct: Arc<DirectOrders>,
    intake: Intake,
    posting: PostingHandler,
    draining: (DrainStarter, Drain),
}

impl TestWorker {
    pub async fn new() -> Self {
        Self::over(|_, _| {}).await
    }

    /// The same, over a store with more faults.
    pub async fn over(apply: impl FnOnce(&mut Store, Arc<TestWorld>)) -> Self {
        Self::process(Fixture::with_still_clock().await, apply)
    }

    /// The same, with a partner `shop` that may do everything that orders ask for.
    pub async fn with_partner() -> Self {
        Self::new().await.having_partner().await
    }

    fn process(fixture: Fixture<TestWorld>, apply: impl FnOnce(&mut Store, Arc<TestWorld>)) -> Self {
        let (meter, control, world) =
            (Arc::new(Meter::default()), Arc::<Control>::default(), Arc::clone(&fixture.world));
        let bank = fixture.bank_over(|store| {
            control.apply(store);
            apply(store, world);
        });
        let config = WorkerConfig { ingest: vec![orders_queue()], ..config(VISIBILITY) };
        let direct = Arc::new(DirectOrders::new(&bank, config.request_rate));
        let intake = Intake::new(&bank, &meter, (&orders_queue(), &config), Arc::clone(&direct));
        let posting = PostingHandler::new(&bank, Arc::clone(&meter), &config);
        let draining = drain();
        Self { fixture, bank, meter, control, direct, intake, posting, draining }
    }

    /// Ends the process, and starts another one.
    pub fn restarted(self) -> Self {
        Self::process(self.fixture, |_, _| {})
    }

    /// The same, draining.
    pub fn draining(self) -> Self {
        self.draining.0.start();
        self
    }

    pub async fn having_partner(self) -> Self {
        let worker = self;
        let partner = Partner::active(shop(), Reach::Everything, worker.fixture.world.now());
        let _ = worker.partners().save(&partner, None).await.unwrap();
        worker.add_key(1, &["deposit", "withdraw"]).await;
        worker
    }

    pub fn partners(&self) -> PartnerRecords {
        PartnerRecords::new(&self.fixture.store)
    }

    pub async fn change(&self, change: impl FnOnce(&mut Partner)) {
        let mut stored = self.partners().find(&shop()).await.unwrap().unwrap();
        change(&mut stored.value);
        let _ = self.partners().save(&stored.value, Some(&stored.revision)).await.unwrap();
    }

    pub async fn add_key(&self, number: u8, scopes: &[&str]) {
        self.add_key_until(number, scopes, None).await;
    }

    pub async fn add_key_until(&self, number: u8, scopes: &[&str], expires_at: Option<Timestamp>) {
        let (id, created_at) = (format!("{number:016}"), self.fixture.world.now());
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let hash = [number; 32];
        let record = ApiKeyRecord {
            id: id.clone(),
            hash,
            partner: shop(),
            scopes,
            created_at,
            revoked_at: None,
            expires_at,
            last_used_at: None,
        };
        self.fixture.store.api_keys.add(&record).await.unwrap();
        self.change(|partner| partner.keys.push(ActiveKey { id, created_at })).await;
    }

    /// Sends an order to the ingest queue.
    pub async fn order(&self, number: u128, message: u128, amount: &str) {
        self.send(&body(number, message, amount)).await;
    }

    pub async fn send(&self, body: &str) {
        let queue = &self.fixture.store.queue;
        queue.send(self.intake.queue(), body.as_bytes(), Duration::ZERO).await.unwrap();
    }

    /// Uses up what the rate of the partner allows now, with a burst of one.
    pub async fn use_rate(&self) {
        assert_eq!(self.direct.postponed(&shop(), 1).await.unwrap(), None);
    }

    /// Receives from the ingest queue once; `Nothing` if no message is visible.
    pub async fn receive(&self) -> Received {
        self.intake.receive(&self.draining.1).await
    }

    /// Receives from the ingest queue once, and posts what was accepted.
    pub async fn handle_next(&self) -> Health {
        let health = match self.receive().await {
            Received::Nothing => Health::Healthy,
            Received::Messages { handled, .. } => handled.health,
            Received::Unavailable => Health::Unavailable,
        };
        let _ = read_and_handle(&self.posting, self.fixture.receive(VISIBILITY).await).await;
        health
    }

    /// Receives from the ingest queue, and ends the process at this call to the store.
    pub async fn killed_at(self, call: &'static str) -> Self {
        self.control.set(call, || Effect::Hangs);
        let before = self.control.count(call);
        let reached = until(call, async || self.control.count(call) > before);
        match futures::future::select(Box::pin(self.receive()), Box::pin(reached)).await {
            futures::future::Either::Left(_) => panic!("{call} was not reached"),
            futures::future::Either::Right(_) => {}
        }
        self.restarted()
    }

    /// Advances the clock until all messages are visible.
    pub fn pass(&self) {
        self.fixture.world.advance(VISIBILITY + RETRY_DELAY_MAX);
    }

    /// Returns the number of messages in the ingest queue.
    pub async fn depth(&self) -> u64 {
        self.fixture.store.queue.backlog(self.intake.queue()).await.unwrap().depth
    }

    /// Handles an order that becomes a dead letter. Returns its reason, and discards it.
    pub async fn refused(&self, number: u128, message: u128, amount: &str) -> String {
        self.order(number, message, amount).await;
        let _ = self.handle_next().await;
        let mut letters = self.fixture.dead_letters().await;
        assert_eq!((letters.len(), self.depth().await), (1, 0));
        let letter = letters.remove(0);
        let _ = self.bank.dead_letters.discard(&letter.id, "test").await.unwrap();
        letter.reason
    }

    /// Handles an order that posts.
    pub async fn posts(&self, number: u128, message: u128, amount: &str, balance: &str) {
        self.order(number, message, amount).await;
        let _ = self.handle_next().await;
        assert_eq!((self.fixture.dead_letters().await.len(), self.depth().await), (0, 0));
        assert_eq!(self.fixture.balance(number).await, balance);
    }
}
