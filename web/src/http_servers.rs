//! Listening addresses of a web process. The first address serves partners, over TLS if that is configured. The second one
//! serves the other processes of the bank, over plain HTTP with signed requests. One address serves both only with the
//! setting `internal-on-bind`. Operators and monitoring can have a third address, with the TLS of partners
//! but without client certificates.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actix_web::dev::{Server, ServerHandle};
use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{join, join_all};
use postonce_process::http::serve_peers;
use postonce_shared::config::Config;
use postonce_shared::ports::fault::chain;
use rustls::ServerConfig;
use tracing::{error, info};

use crate::api::surface::Surface;
use crate::edge::tls::Tls;
use crate::server::{App, serve};

/// Bound addresses and the TLS configuration.
pub struct HttpServers {
    partners: Bound,
    /// `None` when operators use the address for partners.
    operators: Option<Bound>,
    /// `None` when other processes use the address for partners.
    peers: Option<Bound>,
    tls: Option<Tls>,
}

struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    fn at(setting: &str, address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address}, which is the setting {setting}"))?;
        let address = listener.local_addr().context("the listening address cannot be read")?;
        Ok(Self { listener, address })
    }
}

impl HttpServers {
    /// Binds the addresses and reads the TLS files. No connection is accepted yet.
    ///
    /// # Errors
    /// When an address is already in use, or a TLS file is not usable.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let tls = config.tls.as_ref().map(Tls::open).transpose()?;
        let partners = Bound::at("bind", config.bind)?;
        let operators = config.admin_bind.map(|address| Bound::at("admin-bind", address)).transpose()?;
        let separate = || Bound::at("worker-bind", config.worker_bind);
        let peers = (!config.internal_on_bind).then(separate).transpose()?;
        Ok(Self { partners, operators, peers, tls })
    }

    /// Returns the address at which the other processes of the bank reach this one.
    pub fn peer_address(&self) -> SocketAddr {
        self.peers.as_ref().unwrap_or(&self.partners).address
    }

    /// Starts the servers.
    ///
    /// # Errors
    /// When a listener or TLS is not usable.
    pub fn serve(self, app: App) -> anyhow::Result<Serving> {
        let Self { partners, operators, peers, tls } = self;
        let surface = if operators.is_some() { Surface::Partners } else { Surface::Everything };
        let app = App { serves_peers: peers.is_none(), surface, ..app };
        let world = Arc::clone(&app.world);
        let (readiness, metrics) = (Arc::clone(&app.readiness), Arc::clone(&app.metrics));
        let callee = Arc::clone(&app.callee);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let configured = |config: fn(&Tls) -> Result<ServerConfig, rustls::Error>| {
            tls.as_ref().map(config).transpose().context("TLS cannot be configured")
        };
        let to_operators = operators.map(|operators| -> anyhow::Result<Server> {
            let app = App { serves_peers: false, surface: Surface::Operators, ..app.clone() };
            let server = serve(app, operators.listener, configured(Tls::for_operators)?)
                .context("the server for operators cannot be started")?;
            info!("Listening for operators on {scheme}://{}", operators.address);
            Ok(server)
        });
        let to_operators = to_operators.transpose()?;
        let config = configured(Tls::for_partners)?;
        let to_partners = serve(app, partners.listener, config).context("the server cannot be started")?;
        info!("listening on {scheme}://{}", partners.address);
        let to_peers = peers.map(|peers| {
            let server = serve_peers((*callee).clone(), peers.listener);
            info!("Listening for other processes of the bank on http://{}", peers.address);
            server
        });
        let to_peers = to_peers.transpose().context("the server for other processes cannot be started")?;
        if let Some(tls) = tls {
            world.spawn(tls.watch(Arc::clone(&world), readiness, metrics).boxed());
        }
        Ok(Serving { to_partners, others: to_operators.into_iter().chain(to_peers).collect() })
    }
}

/// The running HTTP servers.
pub struct Serving {
    to_partners: Server,
    /// The servers for operators and for other processes.
    others: Vec<Server>,
}

impl Serving {
    /// Returns the handle of the server for partners. The other servers stop when it has stopped.
    pub fn handle(&self) -> ServerHandle {
        self.to_partners.handle()
    }

    /// Waits until all servers have stopped.
    ///
    /// # Errors
    /// When the server for partners fails.
    pub async fn until_ended(self) -> std::io::Result<()> {
        let Self { to_partners, others } = self;
        let handles: Vec<ServerHandle> = others.iter().map(Server::handle).collect();
        let partners = async {
            let served = to_partners.await;
            join_all(handles.iter().map(|handle| handle.stop(true))).await;
            served
        };
        let others = others.into_iter().map(async |server| {
            if let Err(failure) = server.await {
                // Partners are still served. Without doorbell signals and replies, requests only take longer.
                error!("The server for operators or other processes of the bank failed: {}", chain(&failure));
            }
        });
        join(partners, join_all(others)).await.0
    }
}
