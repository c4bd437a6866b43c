//! What the values of settings must look like. Each function refuses a value with what is allowed.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use secrecy::SecretString;

use super::sources::Found;
use super::{ConfigError, LogFormat, StorageConfig};
use crate::adapters::azure::AzureConnection;
use crate::cluster::doorbell_secret::{DoorbellKeys, RING_SECRET_CHARS_MIN};
use crate::domain::ids::PartnerId;
use crate::ports::process_registry::Address;

pub(super) fn storage(found: &Found) -> Result<StorageConfig, ConfigError> {
    match found.value.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(StorageConfig::Sqlite { path: PathBuf::from(path) }),
        Some(("azure", connection)) => match AzureConnection::parse(connection) {
            Ok(connection) => Ok(StorageConfig::Azure { connection: Box::new(connection) }),
            Err(unusable) => Err(found.refuse(format!("must be a usable connection string, but {unusable}"))),
        },
        _ => Err(found.refuse("must be sqlite:<file> or azure:<connection string>")),
    }
}

pub(super) fn address(found: &Found) -> Result<SocketAddr, ConfigError> {
    found.value.parse().map_err(|_| found.refuse("must be ip:port, such as 127.0.0.1:8080"))
}

/// A secret of so many characters at least.
pub(super) fn secret(found: &Found, chars_min: usize) -> Result<SecretString, ConfigError> {
    let visible = found.value.chars().all(|c| c.is_ascii_graphic());
    if visible && found.value.len() >= chars_min {
        return Ok(SecretString::from(found.value.clone()));
    }
    Err(found.refuse(format!("must have at least {chars_min} visible ASCII characters without spaces")))
}

pub(super) fn ring_keys(found: &Found) -> Result<DoorbellKeys, ConfigError> {
    DoorbellKeys::parse(&found.value).map_err(|_| {
        found.refuse(format!(
            "must have at least {RING_SECRET_CHARS_MIN} visible ASCII characters without spaces and commas; while it \
             is changed, two of them as new,old"
        ))
    })
}

pub(super) fn advertise(found: &Found) -> Result<Address, ConfigError> {
    Address::parse(&found.value)
        .map_err(|_| found.refuse("must be http://host:port, such as http://10.0.0.7:8081"))
}

/// Whether the other processes call a web process at the address of the HTTP API.
pub(super) fn internal_on_bind(found: &Found, is_tls: bool) -> Result<bool, ConfigError> {
    match found.value.as_str() {
        "false" => Ok(false),
        "true" if is_tls => Err(found.refuse(
            "must be false with tls-certificate: the other processes of the bank call over plain HTTP",
        )),
        "true" => Ok(true),
        _ => Err(found.refuse("must be true or false")),
    }
}

pub(super) fn name_prefix(found: &Found) -> Result<String, ConfigError> {
    let mut characters = found.value.chars();
    let sound = characters.next().is_some_and(|first| first.is_ascii_lowercase())
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && found.value.len() <= 20;
    if sound {
        return Ok(found.value.clone());
    }
    Err(found.refuse("must be 1 to 20 lower-case letters and digits, a letter first"))
}

pub(super) fn legacy_partner(found: &Found) -> Result<PartnerId, ConfigError> {
    PartnerId::parse(&found.value).map_err(|_| {
        found.refuse(
            "must be a partner: 1 to 32 characters, a lower-case letter first, then lower-case letters, digits or _",
        )
    })
}

pub(super) fn log_format(found: &Found) -> Result<LogFormat, ConfigError> {
    match found.value.as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(found.refuse("must be text or json")),
    }
}

/// Receivers of a queue, at least and at most.
pub(super) fn receivers(
    least: Option<&Found>,
    most: Option<&Found>,
) -> Result<(NonZeroUsize, NonZeroUsize), ConfigError> {
    let read = |found: Option<&Found>| {
        let number = found.map_or(Ok(1), |found| found.number(1, 64))?;
        Ok(usize::try_from(number).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN))
    };
    match (read(least)?, read(most)?, most) {
        (least, ceiling, Some(most)) if ceiling < least => {
            Err(most.refuse(format!("must not be below receivers-min, which is {least}")))
        }
        (least, ceiling, _) => Ok((least, ceiling)),
    }
}
