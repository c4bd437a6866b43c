//! Configuration: defaults, then a TOML file, then `POSTONCE_…` variables, then flags; later sources override earlier
//! ones. It is parsed into types once, at start. Invalid values and unknown `POSTONCE_…` variables prevent the start; all
//! of them are reported at once, each with the setting, the value and the rule.
//!
//! Every setting is a field of a clap argument group, with its name, default, allowed values and help. [`Config`] contains
//! the settings that are used directly; `settings` adds those that are combined into one value.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, ArgMatches, Args, ValueEnum};
use secrecy::SecretString;

use self::error::ConfigError;
use self::group::InvalidSetting;
use self::ingest::IngestSettings;
use self::settings::Settings;
use self::sources::{Sources, Values, parse_file};
use self::values::{
    address, advertise, bootstrap_key, milliseconds, name_prefix, number, ring_keys, seconds, storage,
};
use crate::adapters::azure::AzureConnection;
use crate::cluster::doorbell_secret::DoorbellKeys;
use crate::files::read_bounded;
use crate::oversight::prices::Prices;
use crate::oversight::scaling::ScalingPolicy;
use crate::ports::process_registry::Address;
use crate::posting::order_numbers::{RANGE_LEN_MAX, RangeLengths};

mod anchors;
mod azure;
mod backups;
mod console;
mod credentials_in_urls;
mod environment;
mod error;
mod group;
mod http_limits;
mod in_force;
mod ingest;
mod nearest;
mod receivers_rule;
pub mod reload;
mod scaling;
mod secret_files;
mod settings;
mod signatures;
mod sources;
mod tls;
mod traces;
mod trusted_proxies;
mod values;

pub use self::anchors::AnchorTerms;
pub use self::azure::AzureTerms;
pub use self::backups::BackupSchedule;
pub use self::console::ConsoleTerms;
pub use self::credentials_in_urls::masked;
pub use self::environment::Environment;
pub use self::error::ConfigErrors;
pub use self::http_limits::HttpLimits;
pub use self::in_force::{Origin, SettingInForce};
pub use self::ingest::IngestQueue;
pub use self::receivers_rule::{DepthSteps, ReceiversRule};
pub use self::secret_files::{SecretFile, SecretFiles, digest_of, read_secret, without_line_end};
pub use self::settings::{add_settings, parse_command_line};
pub use self::signatures::{PublicAddress, SignatureTerms};
pub use self::tls::{TlsClients, TlsConfig};
pub use self::traces::TraceTerms;
pub use self::trusted_proxies::{ProxyHeaders, TrustedProxies};

/// Minimum length of a configured API key, in characters.
pub const BOOTSTRAP_KEY_CHARS_MIN: usize = 16;
/// Default number of work queues on Azure. On SQLite it is one.
const QUEUE_COUNT_ON_AZURE: u16 = 4;

/// The configured store.
#[derive(Debug, Clone)]
pub enum StorageConfig {
    /// One file on this machine.
    Sqlite {
        /// The database file. Its directory is created if it is missing.
        path: PathBuf,
    },
    /// An Azure Storage account, or Azurite.
    Azure {
        /// The connection to the account.
        connection: Box<AzureConnection>,
    },
}

impl StorageConfig {
    /// Returns whether the store is a file, which implies that all processes of the bank run on this machine.
    pub const fn is_embedded(&self) -> bool {
        match self {
            Self::Sqlite { .. } => true,
            Self::Azure { .. } => false,
        }
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for humans.
    Text,
    /// One JSON object per line.
    Json,
}

/// A function that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// The function is used.
    On,
    /// The function is not used.
    Off,
}

/// The configuration of a process.
#[derive(Debug, Clone, Args)]
pub struct Config {
    /// Store of the ledger: sqlite:FILE, or azure:CONNECTION-STRING (azure:UseDevelopmentStorage=true is
    /// Azurite)
    // Hidden, because a connection string contains the key of the storage account.
    #[arg(help_heading = "Storage")]
    #[arg(long, value_name = "STORE", hide_env_values = true, value_parser = storage)]
    #[arg(default_value = "sqlite:./postonce-data/postonce.db")]
    pub storage: StorageConfig,
    /// Authentication at Azure Storage.
    #[command(flatten)]
    pub azure: AzureTerms,
    /// Prefix of the names of tables, queues and containers: 1 to 20 lower-case letters and digits, a
    /// letter first
    #[arg(help_heading = "Storage")]
    #[arg(long, value_name = "NAME", default_value = "postonce", value_parser = name_prefix)]
    pub name_prefix: String,
    /// Number of work queues over which the accounts are distributed, from 1 to 64; by default 1 on SQLite
    /// and 4 on Azure
    #[arg(help_heading = "Storage", long, value_name = "COUNT", value_parser = number::<u16>(1..=64))]
    #[arg(default_value = "1", hide_default_value = true)]
    pub queue_count: u16,
    /// Address of the HTTP API, ip:port; with port 0 the system chooses a free port, which is logged
    #[arg(help_heading = "HTTP")]
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    pub bind: SocketAddr,
    /// Address of a web process for operators and monitoring, ip:port: /v1/admin, /metrics and what is missing in /readyz
    /// are then served only there; by default bind serves them, too
    #[arg(help_heading = "HTTP", long, value_name = "ADDRESS", value_parser = address)]
    pub admin_bind: Option<SocketAddr>,
    /// Address at which other processes of the bank call this process, ip:port; a worker process also serves
    /// health and metrics there; with port 0 the system chooses a free port
    #[arg(help_heading = "HTTP")]
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address)]
    pub worker_bind: SocketAddr,
    /// true: other processes call a web process at bind instead of worker-bind, for a single machine without
    /// a second port; false: they call it at worker-bind; must be false with TLS
    #[arg(help_heading = "HTTP", long, value_name = "BOOL", default_value = "false", action = ArgAction::Set)]
    pub internal_on_bind: bool,
    /// Address at which other processes of the bank reach worker-bind of this process, `http://host:port`; by
    /// default the address on which it listens
    #[arg(help_heading = "HTTP", long, value_name = "URL", value_parser = advertise)]
    pub advertise: Option<Address>,
    /// Secret with which the processes of the bank sign their calls to each other, at least 16 visible ASCII
    /// characters without commas and semicolons; during a change two secrets as new,old; by default one is generated and saved in the
    /// store
    #[arg(help_heading = "HTTP")]
    #[arg(long, value_name = "SECRET", hide_env_values = true, value_parser = ring_keys)]
    pub ring_secret: Option<DoorbellKeys>,
    /// First API key of an empty store, at least 16 visible ASCII characters; by default one is generated and
    /// printed once
    #[arg(help_heading = "HTTP")]
    #[arg(long, value_name = "KEY", hide_env_values = true, value_parser = bootstrap_key)]
    pub bootstrap_key: Option<SecretString>,
    /// on: a request that waits for its outcome (Prefer: wait) is posted by the process that received it, if no
    /// accepted work of the account comes first; off: every request goes through the queue
    #[arg(help_heading = "HTTP", long, value_name = "SWITCH", default_value = "on")]
    pub immediate_posting: Switch,
    /// Limits of the HTTP API.
    #[command(flatten)]
    pub http: HttpLimits,
    /// Addresses and networks of the proxies in front of bind, separated by commas, such as 192.0.2.0/28: the client
    /// that they name in the proxy-headers counts for limits and in the audit trail; by default none, and these headers
    /// are ignored
    #[arg(help_heading = "HTTP", long, value_name = "NETWORKS", value_parser = TrustedProxies::parse)]
    pub trusted_proxies: Option<TrustedProxies>,
    /// Headers in which the trusted proxies name their clients: x-forwarded (X-Forwarded-For, X-Forwarded-Proto) or
    /// forwarded (Forwarded, RFC 7239); those of the other kind are ignored, because a client could send them
    #[arg(help_heading = "HTTP", long, value_name = "KIND", default_value = "x-forwarded")]
    pub proxy_headers: ProxyHeaders,
    /// Time after a stop signal for which a web process still accepts requests, while /readyz answers 503, in seconds, from 0
    /// to 300: with a load balancer, several times the interval of its health checks
    #[arg(help_heading = "HTTP", long = "drain-delay-s", value_name = "SECONDS")]
    #[arg(default_value = "0", value_parser = seconds(0..=300))]
    pub drain_delay: Duration,
    /// Time for which a received message is hidden from other workers, in seconds, from 1 to 604800; renewed
    /// while the work continues
    #[arg(help_heading = "Worker", long = "visibility-timeout-s", value_name = "SECONDS")]
    #[arg(default_value = "20", value_parser = seconds(1..=604_800))]
    pub visibility_timeout: Duration,
    /// Number of deliveries after which a message is tried alone, from 1 to 1000; deliveries during an outage do not
    /// count. It becomes a dead letter if its work cannot be posted, or if as many processes (at least 3, at most 8) end
    /// while they try it alone
    #[arg(help_heading = "Worker")]
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = number::<u32>(1..=1000))]
    pub dequeue_count_max: u32,
    /// Minimum number of receivers of each queue that has messages, in each worker process, from 1 to 64
    #[arg(help_heading = "Worker")]
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = number::<NonZeroUsize>(1..=64))]
    pub receivers_min: NonZeroUsize,
    /// Maximum number of receivers of each queue, in each worker process, from 1 to 64; not below
    /// receivers-min
    #[arg(help_heading = "Worker")]
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = number::<NonZeroUsize>(1..=64))]
    pub receivers_max: NonZeroUsize,
    /// Number of receivers of a queue by the number of its waiting messages, as pairs depth:receivers with rising numbers, such as
    /// 10:1,50:2,100:4 (from 50 messages, 2 receivers); not above receivers-max, and below the first depth receivers-min;
    /// by default adaptive: it grows with the number of messages and with the age of the oldest one
    #[arg(help_heading = "Worker", long, value_name = "STEPS", value_parser = ReceiversRule::parse)]
    pub receivers_rule: Option<ReceiversRule>,
    /// First interval between two polls of empty queues, in milliseconds, from 10 to 60000; not above idle-poll-max-ms
    #[arg(help_heading = "Worker", long = "idle-poll-min-ms", value_name = "MILLISECONDS")]
    #[arg(default_value = "100", value_parser = milliseconds(10..=60_000))]
    pub idle_poll_min: Duration,
    /// Factor from each interval between two polls of empty queues to the next, from 1 to 10
    #[arg(help_heading = "Worker", long, value_name = "NUMBER")]
    #[arg(default_value = "2", value_parser = number::<u32>(1..=10))]
    pub idle_poll_factor: u32,
    /// Maximum interval between two polls of empty queues, in milliseconds, from 100 to 600000; by default 60000, and
    /// 600000 while pings prove that notifications of all other processes arrive
    #[arg(help_heading = "Worker", long = "idle-poll-max-ms", value_name = "MILLISECONDS")]
    #[arg(value_parser = milliseconds(100..=600_000))]
    pub idle_poll_max: Option<Duration>,
    /// Minimum number of order numbers that a process reserves at once, from 1 to 100000; reserved numbers that a process does
    /// not use when it is killed are never used
    #[arg(help_heading = "Worker", long, value_name = "COUNT")]
    #[arg(default_value = "100", value_parser = number::<u64>(1..=RANGE_LEN_MAX))]
    pub order_number_range_min: u64,
    /// Maximum number of order numbers that a process reserves at once, from 1 to 100000; within both, a range lasts for about 10 s
    #[arg(help_heading = "Worker", long, value_name = "COUNT")]
    #[arg(default_value = "100000", value_parser = number::<u64>(1..=RANGE_LEN_MAX))]
    pub order_number_range_max: u64,
    /// Number of storage reads per day with which one worker process at a time checks all rows of the store and looks for
    /// forgotten work, from 0 to 100000000; 0: only after a process ended without notice
    #[arg(help_heading = "Worker", long, value_name = "COUNT")]
    #[arg(default_value = "10000", value_parser = number::<u32>(0..=100_000_000))]
    pub scrubber_operations_per_day: u32,
    /// Time from the start of a process until it begins to scrub, in seconds, from 0 to 3600; a random time of up to as much is
    /// added
    #[arg(help_heading = "Worker", long = "scrubber-delay-s", value_name = "SECONDS")]
    #[arg(default_value = "30", value_parser = seconds(0..=3600))]
    pub scrubber_delay: Duration,
    /// Anchors of the journals.
    #[command(flatten)]
    pub anchors: AnchorTerms,
    /// Scheduled backups.
    #[command(flatten)]
    pub backups: BackupSchedule,
    /// Export of traces.
    #[command(flatten)]
    pub traces: TraceTerms,
    /// Rules for signed requests.
    #[command(flatten)]
    pub signatures: SignatureTerms,
    /// The console for operators.
    #[command(flatten)]
    pub console: ConsoleTerms,
    /// Format of log lines: text or json
    #[arg(help_heading = "Logging", long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Log level (error, warn, info, debug or trace), or directives such as info,postonce_shared=debug
    #[arg(help_heading = "Logging", long, value_name = "DIRECTIVES", default_value = "info")]
    pub log: String,
    /// Queues of direct producers, in the order of their names.
    #[arg(skip)]
    pub ingest: Vec<IngestQueue>,
    /// Policy for the number of workers.
    #[arg(skip)]
    pub scaling: ScalingPolicy,
    /// Prices of storage operations.
    #[arg(skip)]
    pub prices: Prices,
    /// The files from which secrets were read.
    #[arg(skip)]
    pub secret_files: SecretFiles,
    /// Certificates of the HTTP API; `None` for plain HTTP.
    #[arg(skip)]
    pub tls: Option<TlsConfig>,
}

impl Config {
    /// Reads the configuration. Every `POSTONCE_…` variable in `environment` must be a setting.
    ///
    /// # Errors
    /// [`ConfigErrors`] with all values that are not allowed.
    pub fn read(matches: &ArgMatches, environment: &Environment) -> Result<Self, ConfigErrors> {
        Self::in_force(matches, environment).map(|(config, _)| config)
    }

    /// Reads the configuration, and also returns a list of all settings with their values and origins.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn in_force(
        matches: &ArgMatches,
        environment: &Environment,
    ) -> Result<(Self, Vec<SettingInForce>), ConfigErrors> {
        let Some(path) = matches.get_one::<PathBuf>("config") else {
            return Self::merged(matches, environment, (Path::new(""), Values::new(), Vec::new()));
        };
        let (values, errors) = match read_file(path) {
            Ok(text) => parse_file(path, &text),
            Err(source) => (Values::new(), vec![ConfigError::File { path: path.clone(), source }]),
        };
        Self::merged(matches, environment, (path, values, errors))
    }

    /// Returns the allowed lengths of ranges of order numbers.
    pub const fn order_number_ranges(&self) -> RangeLengths {
        RangeLengths { min: self.order_number_range_min, max: self.order_number_range_max }
    }

    /// Returns the prices of storage operations; `None` for an embedded store, whose operations are free.
    pub fn prices_paid(&self) -> Option<&Prices> {
        (!self.storage.is_embedded()).then_some(&self.prices)
    }

    /// Reads the configuration with `text` as the content of the configuration file, without checking environment
    /// variables. `path` is only used in errors.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn with_file(matches: &ArgMatches, path: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let (values, errors) = parse_file(path, text);
        Self::merged(matches, &Environment::default(), (path, values, errors)).map(|(config, _)| config)
    }

    fn merged(
        matches: &ArgMatches,
        environment: &Environment,
        (path, values, mut errors): (&Path, Values, Vec<ConfigError>),
    ) -> Result<(Self, Vec<SettingInForce>), ConfigErrors> {
        let ingest = IngestSettings::merge(environment.ingest(), path, &values);
        let (sources, unread) = Sources::merge(matches, environment, path, values);
        errors.extend(environment.errors(&sources.names(), &sources.secrets()));
        let (settings, refused) = sources.parse();
        let is_default_queue_count = !sources.has("queue-count");
        let name_prefix = settings.config.name_prefix.clone();
        let config = Self::from_settings(settings, is_default_queue_count).map_err(|contradictions| {
            // If one value of a combination was refused, the rule was checked against its default instead.
            let is_certain = |invalid: &InvalidSetting| {
                let mut names = invalid.others.iter().chain([&invalid.name]);
                !names.any(|name| refused.contains_key(name) || unread.contains_key(*name))
            };
            let certain = contradictions.into_iter().filter(is_certain);
            certain.map(|invalid| sources.contradiction(invalid)).collect::<Vec<_>>()
        });
        errors.extend(refused.into_values().chain(unread.into_values()));
        let queues = ingest.queues(&name_prefix, &mut errors);
        match config {
            Ok(mut config) => {
                if config.scaling.workers_min == 0 && !queues.is_empty() {
                    let allowed = "must not be 0 with ingest queues, which only a worker polls";
                    errors.push(sources.contradiction(InvalidSetting::new("workers-min", &[], allowed)));
                }
                ConfigErrors::of(errors)?;
                config.secret_files = sources.secret_files();
                config.ingest = queues;
                let mut in_force = sources.in_force(&config.computed_defaults());
                in_force.extend(ingest.in_force());
                Ok((config, in_force))
            }
            Err(contradictions) => {
                errors.extend(contradictions);
                Err(ConfigErrors::new(errors))
            }
        }
    }

    /// Returns the values of settings whose defaults depend on other settings.
    fn computed_defaults(&self) -> [(&'static str, String); 2] {
        [
            ("queue-count", self.queue_count.to_string()),
            ("connections-per-address-max", self.http.connections_of_address().to_string()),
        ]
    }

    /// Combines settings that depend on each other.
    fn from_settings(settings: Settings, is_default_queue_count: bool) -> Result<Self, Vec<InvalidSetting>> {
        let Settings { mut config, scaling, tls, prices } = settings;
        let mut invalid = Vec::new();
        match scaling.policy() {
            Ok(policy) => config.scaling = policy,
            Err(mut contradictions) => invalid.append(&mut contradictions),
        }
        config.prices = prices.into();
        match tls.config() {
            Ok(tls) => config.tls = tls,
            Err(contradiction) => invalid.push(contradiction),
        }
        invalid.extend(config.traces.check().err());
        invalid.extend(config.azure.check(&config.storage));
        if is_default_queue_count && !config.storage.is_embedded() {
            config.queue_count = QUEUE_COUNT_ON_AZURE;
        }
        if config.receivers_max < config.receivers_min {
            let allowed = format!("must not be below receivers-min, which is {}", config.receivers_min);
            invalid.push(InvalidSetting::new("receivers-max", &["receivers-min"], allowed));
        }
        let of_rule = config.receivers_rule.as_ref().and_then(ReceiversRule::most);
        if of_rule.is_some_and(|most| most > config.receivers_max) {
            let allowed =
                format!("must not have more receivers than receivers-max, which is {}", config.receivers_max);
            invalid.push(InvalidSetting::new("receivers-rule", &["receivers-max"], allowed));
        }
        if let Some(longest) = config.idle_poll_max.filter(|longest| *longest < config.idle_poll_min) {
            let allowed = format!("must not be above idle-poll-max-ms, which is {}", longest.as_millis());
            invalid.push(InvalidSetting::new("idle-poll-min-ms", &["idle-poll-max-ms"], allowed));
        }
        let RangeLengths { min, max } = config.order_number_ranges();
        if min > max {
            let allowed = format!("must not be above order-number-range-max, which is {max}");
            invalid.push(InvalidSetting::new("order-number-range-min", &["order-number-range-max"], allowed));
        }
        if config.internal_on_bind && config.tls.is_some() {
            let allowed =
                "must be false with tls-certificate: the other processes of the bank call over plain HTTP";
            invalid.push(InvalidSetting::new("internal-on-bind", &["tls-certificate"], allowed));
        }
        if invalid.is_empty() { Ok(config) } else { Err(invalid) }
    }
}

/// Maximum size of the configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a configuration file. It may be a pipe, because it is read only once.
fn read_file(path: &Path) -> io::Result<String> {
    let bytes = read_bounded(File::open(path)?, FILE_BYTES_MAX)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"))
}

#[cfg(test)]
mod tests;
