//! Reading and validation of the TLS files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use postonce_shared::config::{TlsClients, TlsConfig};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::files::read_regular;
use postonce_shared::text;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest as _, Sha256};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reason for a file whose PEM cannot be parsed.
const NO_PEM: &str =
    "its PEM cannot be read: it must have a line with BEGIN, lines of base64, and a line with END";

/// Reason why a TLS file is not usable.
#[derive(Debug, thiserror::Error)]
pub enum TlsFault {
    /// A file cannot be read.
    #[error("{setting} is {}, which cannot be read", path.display())]
    Unreadable {
        /// The setting that contains the path.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The content of a file is not valid.
    #[error("{setting} is {}, which cannot be used: {reason}", path.display())]
    Unusable {
        /// The setting that contains the path.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The problem with the content.
        reason: String,
    },
}

/// Raw content of the TLS files.
#[derive(Debug)]
pub(super) struct Content {
    certificate: Vec<u8>,
    key: Secret,
    authorities: Option<Vec<u8>>,
}

/// Bytes of a private key. They are never printed, and they are erased from memory after use.
struct Secret(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Parsed certificate, key and client verifier of a listener.
#[derive(Debug)]
pub(super) struct Material {
    pub(super) certificate: Arc<CertifiedKey>,
    /// Expiry of the server certificate, not of its authorities; `None` if it cannot be read.
    pub(super) expires_at: Option<Timestamp>,
    pub(super) clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl Content {
    pub(super) fn read(config: &TlsConfig) -> Result<Self, TlsFault> {
        let TlsConfig { certificate, key, clients } = config;
        let authorities = clients.as_ref().map(|clients| read("tls-client-ca", &clients.authorities));
        Ok(Self {
            certificate: read("tls-certificate", certificate)?,
            key: Secret(Zeroizing::new(read("tls-key", key)?)),
            authorities: authorities.transpose()?,
        })
    }

    /// Returns a digest of the content, to detect changes without keeping a copy of the key.
    pub(super) fn digest(&self) -> [u8; 32] {
        let Self { certificate, key, authorities } = self;
        let parts = [certificate.as_slice(), &key.0, authorities.as_deref().unwrap_or_default()];
        let mut whole = Sha256::new();
        for part in parts {
            whole.update(Sha256::digest(part));
        }
        whole.finalize().into()
    }

    pub(super) fn material(
        &self,
        config: &TlsConfig,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Material, TlsFault> {
        let chain = certificates("tls-certificate", &config.certificate, &self.certificate)?;
        // The first certificate is that of the server. Clients ignore the others unless they need them.
        let expires_at = chain.first().and_then(expiry);
        let of_key = |reason: String| unusable("tls-key", &config.key, reason);
        let key = PrivateKeyDer::from_pem_slice(&self.key.0).map_err(|error| {
            let is_absent = matches!(error, pem::Error::NoItemsFound);
            // Omits the parser's error, which quotes a line of the file: the whole key, if its line ends were lost.
            of_key(if is_absent { "it contains no private key in PEM form" } else { NO_PEM }.to_owned())
        })?;
        let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            if let rustls::Error::InvalidCertificate(reason) = &error {
                let reason = format!("it is not a valid certificate: {reason}");
                return unusable("tls-certificate", &config.certificate, reason);
            }
            let is_another = matches!(error, rustls::Error::InconsistentKeys(_));
            let certificate = config.certificate.display();
            let another = || format!("it does not belong to the certificate in {certificate}");
            of_key(if is_another { another() } else { error.to_string() })
        })?;
        let clients = config.clients.as_ref().zip(self.authorities.as_deref());
        let clients = clients.map(|(clients, bytes)| verifier(clients, bytes, provider)).transpose()?;
        Ok(Material { certificate: Arc::new(certified), expires_at, clients })
    }
}

fn verifier(
    clients: &TlsClients,
    bytes: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsFault> {
    let (setting, path) = ("tls-client-ca", &clients.authorities);
    let mut roots = RootCertStore::empty();
    for authority in certificates(setting, path, bytes)? {
        roots.add(authority).map_err(|error| unusable(setting, path, format!("{error}")))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| unusable(setting, path, format!("{error}")))
}

/// Returns when a certificate expires (RFC 5280, section 4.1.2.5).
fn expiry(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let parsed = Certificate::from_der(certificate).ok()?;
    let not_after = parsed.tbs_certificate().validity().not_after.to_unix_duration();
    Some(Timestamp::from_unix_ms(i64::try_from(not_after.as_millis()).ok()?))
}

/// Parses the certificates of a file. At least one is required.
fn certificates(
    setting: &'static str,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    // Omits the parser's error here, too: it quotes a line, and a key may be in the file by mistake.
    let found = found.map_err(|_| unusable(setting, path, NO_PEM.to_owned()))?;
    if found.is_empty() {
        return Err(unusable(setting, path, "it contains no certificate in PEM form".to_owned()));
    }
    Ok(found)
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsFault> {
    let fault = |source| TlsFault::Unreadable { setting, path: path.to_owned(), source };
    // Only regular files are allowed, because the file is read again while the service runs.
    let mut content = read_regular(path, FILE_BYTES_MAX).map_err(fault)?;
    if content.starts_with(text::MARK) {
        // Removes the mark in place, because a copy of a key would not be erased.
        content.drain(..text::MARK.len());
    }
    Ok(content)
}

fn unusable(setting: &'static str, path: &Path, reason: String) -> TlsFault {
    TlsFault::Unusable { setting, path: path.to_owned(), reason }
}
