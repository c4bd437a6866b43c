//! What the Azure adapter sends, and how long it goes on: asked of a server that only listens.
#![expect(clippy::unwrap_used, reason = "test code")]
#![expect(clippy::disallowed_methods, reason = "the server runs beside the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::World;
use postonce_shared::testing::decorators::WorldDecorator;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with every request.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Says that it is busy.
    Busy,
    /// Says that the row is not there.
    Absent,
    /// Says nothing, for ever.
    Silent,
}

/// A server that remembers what it was asked.
struct Listener {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicU64>,
}

impl Listener {
    async fn start(manner: Manner) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let (requests, connections) = (Arc::default(), Arc::<AtomicU64>::default());
        let this = Self { port, requests: Arc::clone(&requests), connections: Arc::clone(&connections) };
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                drop(tokio::spawn(serve(stream, manner, Arc::clone(&requests))));
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
        azure::open(&AzureConfig { connection, prefix: "test".to_owned() }, world).await.unwrap()
    }

    /// The first lines of all requests so far.
    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

async fn serve(mut stream: TcpStream, manner: Manner, requests: Arc<Mutex<Vec<String>>>) {
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
        let (status, body) = match manner {
            Manner::Busy => ("503 Busy", ""),
            Manner::Absent => ("404 Absent", r#"{"odata.error":{"code":"ResourceNotFound"}}"#),
            Manner::Silent => continue,
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A world of which the test knows the randomness, and in which every wait takes `wait`, on its own
/// clock only.
struct KnownWorld {
    real: SystemWorld,
    random: u64,
    wait: Duration,
    slept: Mutex<Vec<Duration>>,
}

impl KnownWorld {
    fn new(random: u64, wait: Duration) -> Arc<Self> {
        Arc::new(Self { real: SystemWorld::new(), random, wait, slept: Mutex::default() })
    }

    fn slept(&self) -> Vec<Duration> {
        self.slept.lock().clone()
    }
}

#[async_trait]
impl WorldDecorator for KnownWorld {
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

fn is_away<T>(answer: &Result<T, StoreFault>) -> bool {
    matches!(answer, Err(StoreFault::Unavailable { .. }))
}

#[tokio::test]
async fn a_message_never_expires_and_times_are_rounded_up() {
    let server = Listener::start(Manner::Busy).await;
    let store = server.store(KnownWorld::new(0, Duration::from_secs(60))).await;
    let second_and_a_half = Duration::from_millis(1_500);
    assert!(is_away(&store.queue.send(&queue(), b"{}", second_and_a_half).await));
    let sent = server.requests().remove(0);
    assert!(sent.contains("messagettl=2147483647"), "the service's own limit is 7 days: {sent}");
    assert!(sent.contains("visibilitytimeout=2"), "a delay must not be shortened: {sent}");
    assert!(is_away(&store.queue.receive(&queue(), 32, second_and_a_half).await));
    let received = server.requests().pop().unwrap();
    assert!(received.contains("visibilitytimeout=2"), "a lease must not be shortened: {received}");
    assert!(received.contains("numofmessages=32"), "{received}");
}

#[tokio::test]
async fn pauses_are_drawn_from_zero_on() {
    let server = Listener::start(Manner::Busy).await;
    let world = KnownWorld::new(0, Duration::from_millis(1));
    let store = server.store(world.clone()).await;
    assert!(is_away(&store.ledger.probe().await));
    let slept = world.slept();
    assert!(!slept.is_empty(), "a busy service is asked again");
    assert!(slept.iter().all(Duration::is_zero), "full jitter begins at zero: {slept:?}");
    assert!(server.requests().len() <= 8, "however short the waits, attempts are few");
}

#[tokio::test]
async fn no_attempt_starts_late() {
    let server = Listener::start(Manner::Busy).await;
    let store = server.store(KnownWorld::new(7, Duration::from_secs(3))).await;
    assert!(is_away(&store.ledger.probe().await));
    // At 0 and 3 seconds; 6 seconds is after the latest start.
    assert!(server.requests().len() <= 3, "{:?}", server.requests());
}

#[tokio::test]
async fn a_service_that_never_answers_is_given_up() {
    let server = Listener::start(Manner::Silent).await;
    let store = server.store(Arc::new(SystemWorld::new())).await;
    let probe = tokio::time::timeout(Duration::from_secs(30), store.ledger.probe()).await;
    assert!(is_away(&probe.expect("the probe waits for ever")));
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let server = Listener::start(Manner::Absent).await;
    let store = server.store(Arc::new(SystemWorld::new())).await;
    for _ in 0..20 {
        store.ledger.probe().await.unwrap();
    }
    assert_eq!(server.requests().len(), 20, "one request for one probe");
    assert_eq!(
        server.connections.load(Ordering::Relaxed),
        1,
        "a handshake for each costs more than the rest"
    );
}

#[tokio::test]
async fn a_crowd_of_requests_waits_outside_of_the_storage() {
    let listener = Listener::start(Manner::Silent).await;
    let store = listener.store(Arc::new(SystemWorld::new())).await;
    let name = QueueName::of_partition("work", 0);
    let crowd = futures::future::join_all((0..200).map(|_| store.queue.backlog(&name)));
    let watching = async {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        while listener.requests().len() < 32 {
            looks.tick().await;
        }
        // None of them was answered, and none has run out of time yet.
        for _ in 0..50 {
            looks.tick().await;
            assert_eq!(listener.requests().len(), 32);
        }
    };
    let both = futures::future::select(Box::pin(crowd), Box::pin(watching));
    let ended = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
    assert!(matches!(ended, futures::future::Either::Right(_)), "the watch ends first");
}
