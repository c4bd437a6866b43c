//! The clients of a flood.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http2::{Requests, WINDOW_MAX, acknowledgement, beginning, empty_data};
use super::{Flood, Way};
use crate::wait;

/// Source address of the clients of a flood. Other clients use another one.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Number of requests sent on a connection of HTTP/1.1.
const PIPELINED: usize = 64;
/// Number of requests or frames sent at once.
const AT_ONCE: usize = 64;
/// Interval at which a client checks whether the flood is over.
const PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(20);

/// Target of a flood.
#[derive(Debug, Clone)]
pub struct Target {
    /// The address of the process.
    pub address: SocketAddr,
    /// The authority of the certificate of the process, in PEM.
    pub authority: String,
    /// The path of the requests.
    pub path: String,
    /// Additional header fields of the requests.
    pub fields: Vec<(&'static str, String)>,
}

/// Sends a flood until it is over, on a separate thread. Returns the number of bytes sent.
///
/// # Panics
/// When no thread can be started.
pub async fn flood(target: Target, flood: Flood, is_over: Arc<AtomicBool>) -> u64 {
    let flooding = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let clients = Arc::new(Clients::new(target, flood.way, is_over));
            let mut tasks = JoinSet::new();
            for _ in 0..flood.connections {
                tasks.spawn_local(Arc::clone(&clients).run());
            }
            while tasks.join_next().await.is_some() {}
            clients.sent.load(Ordering::Relaxed)
        })
    });
    flooding.await.expect("the clients do not panic")
}

struct Clients {
    target: Target,
    way: Way,
    connector: TlsConnector,
    is_over: Arc<AtomicBool>,
    sent: AtomicU64,
}

impl Clients {
    fn new(target: Target, way: Way, is_over: Arc<AtomicBool>) -> Self {
        let authority = CertificateDer::from_pem_slice(target.authority.as_bytes()).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(authority).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.expect("versions of TLS").with_root_certificates(roots).with_no_client_auth();
        let protocol: &[u8] = if way == Way::Http1 { b"http/1.1" } else { b"h2" };
        config.alpn_protocols = vec![protocol.to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        Self { target, way, connector, is_over, sent: AtomicU64::new(0) }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Opens connections one after the other.
    async fn run(self: Arc<Self>) {
        while !self.is_over() {
            // Failures are ignored: the flood continues.
            if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(10), self.connect()).await {
                match self.way {
                    Way::Http1 => self.over_http1(stream).await,
                    Way::Unread | Way::NoWindow | Way::Heads | Way::EmptyFrames => {
                        self.over_http2(stream).await;
                    }
                }
            }
            wait::pass(PAUSE).await;
        }
    }

    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(SOURCE, 0))?;
        let stream = socket.connect(self.target.address).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        self.connector.connect(name, stream).await
    }

    /// Sends bytes, and waits while the server does not read them. Returns whether the server accepted all of them.
    async fn send(&self, stream: &mut TlsStream<TcpStream>, bytes: &[u8], is_reading: bool) -> bool {
        let mut rest = bytes;
        let mut read = vec![0; if is_reading { 16 * 1024 } else { 0 }];
        while !rest.is_empty() && !self.is_over() {
            let written = if is_reading {
                let (mut reader, mut writer) = tokio::io::split(&mut *stream);
                tokio::select! {
                    written = writer.write(rest) => Some(written),
                    read = reader.read(&mut read) => if matches!(read, Ok(1..)) { None } else { return false },
                    () = wait::pass(PATIENCE) => None,
                }
            } else {
                tokio::time::timeout(PATIENCE, stream.write(rest)).await.ok()
            };
            match written {
                Some(Ok(count)) if count > 0 => {
                    self.sent.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
                    rest = rest.get(count..).unwrap_or_default();
                }
                Some(Ok(_) | Err(_)) => return false,
                None => {}
            }
        }
        !self.is_over()
    }

    async fn over_http1(&self, mut stream: TlsStream<TcpStream>) {
        let fields = self.target.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let fields: String = fields.collect();
        let request = format!("GET {} HTTP/1.1\r\nhost: bank\r\n{fields}\r\n", self.target.path);
        if !self.send(&mut stream, request.repeat(PIPELINED).as_bytes(), false).await
            || stream.flush().await.is_err()
        {
            return;
        }
        self.until_closed(&stream).await;
    }

    async fn over_http2(&self, mut stream: TlsStream<TcpStream>) {
        let window = if self.way == Way::NoWindow { 0 } else { WINDOW_MAX };
        let is_reading = matches!(self.way, Way::NoWindow | Way::EmptyFrames);
        let method = if self.way == Way::Heads { "HEAD" } else { "GET" };
        let fields: Vec<_> = self.target.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut requests = Requests::new(method, &self.target.path, &fields);
        let begin = [beginning(window), acknowledgement()].concat();
        if !self.send(&mut stream, &begin, is_reading).await {
            return;
        }
        let has_body = self.way == Way::EmptyFrames;
        let (begun, body) = requests.next(has_body);
        if !self.send(&mut stream, &begun, is_reading).await {
            return;
        }
        loop {
            let next = |_| if has_body { empty_data(body) } else { requests.next(false).0 };
            let block: Vec<u8> = (0..AT_ONCE).flat_map(next).collect();
            if !self.send(&mut stream, &block, is_reading).await {
                return;
            }
        }
    }

    /// Waits until the server closes the connection, without reading from it.
    async fn until_closed(&self, stream: &TlsStream<TcpStream>) {
        let (socket, _) = stream.get_ref();
        while !self.is_over() && !matches!(socket.take_error(), Ok(Some(_)) | Err(_)) {
            wait::pass(PATIENCE).await;
        }
    }
}
