//! Settings for TLS of the HTTP API and for client certificates.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::group::InvalidSetting;

/// TLS configuration. All files are PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate of the service, followed by the intermediate certificates up to a root that clients trust.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Client certificates; `None` if none are requested.
    pub clients: Option<TlsClients>,
}

/// Configuration of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsClients {
    /// The authorities that issue client certificates.
    pub authorities: PathBuf,
    /// Whether clients without a certificate are rejected.
    pub required: bool,
}

#[derive(Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsSettings {
    /// PEM file with the certificate of the HTTP API, followed by the intermediate certificates up to its root;
    /// enables HTTPS; by default plain HTTP is served
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate; both files are read again within seconds after they
    /// change
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// PEM file with the authorities that issue client certificates, which are then requested; by default none
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Whether clients must present a certificate issued by tls-client-ca, except at admin-bind: optional or required
    #[arg(long, value_name = "WHETHER", default_value = "optional")]
    tls_client_certificates: ClientCertificates,
}

#[derive(Clone, PartialEq, Eq, ValueEnum)]
enum ClientCertificates {
    Optional,
    Required,
}

/// The settings of this group, all of which its rules depend on.
const SETTINGS: &[&str] = &["tls-certificate", "tls-key", "tls-client-ca", "tls-client-certificates"];

impl TlsSettings {
    pub(super) fn config(self) -> Result<Option<TlsConfig>, InvalidSetting> {
        let needs_tls = "needs TLS: set tls-certificate and tls-key as well";
        let required = self.tls_client_certificates == ClientCertificates::Required;
        let refuse = |setting, allowed| Err(InvalidSetting::new(setting, SETTINGS, allowed));
        match (self.tls_certificate, self.tls_key, self.tls_client_ca) {
            (Some(_), None, _) => {
                refuse("tls-certificate", "needs tls-key as well: the private key of the certificate")
            }
            (None, Some(_), _) => {
                refuse("tls-key", "needs tls-certificate as well: the certificate of the key")
            }
            (None, None, Some(_)) => refuse("tls-client-ca", needs_tls),
            (None, None, None) if required => refuse("tls-client-certificates", needs_tls),
            (None, None, None) => Ok(None),
            (Some(_), Some(_), None) if required => refuse(
                "tls-client-certificates",
                "needs tls-client-ca as well: the authorities that issue the certificates",
            ),
            (Some(certificate), Some(key), authorities) => {
                let clients = authorities.map(|authorities| TlsClients { authorities, required });
                Ok(Some(TlsConfig { certificate, key, clients }))
            }
        }
    }
}
