//! The files of TLS: what is in them, and whether it can be served with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use postonce_shared::config::{TlsClients, TlsConfig};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest as _, Sha256};

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why files cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsFault {
    /// A file cannot be read.
    #[error("{setting} is {}, which cannot be read", path.display())]
    Unreadable {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file does not have in it what it must have.
    #[error("{setting} is {}, which cannot be used: {reason}", path.display())]
    Unusable {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// What the files have in them.
#[derive(Debug)]
pub(super) struct Content {
    certificate: Vec<u8>,
    key: Secret,
    authorities: Option<Vec<u8>>,
}

/// The bytes of a private key: never shown, and gone from memory afterwards.
struct Secret(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(not shown)")
    }
}

/// What connections are accepted with.
#[derive(Debug)]
pub(super) struct Material {
    pub(super) certificate: Arc<CertifiedKey>,
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

    /// Tells whether it changed, without keeping the key.
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
        let of_key = |reason: String| unusable("tls-key", &config.key, reason);
        let key = PrivateKeyDer::from_pem_slice(&self.key.0).map_err(|error| {
            let is_absent = matches!(error, pem::Error::NoItemsFound);
            let unread = || format!("its PEM cannot be read: {error}");
            of_key(if is_absent { "there is no private key in PEM form in it".to_owned() } else { unread() })
        })?;
        let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            if let rustls::Error::InvalidCertificate(reason) = &error {
                let reason = format!("it is no certificate: {reason}");
                return unusable("tls-certificate", &config.certificate, reason);
            }
            let is_another = matches!(error, rustls::Error::InconsistentKeys(_));
            let certificate = config.certificate.display();
            let another = || format!("it does not belong to the certificate in {certificate}");
            of_key(if is_another { another() } else { error.to_string() })
        })?;
        let clients = config.clients.as_ref().zip(self.authorities.as_deref());
        let clients = clients.map(|(clients, bytes)| verifier(clients, bytes, provider)).transpose()?;
        Ok(Material { certificate: Arc::new(certified), clients })
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

/// The certificates in a file, at least one.
fn certificates(
    setting: &'static str,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let found = found.map_err(|error| unusable(setting, path, format!("its PEM cannot be read: {error}")))?;
    if found.is_empty() {
        return Err(unusable(setting, path, "there is no certificate in PEM form in it".to_owned()));
    }
    Ok(found)
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsFault> {
    let fault = |source| TlsFault::Unreadable { setting, path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(fault)?.len();
    if length > FILE_BYTES_MAX {
        return Err(unusable(
            setting,
            path,
            format!("it has {length} bytes, and {FILE_BYTES_MAX} are allowed"),
        ));
    }
    std::fs::read(path).map_err(fault)
}

fn unusable(setting: &'static str, path: &Path, reason: String) -> TlsFault {
    TlsFault::Unusable { setting, path: path.to_owned(), reason }
}
