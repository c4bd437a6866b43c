//! Configuration: defaults, then a TOML file, then `POSTONCE_…` variables, then flags. Read once,
//! into types; a wrong value stops the start with the setting, the value and what is allowed.
//!
//! Every setting is one field of a clap argument group, see `settings`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgMatches, ValueEnum};
use secrecy::SecretString;

use self::settings::{HttpSettings, LogSettings, Settings, StorageSettings, WorkerSettings};
use self::sources::{Sources, Values, parse_file};
use crate::adapters::azure::AzureConnection;
use crate::domain::ids::PartnerId;
use crate::ports::roster::Address;
use crate::prices::Prices;
use crate::ring_secret::RingKeys;
use crate::scaling::ScalingPolicy;

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

impl StorageConfig {
    /// Whether the store is a file, so that all processes of the bank are on this machine.
    pub const fn is_embedded(&self) -> bool {
        match self {
            Self::Sqlite { .. } => true,
            Self::Azure { .. } => false,
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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
    pub ring_secret: Option<RingKeys>,
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
        setting: String,
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
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| ConfigError::File { path: path.clone(), source })?;
                Self::with_file(matches, path, &text)
            }
            None => Self::from_sources(&Sources::merge(matches, Values::new())),
        }
    }

    /// The configuration with that text as the configuration file; the path is named in errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn with_file(matches: &ArgMatches, path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::from_sources(&Sources::merge(matches, parse_file(path, text)?))
    }

    fn from_sources(sources: &Sources) -> Result<Self, ConfigError> {
        let Settings { storage, http, limits, worker, scaling, tls, signatures, prices, log } =
            sources.parse()?;
        let StorageSettings { storage, name_prefix, queue_count } = storage;
        let HttpSettings { bind, worker_bind, internal_on_bind, advertise, ring_secret, bootstrap_key } =
            http;
        let WorkerSettings { receivers_min, receivers_max, .. } = worker;
        let LogSettings { log_format, log } = log;
        if receivers_max < receivers_min {
            let allowed = format!("must not be below receivers-min, which is {receivers_min}");
            return Err(sources.refuse("receivers-max", allowed));
        }
        let tls = tls.config(sources)?;
        if internal_on_bind && tls.is_some() {
            let allowed =
                "must be false with tls-certificate: the other processes of the bank call over plain HTTP";
            return Err(sources.refuse("internal-on-bind", allowed));
        }
        Ok(Self {
            queue_count: queue_count.unwrap_or(if storage.is_embedded() { 1 } else { 4 }),
            storage,
            bind,
            worker_bind,
            internal_on_bind,
            advertise,
            ring_secret,
            bootstrap_key,
            visibility_timeout: worker.visibility_timeout,
            dequeue_count_max: worker.dequeue_count_max,
            receivers_min,
            receivers_max,
            idle_poll_max: worker.idle_poll_max,
            legacy_partner: worker.legacy_partner,
            name_prefix,
            scaling: scaling.policy(sources)?,
            prices: prices.into(),
            http: limits,
            signatures,
            tls,
            log_format,
            log,
        })
    }
}

#[cfg(test)]
mod tests;
