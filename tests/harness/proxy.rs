//! A forwarder of bytes in front of one service, which a test can take away and bring back: Azurite
//! itself never refuses, never stalls and never loses an answer.
//!
//! It forwards bytes and not requests, so that signatures stay valid. It runs on threads of its own
//! and does not depend on the runtime of the test.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What is forwarded at once.
const BUFFER_BYTES: usize = 16 << 10;

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Bytes go both ways.
    Forward,
    /// The service is away: connections are closed at once, those that were open as well.
    Refuse,
    /// Requests arrive and are done, but instead of the answer the connection closes: the outcome
    /// is unclear to whoever asked.
    LoseAnswers,
}

/// A running proxy. It ends with its owner.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    carried: Arc<AtomicU64>,
    mode: watch::Sender<Mode>,
    listener: JoinHandle<()>,
}

impl Proxy {
    /// A proxy on a free loopback port, in front of a loopback port.
    pub fn before(port: u16) -> Self {
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let (mode, watched) = watch::channel(Mode::Forward);
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port on loopback");
        listener.set_nonblocking(true).expect("a listener can be made to not block");
        let address = listener.local_addr().expect("a listener has an address");
        let listener = {
            let _entered = runtime().enter();
            TcpListener::from_std(listener).expect("a listener for the runtime")
        };
        let carried: Arc<AtomicU64> = Arc::default();
        let listener = runtime().spawn(serve(listener, target, watched, Arc::clone(&carried)));
        Self { address, carried, mode, listener }
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// The bytes that it forwarded so far, both ways.
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    /// Changes what becomes of connections, those that are open included.
    pub fn switch(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// One thread forwards for all proxies of the test process.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
            .expect("a runtime for the proxies")
    })
}

async fn serve(
    listener: TcpListener,
    target: SocketAddr,
    mode: watch::Receiver<Mode>,
    carried: Arc<AtomicU64>,
) {
    loop {
        // A listener on loopback fails only when the process runs out of files; the test shows it.
        let Ok((client, _)) = listener.accept().await else { return };
        drop(runtime().spawn(carry(client, target, mode.clone(), Arc::clone(&carried))));
    }
}

async fn carry(
    client: TcpStream,
    target: SocketAddr,
    mut mode: watch::Receiver<Mode>,
    carried: Arc<AtomicU64>,
) {
    let current = *mode.borrow_and_update();
    match current {
        Mode::Refuse => {}
        Mode::Forward => {
            let Ok(server) = TcpStream::connect(target).await else { return };
            drop((client.set_nodelay(true), server.set_nodelay(true)));
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let both = futures::future::join(
                forward(from_client, to_server, &carried),
                forward(from_server, to_client, &carried),
            );
            // Whoever is connected when the mode changes is cut off.
            tokio::select! {
                _ = both => {}
                _ = mode.changed() => {}
            }
        }
        Mode::LoseAnswers => {
            let Ok(mut server) = TcpStream::connect(target).await else { return };
            let (mut from_client, _to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.split();
            let mut first = [0; 1];
            // The first byte of the answer tells that the request was done.
            tokio::select! {
                _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                _ = from_server.read(&mut first) => {}
                _ = mode.changed() => {}
            }
            drop(to_server.shutdown().await);
        }
    }
}

/// Forwards one way and counts, until one of the two ends.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, carried: &AtomicU64) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(count) = from.read(&mut buffer).await {
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() || to.write_all(bytes).await.is_err() {
            break;
        }
        carried.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
    }
    drop(to.shutdown().await);
}
