//! Where a web process listens: for partners, over TLS if that is configured, and at a second address for
//! the other processes of the bank, which call each other over plain HTTP with signatures of their own. One
//! address serves both only where `internal-on-bind` asks for that.

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

/// The bound addresses, and what is spoken there.
pub struct HttpServers {
    partners: Bound,
    /// `None` where the other processes call at the address for partners.
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
            .with_context(|| format!("cannot listen on {address}, which is {setting}"))?;
        let address = listener.local_addr().context("the listening address cannot be read")?;
        Ok(Self { listener, address })
    }
}

impl HttpServers {
    /// Takes the addresses, and reads the files of TLS. Nothing is accepted yet.
    ///
    /// # Errors
    /// When an address is taken, or the files cannot be used.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let tls = config.tls.as_ref().map(Tls::open).transpose()?;
        let partners = Bound::at("bind", config.bind)?;
        let of_their_own = || Bound::at("worker-bind", config.worker_bind);
        let peers = (!config.internal_on_bind).then(of_their_own).transpose()?;
        Ok(Self { partners, peers, tls })
    }

    /// Where the other processes of the bank reach this one.
    pub fn for_peers(&self) -> SocketAddr {
        self.peers.as_ref().unwrap_or(&self.partners).address
    }

    /// Starts to serve.
    ///
    /// # Errors
    /// When an address cannot be listened on.
    pub fn serve(self, app: App) -> anyhow::Result<Serving> {
        let Self { partners, peers, tls } = self;
        let app = App { serves_peers: peers.is_none(), ..app };
        let world = Arc::clone(&app.world);
        let callee = Arc::clone(&app.callee);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let config = tls.as_ref().map(Tls::server_config).transpose().context("TLS cannot be served")?;
        let to_partners = serve(app, partners.listener, config).context("the server cannot be started")?;
        info!("listening on {scheme}://{}", partners.address);
        let to_peers = peers.map(|peers| {
            let server = serve_peers((*callee).clone(), peers.listener);
            info!("Other processes of the bank call at http://{}", peers.address);
            server
        });
        let to_peers = to_peers.transpose().context("the server for other processes cannot be started")?;
        if let Some(tls) = tls {
            world.spawn(tls.watch(Arc::clone(&world)).boxed());
        }
        Ok(Serving { to_partners, to_peers })
    }
}

/// The servers at work.
pub struct Serving {
    to_partners: Server,
    to_peers: Option<Server>,
}

impl Serving {
    /// Stops the server for partners; the other one ends when that has ended.
    pub fn handle(&self) -> ServerHandle {
        self.to_partners.handle()
    }

    /// Returns when both have ended.
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
                // Rings and replies are lost, which only costs time: partners are still served.
                error!("Other processes cannot call any more: {}", chain(&failure));
            }
        };
        join(partners, peers).await.0
    }
}
