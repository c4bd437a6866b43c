//! A bank with its HTTP application, and functions that call it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Service as _;
use actix_web::http::header::HeaderMap;
use actix_web::test::{TestRequest, init_service};
use actix_web::web::Bytes;
use async_trait::async_trait;
use futures::future::join_all;
use postonce_process::meter::Meter;
use postonce_process::process_gate::ProcessGate;
use postonce_process::readiness::{Part, Readiness};
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::messaging::envelope::{Body, Content, Names, queues};
use postonce_shared::oversight::prices::Prices;
use postonce_shared::oversight::scaling::{ScalingPolicy, Schedule, TimeZone};
use postonce_shared::posting::queued::Poster;
use postonce_shared::protocol::dead_letters::DeadLetterService;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use postonce_web::admin::service::AdminTerms;
use postonce_web::server::{App, build};
use serde_json::Value;

/// Number of queues of the test bank.
const QUEUE_COUNT: u16 = 2;

/// Secret that the processes of the test bank sign with.
pub const RING_SECRET: &str = "the-secret-of-the-test-bank";

/// Address at which other processes call the test bank.
pub fn address() -> Address {
    Address::parse("http://bank:8081").unwrap()
}

/// The paths of the account that most tests use.
pub const USER: &str = "/v1/users/0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11/accounts";
pub const ACCOUNT: &str =
    "/v1/users/0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11/accounts/77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";

/// A bank over the memory adapter, with its HTTP application.
pub struct TestBank {
    pub store: Store,
    pub world: Arc<TestWorld>,
    pub app: App,
    pub letters: Arc<DeadLetterService>,
    pub completions: Arc<Completions>,
    pub bank: Bank,
    pub meter: Arc<Meter>,
    poster: Arc<Poster>,
    /// A key of partner `shop` with every scope.
    key: NewKey,
    seal: Seal,
}

/// A response with its whole body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// Null if the body is not JSON.
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The status and the code of a problem.
    pub fn problem(&self) -> (u16, &str) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.body["status"], self.status, "{self:?}");
        let code = self.body["code"].as_str().unwrap();
        assert_eq!(self.body["type"], format!("urn:postonce:problem:{code}"), "{self:?}");
        assert!(self.body["title"].is_string() && self.body["detail"].is_string(), "{self:?}");
        (self.status, code)
    }

    /// The fields of the violations.
    pub fn fields(&self) -> Vec<&str> {
        let violations = self.body["violations"].as_array().unwrap();
        violations.iter().map(|violation| violation["field"].as_str().unwrap()).collect()
    }
}

/// A worker posts ten messages in a second; the schedule demands three workers in the second hour of the day.
fn policy() -> ScalingPolicy {
    let utc = TimeZone::named("UTC").unwrap();
    ScalingPolicy {
        age_target: Duration::from_secs(2),
        worker_rate: 10,
        workers_min: 1,
        workers_max: 5,
        floors: Schedule::parse("* 1 * * * = 3", &utc).unwrap(),
        down_delay: Duration::ZERO,
    }
}

impl TestBank {
    /// An empty bank that is ready.
    pub async fn new() -> Self {
        Self::over(|_| {}).await
    }

    /// A bank over a store that `decorate` changes.
    pub async fn over(decorate: impl FnOnce(&mut Store)) -> Self {
        let world = Arc::new(TestWorld::new(1));
        let as_world: Arc<dyn World> = world.clone();
        let mut store = MemoryStore::new(as_world.clone());
        decorate(&mut store);
        let secret = DoorbellKeys::parse(RING_SECRET).unwrap();
        let network = PeerNetwork::new(&store, &as_world, DoorbellSecret::new(Some(&secret))).unwrap();
        let seal = Seal::new(&network.secret);
        let bank = Bank::new(store.clone(), as_world, network.local.clone(), seal.clone(), QUEUE_COUNT);
        let readiness = Readiness::starting([Part::Ledger, Part::Queue, Part::FirstKey], &bank.world);
        [Part::Ledger, Part::Queue, Part::FirstKey].into_iter().for_each(|part| readiness.gain(part));
        let meter: Arc<Meter> = Arc::default();
        let terms = AdminTerms {
            scaling: policy(),
            prices: Prices::default(),
            scrubber_operations_per_day: 10_000,
            ingest: vec![QueueName::of_ingest("orders").unwrap()],
        };
        let terms = (terms, address());
        let app = App::over(&bank, &network, (&meter, ProcessGate::of(&bank, false)), terms, readiness);
        let (letters, poster) = (Arc::clone(&bank.dead_letters), Arc::clone(&bank.poster));
        let completions = Arc::clone(&bank.completions);
        let key = NewKey::random();
        let bank = Self { store, world, app, letters, completions, bank, meter, poster, key, seal };
        bank.add_key(&bank.key, "shop", Scope::ALL).await;
        bank
    }

    /// The same bank, serving the calls of other processes at the address of the API as well.
    #[must_use]
    pub fn serving_peers(mut self) -> Self {
        self.app.serves_peers = true;
        self
    }

    /// A bank with one open account in euro.
    pub async fn with_account() -> Self {
        let bank = Self::new().await;
        let answer = bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        bank
    }

    /// Sets the signature keys of a partner, and whether it must sign.
    pub async fn set_signing(&self, partner: &str, keys: &[SignatureKey], is_required: bool) {
        let change =
            |partner| Partner { signature_keys: keys.to_vec(), signature_required: is_required, ..partner };
        self.change_partner(partner, change).await;
    }

    /// Changes the record of a partner, effective at once.
    pub async fn change_partner(&self, partner: &str, change: impl FnOnce(Partner) -> Partner) {
        let id = PartnerId::parse(partner).unwrap();
        let partners = PartnerRecords::new(&self.store);
        let Versioned { value, revision } = partners.find(&id).await.unwrap().unwrap();
        let saved = partners.save(&change(value), Some(&revision)).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)));
        self.app.keyring.forget(Some(&id));
    }

    /// Returns a key with every scope of the new partner `narrow`, which reaches no account.
    pub async fn key_without_reach(&self) -> NewKey {
        let key = NewKey::random();
        let nothing = Reach::Named { users: BTreeSet::new(), accounts: BTreeSet::new() };
        self.add_key_with_reach(nothing, &key, "narrow", Scope::ALL).await;
        key
    }

    /// Stores a key of a partner that reaches everything.
    pub async fn add_key(&self, key: &NewKey, partner: &str, scopes: &[Scope]) {
        self.add_key_with_reach(Reach::Everything, key, partner, scopes).await;
    }

    /// Stores a further key of a partner, and sets the reach of the partner.
    pub async fn add_key_with_reach(&self, reach: Reach, key: &NewKey, partner: &str, scopes: &[Scope]) {
        let id = PartnerId::parse(partner).unwrap();
        let record = key.record(id.clone(), scopes, &*self.world);
        // The use of today is recorded already, so that tests of the number of operations do not depend on it.
        let record = ApiKeyRecord { last_used_at: Some(self.world.now()), ..record };
        self.store.api_keys.add(&record).await.unwrap();
        let partners = PartnerRecords::new(&self.store);
        let stored = partners.find(&id).await.unwrap();
        let new = || Partner::active(id, Reach::Everything, self.world.now());
        let revision = stored.as_ref().map(|stored| stored.revision.clone());
        let mut partner = stored.map_or_else(new, |stored| stored.value);
        partner.reach = reach;
        partner.keys.push(ActiveKey { id: record.id, created_at: record.created_at });
        let saved = partners.save(&partner, revision.as_ref()).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)));
        self.app.keyring.forget(Some(&partner.id));
    }

    /// Sends a request as it is.
    pub async fn call(&self, request: TestRequest) -> Answer {
        self.call_for_bytes(request).await.0
    }

    /// Sends a request as it is, and returns the bytes of the body, too.
    pub async fn call_for_bytes(&self, request: TestRequest) -> (Answer, Bytes) {
        let service = init_service(build(&self.app)).await;
        let response = match service.call(request.to_request()).await {
            Ok(response) => response.into_parts().1.map_into_boxed_body(),
            Err(error) => error.error_response(),
        };
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = actix_web::body::to_bytes(response.into_body()).await.ok().unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        (Answer { status, headers, text, body }, bytes)
    }

    /// The key of the shop.
    pub const fn key(&self) -> &NewKey {
        &self.key
    }

    /// Sends a request with the key of the shop.
    pub async fn call_as_shop(&self, request: TestRequest) -> Answer {
        self.call(with_key(request, &self.key)).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call_as_shop(TestRequest::get().uri(path)).await
    }

    pub async fn put(&self, path: &str, body: &str) -> Answer {
        self.call_as_shop(json(TestRequest::put().uri(path), body)).await
    }

    pub async fn patch(&self, path: &str, body: &str) -> Answer {
        self.call_as_shop(json(TestRequest::patch().uri(path), body)).await
    }

    /// Submits an instruction with the message id of that number.
    pub async fn submit(&self, kind: &str, number: u32, body: &str) -> Answer {
        self.call_as_shop(submission(kind, number, body)).await
    }

    /// Posts all waiting work, as the worker of this process does.
    pub async fn post_all(&self) {
        count_as_draining(&self.bank);
        count_as_released(&self.bank);
        self.post_by(&self.poster).await;
    }

    /// Posts all waiting work, as the worker of another process does, without a reply to this one.
    pub async fn post_in_another_process(&self) {
        let bell = Arc::new(LocalDoorbell::default());
        let other = Bank::new(self.store.clone(), self.world.clone(), bell, self.seal.clone(), QUEUE_COUNT);
        count_as_draining(&other);
        count_as_released(&other);
        self.post_by(&other.poster).await;
    }

    async fn post_by(&self, poster: &Poster) {
        for queue in queues(QUEUE_COUNT) {
            for message in self.store.queue.receive(&queue, 32, Duration::from_secs(20)).await.unwrap() {
                let body = Body::decode(&message.body, &self.seal).unwrap();
                let Body::Content(Content::Work(envelope)) = body else { panic!("not sealed work") };
                let mut by_account: BTreeMap<AccountKey, Vec<Work>> = BTreeMap::new();
                for work in envelope.items {
                    by_account.entry(work.submission.key.account).or_default().push(work);
                }
                for (account, work) in by_account {
                    let settled = poster.post(account, work).await;
                    assert!(settled.iter().all(|(_, result)| result.is_ok()), "{settled:?}");
                    self.meter.settled.add(settled.len());
                }
                let _held = self.store.queue.delete(&queue, &message.lease).await.unwrap();
            }
        }
    }

    /// The number of waiting messages.
    pub async fn queued(&self) -> u64 {
        let depths = queues(QUEUE_COUNT).into_iter();
        let depths = depths.map(async |queue| self.store.queue.backlog(&queue).await.unwrap().depth);
        join_all(depths).await.into_iter().sum()
    }

    /// Moves the next waiting message to the dead letters. Returns its id.
    pub async fn dead_letter_one(&self) -> String {
        for queue in queues(QUEUE_COUNT) {
            let received = self.store.queue.receive(&queue, 1, Duration::from_secs(20)).await.unwrap();
            if let Some(message) = received.into_iter().next() {
                let names = Names::read(&message.body).unwrap();
                let held: Vec<_> = names.keys().into_iter().cloned().collect();
                self.letters.set_aside(&queue, &message, &held, "test").await.unwrap();
                let _held = self.store.queue.delete(&queue, &message.lease).await.unwrap();
                return message.lease.message_id;
            }
        }
        panic!("no message is waiting");
    }

    /// The number of operations of the store so far.
    pub fn operations(&self) -> u64 {
        self.store.operations.snapshot().values().sum()
    }
}

pub fn with_key(request: TestRequest, key: &NewKey) -> TestRequest {
    request.insert_header(("authorization", format!("Bearer {}", key.expose())))
}

pub fn json(request: TestRequest, body: &str) -> TestRequest {
    request.insert_header(("content-type", "application/json")).set_payload(body.to_owned())
}

/// A message id that is easy to recognize in a failure.
pub fn id(number: u32) -> String {
    format!("4f9d0c9e-5d3e-4c0e-9a51-{number:012}")
}

pub fn submission(kind: &str, number: u32, body: &str) -> TestRequest {
    let request = TestRequest::post().uri(&format!("{ACCOUNT}/{kind}"));
    json(request, body).insert_header(("idempotency-key", format!("\"{}\"", id(number))))
}

/// Records that refuse to save in one collection.
struct RefusedSaves {
    records: Arc<dyn Records>,
    collection: Collection,
    fault: fn() -> StoreFault,
}

#[async_trait]
impl RecordsDecorator for RefusedSaves {
    fn inner(&self) -> &dyn Records {
        &*self.records
    }

    async fn save(
        &self,
        collection: Collection,
        id: &str,
        body: &str,
        expected: Option<&Revision>,
    ) -> Result<Swapped, StoreFault> {
        if collection == self.collection {
            return Err((self.fault)());
        }
        self.records.save(collection, id, body, expected).await
    }
}

/// Lets every save in a collection fail.
pub fn refuse_saves(store: &mut Store, collection: Collection, fault: fn() -> StoreFault) {
    let records = Arc::clone(&store.records);
    store.records = Arc::new(RefusedSaves { records, collection, fault });
}
