//! Configuration: defaults, then a TOML file, then `POSTONCE_…` variables, then flags. Read once,
//! into types; a wrong value stops the start with the setting, the value and what is allowed.
//!
//! Every setting is one row of the table in `settings`; `--help` is made of the same table.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use secrecy::SecretString;

use self::sources::{Found, find, parse_file, read_file};
use self::values::{
    address, advertise, internal_on_bind, legacy_partner, log_format, name_prefix, receivers, ring_keys,
    secret, storage,
};
use crate::adapters::azure::AzureConnection;
use crate::cluster::doorbell_secret::DoorbellKeys;
use crate::domain::ids::PartnerId;
use crate::oversight::prices::Prices;
use crate::oversight::scaling::ScalingPolicy;
use crate::ports::process_registry::Address;

mod http_limits;
mod scaling;
mod settings;
mod signatures;
mod sources;
mod tls;
mod values;

pub use self::http_limits::HttpLimits;
pub use self::settings::add_settings;
pub use self::signatures::{PublicAddress, SignatureTerms};
pub use self::tls::{TlsClients, TlsConfig};

/// Shortest API key that may be configured, in characters.
pub const BOOTSTRAP_KEY_CHARS_MIN: usize = 16;

/// Where data lives.
#[derive(Debug, Clone)]
pub enum StorageConfig {
    /// One file on this machine.
    Sqlite {
        /// The file; its directory is made if it is missing.
        path: PathBuf,
    },
    /// An Azure Storage account, or Azurite.
    Azure {
        /// How to reach it.
        connection: Box<AzureConnection>,
    },
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For a person.
    Text,
    /// One JSON object per line.
    Json,
}

/// The configuration of a process.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where data lives.
    pub storage: StorageConfig,
    /// The address of the HTTP API.
    pub bind: SocketAddr,
    /// Where the other processes of the bank call this one.
    pub worker_bind: SocketAddr,
    /// A web process is called by the others at [`Self::bind`] instead.
    pub internal_on_bind: bool,
    /// Where the other processes reach that address, if it is not the one where this process listens.
    pub advertise: Option<Address>,
    /// What the processes sign with, if it is not to be made up.
    pub ring_secret: Option<DoorbellKeys>,
    /// The first API key, if it is not to be made up.
    pub bootstrap_key: Option<SecretString>,
    /// How long a received message is hidden from other workers.
    pub visibility_timeout: Duration,
    /// Receipts after which a message is taken apart, and a single item set aside.
    pub dequeue_count_max: u32,
    /// Queues that share the work.
    pub queue_count: u16,
    /// Receivers that a queue with work gets in each process, at least.
    pub receivers_min: NonZeroUsize,
    /// The same, at most.
    pub receivers_max: NonZeroUsize,
    /// Longest wait between two looks at empty queues.
    pub idle_poll_max: Duration,
    /// In whose name the worker accepts what producers write to the queue directly.
    pub legacy_partner: Option<PartnerId>,
    /// What the names of tables, queues and containers begin with.
    pub name_prefix: String,
    /// How many workers are wanted.
    pub scaling: ScalingPolicy,
    /// What storage operations cost.
    pub prices: Prices,
    /// What a client of the HTTP API may ask of a connection.
    pub http: HttpLimits,
    /// How signed requests are looked at.
    pub signatures: SignatureTerms,
    /// What the HTTP API is served over TLS with, if it is.
    pub tls: Option<TlsConfig>,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written: a level, or directives such as `info,postonce_shared=debug`.
    pub log: String,
}
/// A value that stops the start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value that is not allowed.
    #[error("{setting} is {value:?} ({source_of_value}), which is not allowed: it {allowed}")]
    Value {
        /// The setting.
        setting: &'static str,
        /// What it was set to; secrets are not shown.
        value: String,
        /// Where that came from.
        source_of_value: &'static str,
        /// What is allowed, as the end of a sentence.
        allowed: String,
    },
    /// The file cannot be read.
    #[error("the configuration file {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration file {} is not TOML: {reason}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// Why, without the text of the file: it may be a secret.
        reason: String,
    },
    /// A member of the file that is no setting.
    #[error("the configuration file has {name:?}, which is no setting; allowed are {allowed}")]
    UnknownSetting {
        /// The member.
        name: String,
        /// All settings.
        allowed: String,
    },
}
impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    /// [`ConfigError`] at the first value that is not allowed.
    pub fn read(matches: &ArgMatches) -> Result<Self, ConfigError> {
        match matches.get_one::<PathBuf>("config") {
            Some(path) => Self::with_file(matches, path, &read_file(path)?),
            None => Self::from_sources(matches, &BTreeMap::new()),
        }
    }

    /// The configuration with that text as the configuration file; the path is named in errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn with_file(matches: &ArgMatches, path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::from_sources(matches, &parse_file(path, text)?)
    }

    fn from_sources(matches: &ArgMatches, file: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let find = |name: &str| find(matches, file, name);
        let storage =
            find("storage").map_or_else(|| unreachable!("it has a default"), |found| storage(&found))?;
        let default_queue_count = match &storage {
            StorageConfig::Sqlite { .. } => 1,
            StorageConfig::Azure { .. } => 4,
        };
        let number = |name: &str, least, most| find(name).map(|found| found.number(least, most)).transpose();
        let receivers = receivers(find("receivers-min").as_ref(), find("receivers-max").as_ref())?;
        let text = |name: &str| find(name).map(|found| found.value).unwrap_or_default();
        let tls = tls::tls(&find)?;
        let on_bind = |found: Found| internal_on_bind(&found, tls.is_some());
        let bound =
            |name: &str| find(name).map_or_else(|| unreachable!("it has a default"), |found| address(&found));
        Ok(Self {
            storage,
            bind: bound("bind")?,
            worker_bind: bound("worker-bind")?,
            internal_on_bind: find("internal-on-bind").map_or(Ok(false), on_bind)?,
            advertise: find("advertise").map(|found| advertise(&found)).transpose()?,
            ring_secret: find("ring-secret").map(|found| ring_keys(&found)).transpose()?,
            bootstrap_key: find("bootstrap-key")
                .map(|found| secret(&found, BOOTSTRAP_KEY_CHARS_MIN))
                .transpose()?,
            visibility_timeout: Duration::from_secs(
                number("visibility-timeout-s", 1, 604_800)?.unwrap_or_default(),
            ),
            dequeue_count_max: u32::try_from(number("dequeue-count-max", 1, 1000)?.unwrap_or_default())
                .unwrap_or(u32::MAX),
            queue_count: u16::try_from(number("queue-count", 1, 64)?.unwrap_or(default_queue_count))
                .unwrap_or(u16::MAX),
            receivers_min: receivers.0,
            receivers_max: receivers.1,
            idle_poll_max: Duration::from_millis(
                number("idle-poll-max-ms", 100, 600_000)?.unwrap_or_default(),
            ),
            legacy_partner: find("legacy-partner").map(|found| legacy_partner(&found)).transpose()?,
            name_prefix: find("name-prefix")
                .map(|found| name_prefix(&found))
                .transpose()?
                .unwrap_or_default(),
            scaling: scaling::scaling(&find)?,
            prices: scaling::prices(&find)?,
            http: http_limits::http_limits(&find)?,
            signatures: signatures::signatures(&find)?,
            tls,
            log_format: find("log-format").map_or(Ok(LogFormat::Text), |found| log_format(&found))?,
            log: text("log"),
        })
    }
}

#[cfg(test)]
mod tests;
