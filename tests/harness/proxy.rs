//! A proxy that forwards bytes to a service, and that a test can switch off and on. Azurite itself never refuses, stalls or
//! loses a response.
//!
//! The proxy forwards bytes rather than requests, so signatures remain valid. It runs on its own threads, independent of the
//! runtime of the test.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const BUFFER_BYTES: usize = 16 << 10;

/// How the proxy handles connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forwards bytes in both directions.
    Forward,
    /// Closes all connections, including open ones.
    Refuse,
    /// Forwards requests, and closes the connection instead of returning the response, so the client does not know the outcome.
    LoseAnswers,
}

/// A running proxy. It stops when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    forwarded_bytes: Arc<AtomicU64>,
    mode: watch::Sender<Mode>,
    listener: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy on a free loopback port, in front of a loopback port.
    pub fn before(port: u16) -> Self {
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let (mode, watched) = watch::channel(Mode::Forward);
        let (listener, address) = listen();
        let forwarded_bytes: Arc<AtomicU64> = Arc::default();
        let listener = runtime().spawn(serve(listener, target, watched, Arc::clone(&forwarded_bytes)));
        Self { address, forwarded_bytes, mode, listener }
    }

    /// Returns the port on which it listens.
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of bytes forwarded so far in both directions.
    pub fn forwarded_bytes(&self) -> u64 {
        self.forwarded_bytes.load(Ordering::Relaxed)
    }

    /// Changes the handling of all connections, including open ones.
    pub fn switch(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Returns the runtime of all proxies of the test process, with one thread.
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

/// Listens on a free loopback port, in the runtime of the proxies.
pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port on loopback");
    listener.set_nonblocking(true).expect("a listener can be made to not block");
    let address = listener.local_addr().expect("a listener has an address");
    let _entered = runtime().enter();
    (TcpListener::from_std(listener).expect("a listener for the runtime"), address)
}

async fn serve(
    listener: TcpListener,
    target: SocketAddr,
    mode: watch::Receiver<Mode>,
    forwarded_bytes: Arc<AtomicU64>,
) {
    loop {
        // A loopback listener fails only when the process has no file descriptors left, which makes the test fail.
        let Ok((client, _)) = listener.accept().await else { return };
        drop(runtime().spawn(relay(client, target, mode.clone(), Arc::clone(&forwarded_bytes))));
    }
}

async fn relay(
    client: TcpStream,
    target: SocketAddr,
    mut mode: watch::Receiver<Mode>,
    forwarded_bytes: Arc<AtomicU64>,
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
                forward(from_client, to_server, &forwarded_bytes),
                forward(from_server, to_client, &forwarded_bytes),
            );
            // A change of the mode closes open connections.
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
            // The first byte of the response shows that the request was executed.
            tokio::select! {
                _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                _ = from_server.read(&mut first) => {}
                _ = mode.changed() => {}
            }
            drop(to_server.shutdown().await);
        }
    }
}

/// Forwards and counts bytes in one direction until either side closes.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, forwarded_bytes: &AtomicU64) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(count) = from.read(&mut buffer).await {
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() || to.write_all(bytes).await.is_err() {
            break;
        }
        forwarded_bytes.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
    }
    drop(to.shutdown().await);
}
