//! A forwarder of bytes in front of one service, which a test can take away and bring back: Azurite
//! itself never refuses, never stalls and never loses an answer.
//!
//! It forwards bytes and not requests, so that signatures stay valid. It runs on threads of its own
//! and does not depend on the runtime of the test.

use std::net::SocketAddr;
use std::sync::OnceLock;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

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
        let listener = runtime().spawn(serve(listener, target, watched));
        Self { address, mode, listener }
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.address.port()
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

async fn serve(listener: TcpListener, target: SocketAddr, mode: watch::Receiver<Mode>) {
    loop {
        // A listener on loopback fails only when the process runs out of files; the test shows it.
        let Ok((client, _)) = listener.accept().await else { return };
        drop(runtime().spawn(carry(client, target, mode.clone())));
    }
}

async fn carry(client: TcpStream, target: SocketAddr, mut mode: watch::Receiver<Mode>) {
    let current = *mode.borrow_and_update();
    match current {
        Mode::Refuse => {}
        Mode::Forward => {
            let Ok(server) = TcpStream::connect(target).await else { return };
            drop((client.set_nodelay(true), server.set_nodelay(true)));
            let (mut client, mut server) = (client, server);
            // Whoever is connected when the mode changes is cut off.
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
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
