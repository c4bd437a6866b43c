//! Listening addresses of a web process. One serves partners, over TLS if that is configured. The second one
//! serves the other processes of the bank, which use plain HTTP with signatures of their own. A single address
//! serves both only with the setting `internal-on-bind`.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actix_web::dev::{Server, ServerHandle};
use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::join;
use postonce_shared::config::Config;
use postonce_shared::ports::fault::chain;
use postonce_worker::http::serve_peers;
use tracing::{error, info};

use crate::edge::tls::Tls;
use crate::server::{App, serve};

/// Bound addresses and the TLS configuration.
pub struct HttpServers {
    partners: Bound,
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
        let separate = || Bound::at("worker-bind", config.worker_bind);
        let peers = (!config.internal_on_bind).then(separate).transpose()?;
        Ok(Self { partners, peers, tls })
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
        let Self { partners, peers, tls } = self;
        let app = App { serves_peers: peers.is_none(), ..app };
        let world = Arc::clone(&app.world);
        let callee = Arc::clone(&app.callee);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let config = tls.as_ref().map(Tls::server_config).transpose().context("TLS cannot be configured")?;
        let to_partners = serve(app, partners.listener, config).context("the server cannot be started")?;
        info!("listening on {scheme}://{}", partners.address);
        let to_peers = peers.map(|peers| {
            let server = serve_peers((*callee).clone(), peers.listener);
            info!("Listening for other processes of the bank on http://{}", peers.address);
            server
        });
        let to_peers = to_peers.transpose().context("the server for other processes cannot be started")?;
        if let Some(tls) = tls {
            world.spawn(tls.watch(Arc::clone(&world)).boxed());
        }
        Ok(Serving { to_partners, to_peers })
    }
}

/// The running servers.
pub struct Serving {
    to_partners: Server,
    to_peers: Option<Server>,
}

impl Serving {
    /// Returns the handle of the server for partners. The server for other processes stops after it.
    pub fn handle(&self) -> ServerHandle {
        self.to_partners.handle()
    }

    /// Waits until both servers have stopped.
    ///
    /// # Errors
    /// When the server for partners fails.
    pub async fn until_ended(self) -> std::io::Result<()> {
        let Self { to_partners, to_peers } = self;
        let Some(to_peers) = to_peers else { return to_partners.await };
        let handle = to_peers.handle();
        let partners = async {
            let served = to_partners.await;
            handle.stop(true).await;
            served
        };
        let peers = async {
            if let Err(failure) = to_peers.await {
                // Doorbell signals and replies are lost, which only adds latency: partners are still served.
                error!("The server for other processes of the bank failed: {}", chain(&failure));
            }
        };
        join(partners, peers).await.0
    }
}
