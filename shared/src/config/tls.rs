//! Whether the HTTP API is served over TLS, with what, and whether clients have to show a certificate.

use std::path::PathBuf;

use super::ConfigError;
use super::scaling::Find;
use super::sources::Found;

/// What a process needs to serve TLS. The files are PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate of the service, and after it those that lead to a root that clients trust.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Whose certificates clients may show; without it they are not asked for any.
    pub clients: Option<TlsClients>,
}

/// What is asked of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsClients {
    /// The authorities that issue their certificates.
    pub authorities: PathBuf,
    /// Whether one without a certificate is refused.
    pub required: bool,
}

/// Reads the settings of TLS.
pub(super) fn tls(find: Find<'_>) -> Result<Option<TlsConfig>, ConfigError> {
    let (certificate, key) = (find("tls-certificate"), find("tls-key"));
    let (authorities, clients) = (find("tls-client-ca"), find("tls-client-certificates"));
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (file(&certificate)?, file(&key)?),
        (Some(alone), None) => {
            return Err(alone.refuse("needs tls-key as well: the private key of the certificate"));
        }
        (None, Some(alone)) => {
            return Err(alone.refuse("needs tls-certificate as well: the certificate of the key"));
        }
        (None, None) => return if_no_tls(authorities, clients).map(|()| None),
    };
    let required = clients.as_ref().map_or(Ok(false), required)?;
    let clients = match (authorities, clients) {
        (Some(authorities), _) => Some(TlsClients { authorities: file(&authorities)?, required }),
        (None, Some(clients)) if required => {
            return Err(
                clients.refuse("needs tls-client-ca as well: the authorities that issue the certificates")
            );
        }
        (None, _) => None,
    };
    Ok(Some(TlsConfig { certificate, key, clients }))
}

/// Whoever asks for client certificates means TLS: a service without it would be a surprise.
fn if_no_tls(authorities: Option<Found>, clients: Option<Found>) -> Result<(), ConfigError> {
    let wanted = match (authorities, clients) {
        (Some(authorities), _) => Some(authorities),
        (None, Some(clients)) => required(&clients)?.then_some(clients),
        (None, None) => None,
    };
    wanted.map_or(Ok(()), |found| Err(found.refuse("needs TLS: set tls-certificate and tls-key as well")))
}

fn required(found: &Found) -> Result<bool, ConfigError> {
    match found.value.as_str() {
        "optional" => Ok(false),
        "required" => Ok(true),
        _ => Err(found.refuse("must be optional or required")),
    }
}

fn file(found: &Found) -> Result<PathBuf, ConfigError> {
    if found.value.is_empty() {
        return Err(found.refuse("must be the path of a PEM file"));
    }
    Ok(PathBuf::from(&found.value))
}
