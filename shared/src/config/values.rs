//! Value parsers. For an invalid value, each returns the violated rule, which completes a sentence.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use secrecy::SecretString;

use super::{BOOTSTRAP_KEY_CHARS_MIN, StorageConfig};
use crate::adapters::azure::AzureConnection;
use crate::cluster::doorbell_secret::{DoorbellKeys, RING_SECRET_CHARS_MIN};
use crate::domain::ids::PartnerId;
use crate::oversight::prices::{PRICE_DECIMALS_MAX, PRICE_USD_MAX, Price};
use crate::ports::process_registry::Address;
use crate::text::whole_number;

/// Returns a parser for whole numbers in a range.
pub(super) fn number<T: FromStr>(
    allowed: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let is_allowed = whole_number(text).is_some_and(|number: u64| allowed.contains(&number));
        let number = is_allowed.then(|| whole_number(text)).flatten();
        number.ok_or_else(|| format!("must be a whole number from {} to {}", allowed.start(), allowed.end()))
    }
}

/// Returns a parser for durations in whole seconds.
pub(super) fn seconds(
    allowed: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    let number = number(allowed);
    move |text| number(text).map(Duration::from_secs)
}

/// Returns a parser for durations in whole milliseconds.
pub(super) fn milliseconds(
    allowed: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    let number = number(allowed);
    move |text| number(text).map(Duration::from_millis)
}

pub(super) fn storage(text: &str) -> Result<StorageConfig, String> {
    match text.split_once(':') {
        Some(("sqlite", path)) => store_file(path).map(|path| StorageConfig::Sqlite { path }),
        Some(("azure", connection)) => AzureConnection::parse(connection)
            .map(|connection| StorageConfig::Azure { connection: Box::new(connection) })
            .map_err(|unusable| format!("must be a usable connection string, but {unusable}")),
        Some(_) | None => Err("must be sqlite:<file> or azure:<connection string>".to_owned()),
    }
}

/// Returns the path of the file of an embedded store, taken literally: it has no URI syntax, escapes or parameters.
/// Refuses paths that another program would interpret as anything but that file.
fn store_file(path: &str) -> Result<PathBuf, String> {
    let must = |rule: &str| {
        Err(format!("must be sqlite:<file>: {rule}, such as sqlite:/var/lib/postonce/postonce.db"))
    };
    if path == ":memory:" {
        return must("a store in memory does not exist, name a file");
    }
    if path.starts_with("//") && !path.starts_with("///") {
        return must("a path, and no URL with //, begins with one / or none");
    }
    if path.contains('\0') {
        return must("a path without a NUL character");
    }
    // The system treats "a/." as the folder "a".
    let last = path.rsplit('/').next().unwrap_or_default();
    if matches!(last, "" | "." | "..") {
        return must("a file and no folder");
    }
    Ok(PathBuf::from(path))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be ip:port, such as 127.0.0.1:8080".to_owned())
}

pub(super) fn bootstrap_key(text: &str) -> Result<SecretString, String> {
    let is_visible = text.chars().all(|c| c.is_ascii_graphic());
    let key = (is_visible && text.len() >= BOOTSTRAP_KEY_CHARS_MIN).then(|| SecretString::from(text));
    key.ok_or_else(|| {
        format!("must have at least {BOOTSTRAP_KEY_CHARS_MIN} visible ASCII characters without spaces")
    })
}

pub(super) fn ring_keys(text: &str) -> Result<DoorbellKeys, String> {
    DoorbellKeys::parse(text).map_err(|_| {
        format!(
            "must have at least {RING_SECRET_CHARS_MIN} visible ASCII characters without spaces, commas and \
             semicolons; during a change, two of them as new,old"
        )
    })
}

pub(super) fn advertise(text: &str) -> Result<Address, String> {
    Address::parse(text).map_err(|_| "must be http://host:port, such as http://10.0.0.7:8081".to_owned())
}

pub(super) fn name_prefix(text: &str) -> Result<String, String> {
    let is_valid = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.len() <= 20;
    let prefix = is_valid.then(|| text.to_owned());
    prefix.ok_or_else(|| "must be 1 to 20 lower-case letters and digits, starting with a letter".to_owned())
}

pub(super) fn partner(text: &str) -> Result<PartnerId, String> {
    PartnerId::parse(text).map_err(|_| {
        "must be a partner: 1 to 32 characters, a lower-case letter first, then lower-case letters, digits or _"
            .to_owned()
    })
}

pub(super) fn price(text: &str) -> Result<Price, String> {
    Price::parse(text).ok_or_else(|| {
        format!(
            "must be US dollars for 10000 operations, from 0 to {PRICE_USD_MAX} with at most \
             {PRICE_DECIMALS_MAX} decimals, such as 0.00036"
        )
    })
}
