//! The requests that the Azure adapter sends, and how long it repeats them, seen by a server that only records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::testing::decorators::WorldDecorator;
use postonce_shared::testing::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How the server answers every request.
#[derive(Debug, Clone, Copy)]
enum Behavior {
    /// Answers 503.
    Busy,
    /// Answers that the row does not exist.
    Absent,
    /// Never answers.
    Silent,
}

/// A server that records its requests.
struct RecordingServer {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicU64>,
}

impl RecordingServer {
    async fn start(behavior: Behavior) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let (requests, connections) = (Arc::default(), Arc::<AtomicU64>::default());
        let this = Self { port, requests: Arc::clone(&requests), connections: Arc::clone(&connections) };
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                drop(tokio::spawn(serve(stream, behavior, Arc::clone(&requests))));
            }
        }));
        this
    }

    async fn store(&self, world: Arc<dyn World>) -> Store {
        let url = format!("http://127.0.0.1:{}/bank", self.port);
        let text = format!(
            "AccountName=bank;AccountKey=a2V5;BlobEndpoint={url};QueueEndpoint={url};TableEndpoint={url}"
        );
        let connection = AzureConnection::parse(&text).unwrap();
        azure::open(&AzureConfig::new(connection, "test".to_owned()), world).await.unwrap()
    }

    /// The first lines of all requests so far.
    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

async fn serve(mut stream: TcpStream, behavior: Behavior, requests: Arc<Mutex<Vec<String>>>) {
    let mut read = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
        read.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length.map_or(0, |length| length.parse().unwrap()) {
            continue;
        }
        read.clear();
        requests.lock().push(head.lines().next().unwrap_or_default().to_owned());
        let (status, body) = match behavior {
            Behavior::Busy => ("503 Busy", ""),
            Behavior::Absent => ("404 Absent", r#"{"odata.error":{"code":"ResourceNotFound"}}"#),
            Behavior::Silent => continue,
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A world with a fixed random number, in which every wait takes `wait` on its own clock and ends at
/// once.
struct FixedWorld {
    real: SystemWorld,
    random: u64,
    wait: Duration,
    slept: Mutex<Vec<Duration>>,
}

impl FixedWorld {
    fn new(random: u64, wait: Duration) -> Arc<Self> {
        Arc::new(Self { real: SystemWorld::new(), random, wait, slept: Mutex::default() })
    }

    fn slept(&self) -> Vec<Duration> {
        self.slept.lock().clone()
    }
}

#[async_trait]
impl WorldDecorator for FixedWorld {
    fn inner(&self) -> &dyn World {
        &self.real
    }

    fn uptime(&self) -> Duration {
        self.slept().iter().map(|_| self.wait).sum()
    }

    async fn sleep(&self, duration: Duration) {
        self.slept.lock().push(duration);
    }

    fn random(&self) -> u64 {
        self.random
    }
}

fn queue() -> QueueName {
    QueueName::of_partition("work", 0)
}

fn is_unavailable<T>(answer: &Result<T, StoreFault>) -> bool {
    matches!(answer, Err(StoreFault::Unavailable { .. }))
}

#[tokio::test]
async fn a_message_never_expires_and_times_are_rounded_up() {
    let server = RecordingServer::start(Behavior::Busy).await;
    let store = server.store(FixedWorld::new(0, Duration::from_secs(60))).await;
    let second_and_a_half = Duration::from_millis(1_500);
    assert!(is_unavailable(&store.queue.send(&queue(), b"{}", second_and_a_half).await));
    let sent = server.requests().remove(0);
    assert!(sent.contains("messagettl=2147483647"), "the service's own limit is 7 days: {sent}");
    assert!(sent.contains("visibilitytimeout=2"), "a delay must not be shortened: {sent}");
    assert!(is_unavailable(&store.queue.receive(&queue(), 32, second_and_a_half).await));
    let received = server.requests().pop().unwrap();
    assert!(received.contains("visibilitytimeout=2"), "a lease must not be shortened: {received}");
    assert!(received.contains("numofmessages=32"), "{received}");
}

#[tokio::test]
async fn pauses_are_drawn_from_zero_up() {
    let server = RecordingServer::start(Behavior::Busy).await;
    let world = FixedWorld::new(0, Duration::from_millis(1));
    let store = server.store(world.clone()).await;
    assert!(is_unavailable(&store.ledger.probe().await));
    let slept = world.slept();
    assert!(!slept.is_empty(), "requests to a busy service are repeated");
    assert!(slept.iter().all(Duration::is_zero), "full jitter begins at zero: {slept:?}");
    assert!(server.requests().len() <= 8, "attempts are limited, however short the waits");
}

#[tokio::test]
async fn no_attempt_starts_after_the_latest_start() {
    let server = RecordingServer::start(Behavior::Busy).await;
    let store = server.store(FixedWorld::new(7, Duration::from_secs(3))).await;
    assert!(is_unavailable(&store.ledger.probe().await));
    // At 0 and 3 seconds; 6 seconds is after the latest start.
    assert!(server.requests().len() <= 3, "{:?}", server.requests());
}

#[tokio::test]
async fn an_operation_ends_although_the_service_never_answers() {
    let server = RecordingServer::start(Behavior::Silent).await;
    let store = server.store(Arc::new(SystemWorld::new())).await;
    let probe = tokio::time::timeout(Duration::from_secs(30), store.ledger.probe()).await;
    assert!(is_unavailable(&probe.expect("the probe ends")));
}

#[tokio::test]
async fn connections_are_reused() {
    let server = RecordingServer::start(Behavior::Absent).await;
    let store = server.store(Arc::new(SystemWorld::new())).await;
    for _ in 0..20 {
        store.ledger.probe().await.unwrap();
    }
    assert_eq!(server.requests().len(), 20, "one request for one probe");
    assert_eq!(server.connections.load(Ordering::Relaxed), 1, "each new connection would cost a handshake");
}

#[tokio::test]
async fn the_number_of_concurrent_requests_to_the_storage_is_limited() {
    let listener = RecordingServer::start(Behavior::Silent).await;
    let store = listener.store(Arc::new(SystemWorld::new())).await;
    let name = QueueName::of_partition("work", 0);
    let requests = futures::future::join_all((0..200).map(|_| store.queue.backlog(&name)));
    let observed = async {
        let mut interval = tokio::time::interval(Duration::from_millis(10));
        while listener.requests().len() < 32 {
            interval.tick().await;
        }
        // None of them is answered, and none has reached its time limit yet.
        for _ in 0..50 {
            interval.tick().await;
            assert_eq!(listener.requests().len(), 32);
        }
    };
    let both = futures::future::select(Box::pin(requests), Box::pin(observed));
    let ended = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
    assert!(matches!(ended, futures::future::Either::Right(_)), "the requests were still waiting");
}

#[tokio::test]
async fn no_fault_shows_a_shared_access_signature() {
    let server = RecordingServer::start(Behavior::Silent).await;
    // A port on which nothing listens: the socket that had it is closed.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for port in [server.port, closed] {
        let url = format!("http://127.0.0.1:{port}/bank");
        let secret = "SharedAccessSignature=sv=2024-11-04&sig=c2VjcmV0";
        let text = format!("BlobEndpoint={url};QueueEndpoint={url};TableEndpoint={url};{secret}");
        let connection = AzureConnection::parse(&text).unwrap();
        let world = FixedWorld::new(0, Duration::from_secs(60));
        let store = azure::open(&AzureConfig::new(connection, "test".to_owned()), world).await.unwrap();
        let queue = QueueName::of_partition("work", 0);
        for fault in [store.ledger.probe().await.unwrap_err(), store.queue.backlog(&queue).await.unwrap_err()]
        {
            let texts = [chain(&fault), format!("{fault:?}")];
            assert!(texts[0].contains(&format!("127.0.0.1:{port}")), "the address is shown: {texts:#?}");
            assert!(texts.iter().all(|text| !text.contains("c2VjcmV0")), "{texts:#?}");
        }
    }
    assert!(
        server.requests().iter().all(|request| request.contains("sig=c2VjcmV0")),
        "{:#?}",
        server.requests()
    );
}
