//! TLS in the process itself: TLS 1.2 and 1.3, with the cryptography of `ring`, chosen here and not by
//! whatever library of the process asks first.
//!
//! The files are read at the start, where anything wrong with them stops it, and looked at again every
//! few seconds: a renewed certificate serves the next connection, without a restart. New files that cannot
//! be used change nothing, and are told in the log.

mod clients;
mod files;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use postonce_shared::config::TlsConfig;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tracing::{info, warn};

use self::clients::CurrentClients;
use self::files::{Content, Material};

pub use self::files::TlsFault;

/// Between two looks at the files. New content is taken up when two looks have seen the same: it may be
/// half written at the first.
pub const LOOK_DELAY: Duration = Duration::from_secs(2);

/// What a process serves TLS with, as the files now are.
#[derive(Debug)]
pub struct Tls {
    config: TlsConfig,
    provider: Arc<CryptoProvider>,
    certificate: Arc<CurrentCertificate>,
    clients: Option<Arc<CurrentClients>>,
    /// What is served, and what was there to serve then.
    first: Content,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFault`], which names the setting, the file and what is wrong with it.
    pub fn open(config: &TlsConfig) -> Result<Self, TlsFault> {
        let provider = Arc::new(ring::default_provider());
        let first = Content::read(config)?;
        let Material { certificate, clients } = first.material(config, &provider)?;
        let certificate = Arc::new(CurrentCertificate(RwLock::new(certificate)));
        let clients = config.clients.as_ref().zip(clients);
        let clients =
            clients.map(|(asked, verifier)| Arc::new(CurrentClients::new(verifier, asked.required)));
        Ok(Self { config: config.clone(), provider, certificate, clients, first })
    }

    /// What a listener accepts connections with.
    ///
    /// # Errors
    /// When the cryptography does not know the versions of TLS: a mistake in how this program is built.
    pub fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let builder = match self.clients.clone() {
            Some(clients) => builder.with_client_cert_verifier(clients),
            None => builder.with_no_client_auth(),
        };
        Ok(builder.with_cert_resolver(self.certificate.clone()))
    }

    /// Looks at the files for as long as the process runs, and takes up what is new in them.
    pub async fn watch(self, world: Arc<dyn World>) {
        let (mut served, mut refused) = (self.first.digest(), None);
        let mut seen = served;
        loop {
            world.sleep(LOOK_DELAY).await;
            let config = self.config.clone();
            // Files may lie on something slow.
            let read = tokio::task::spawn_blocking(move || Content::read(&config)).await;
            let Ok(read) = read else { continue };
            let digest = read.as_ref().ok().map(Content::digest);
            let is_settled =
                std::mem::replace(&mut seen, digest.unwrap_or_default()) == digest.unwrap_or_default();
            if digest == Some(served) {
                refused = None;
            }
            if !is_settled || digest == Some(served) || refused == Some(digest) {
                continue;
            }
            match read.and_then(|content| content.material(&self.config, &self.provider)) {
                Ok(material) => {
                    self.take_up(material);
                    (served, refused) = (digest.unwrap_or_default(), None);
                    info!("Took up the certificate in {}", self.config.certificate.display());
                }
                Err(fault) => {
                    warn!("TLS goes on with what it had: {}", chain(&fault));
                    refused = Some(digest);
                }
            }
        }
    }

    fn take_up(&self, material: Material) {
        let Material { certificate, clients } = material;
        *self.certificate.0.write() = certificate;
        if let Some((current, verifier)) = self.clients.as_ref().zip(clients) {
            current.replace(verifier);
        }
    }
}

/// The certificate that new connections get.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}
