//! TLS 1.2 and 1.3 with the `ring` provider, passed explicitly: any library could install a process-wide default.
//!
//! The files are read at startup, where an invalid file stops the process. Then they are checked for changes every
//! few seconds, and at once on request, so new connections use a renewed certificate without a restart. Unusable new
//! files are logged and ignored. A process whose certificate has expired is not ready.

mod clients;
mod files;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use postonce_process::readiness::{Part, Readiness};
use postonce_shared::config::{TlsConfig, reload};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tracing::{info, warn};

use self::clients::CurrentClients;
use self::files::{Content, Material};
use crate::metrics::Metrics;

pub use self::files::TlsFault;

/// Interval between two checks of the files. New content is loaded only when two consecutive checks read the same,
/// because the first one may see a partly written file.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Remaining validity below which the log warns of the expiry.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// TLS configuration that follows the content of its files.
#[derive(Debug)]
pub struct Tls {
    config: TlsConfig,
    provider: Arc<CryptoProvider>,
    certificate: Arc<CurrentCertificate>,
    expires_at: Option<Timestamp>,
    /// The expiry for which a warning was logged.
    warned_of: Option<Timestamp>,
    clients: Option<Arc<CurrentClients>>,
    first: Content,
}

impl Tls {
    /// Reads and validates the files.
    ///
    /// # Errors
    /// [`TlsFault`] with the setting, the file and the reason.
    pub fn open(config: &TlsConfig) -> Result<Self, TlsFault> {
        let provider = Arc::new(ring::default_provider());
        let first = Content::read(config)?;
        let Material { certificate, expires_at, clients } = first.material(config, &provider)?;
        let certificate = Arc::new(CurrentCertificate(RwLock::new(certificate)));
        let clients = config.clients.as_ref().zip(clients);
        let clients =
            clients.map(|(asked, verifier)| Arc::new(CurrentClients::new(verifier, asked.required)));
        let config = config.clone();
        Ok(Self { config, provider, certificate, expires_at, warned_of: None, clients, first })
    }

    /// Builds the configuration of the listener for partners, who may need certificates.
    ///
    /// # Errors
    /// When the cryptography provider does not support the TLS versions, which is a build error of this program.
    pub fn for_partners(&self) -> Result<ServerConfig, rustls::Error> {
        self.server_config(self.clients.clone())
    }

    /// Builds the configuration of the listener for operators, who need no certificates.
    ///
    /// # Errors
    /// As [`Self::for_partners`].
    pub fn for_operators(&self) -> Result<ServerConfig, rustls::Error> {
        self.server_config(None)
    }

    fn server_config(&self, clients: Option<Arc<CurrentClients>>) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let builder = match clients {
            Some(clients) => builder.with_client_cert_verifier(clients),
            None => builder.with_no_client_auth(),
        };
        Ok(builder.with_cert_resolver(self.certificate.clone()))
    }

    /// Checks the files while the process runs, and loads new content. Reports the expiry to `readiness` and `metrics`.
    pub async fn watch(mut self, world: Arc<dyn World>, readiness: Arc<Readiness>, metrics: Arc<Metrics>) {
        let (mut served, mut refused) = (self.first.digest(), None);
        let mut seen = served;
        let mut requests = reload::requests();
        loop {
            self.check_expiry(world.now(), &readiness);
            metrics.certificate_expires(self.expires_at);
            // A reload is requested only when the files are complete, so it need not wait for a second check.
            let is_requested = requests.within(CHECK_INTERVAL, &*world).await;
            let config = self.config.clone();
            // Reads on a blocking thread, because the file system may be slow.
            let read = tokio::task::spawn_blocking(move || Content::read(&config)).await;
            let Ok(read) = read else { continue };
            let digest = read.as_ref().ok().map(Content::digest);
            let is_settled =
                std::mem::replace(&mut seen, digest.unwrap_or_default()) == digest.unwrap_or_default();
            if digest == Some(served) {
                refused = None;
            }
            let is_new = is_requested || is_settled && refused != Some(digest);
            if !is_new || digest == Some(served) {
                continue;
            }
            match read.and_then(|content| content.material(&self.config, &self.provider)) {
                Ok(material) => {
                    self.apply(material);
                    (served, refused) = (digest.unwrap_or_default(), None);
                    info!("Loaded the certificate in {}", self.config.certificate.display());
                }
                Err(fault) => {
                    warn!("TLS keeps its current certificate: {}", chain(&fault));
                    refused = Some(digest);
                }
            }
        }
    }

    fn check_expiry(&mut self, now: Timestamp, readiness: &Readiness) {
        if self.expires_at.is_some_and(|expires_at| expires_at <= now) {
            readiness.lose(Part::Certificate);
        } else {
            readiness.gain(Part::Certificate);
        }
        let soon = self.expires_at.filter(|expires_at| *expires_at <= now.after(EXPIRES_SOON));
        if let Some(expires_at) = soon
            && self.warned_of.replace(expires_at) != soon
        {
            warn!("The certificate in {} expires at {expires_at}", self.config.certificate.display());
        }
    }

    fn apply(&mut self, material: Material) {
        let Material { certificate, expires_at, clients } = material;
        *self.certificate.0.write() = certificate;
        self.expires_at = expires_at;
        if let Some((current, verifier)) = self.clients.as_ref().zip(clients) {
            current.replace(verifier);
        }
    }
}

#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}
