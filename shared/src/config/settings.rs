//! Every setting is one field of a clap argument group: its name, its default, the values that are
//! allowed, and its help. Groups that the code reads as they are stand in files of their own.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::StringValueParser;
use clap::{ArgAction, Args, Command, value_parser};
use secrecy::SecretString;

use super::http_limits::HttpLimits;
use super::scaling::ScalingSettings;
use super::signatures::SignatureTerms;
use super::tls::TlsSettings;
use super::values::{
    address, advertise, bootstrap_key, legacy_partner, milliseconds, name_prefix, number, price, ring_keys,
    seconds, storage,
};
use super::{LogFormat, StorageConfig};
use crate::domain::ids::PartnerId;
use crate::ports::roster::Address;
use crate::prices::{Price, Prices, defaults as prices};
use crate::ring_secret::RingKeys;

/// All settings.
#[derive(Args)]
pub(super) struct Settings {
    #[command(flatten)]
    pub(super) storage: StorageSettings,
    #[command(flatten)]
    pub(super) http: HttpSettings,
    #[command(flatten)]
    pub(super) limits: HttpLimits,
    #[command(flatten)]
    pub(super) worker: WorkerSettings,
    #[command(flatten)]
    pub(super) scaling: ScalingSettings,
    #[command(flatten)]
    pub(super) tls: TlsSettings,
    #[command(flatten)]
    pub(super) signatures: SignatureTerms,
    #[command(flatten)]
    pub(super) prices: PriceSettings,
    #[command(flatten)]
    pub(super) log: LogSettings,
}

#[derive(Args)]
#[command(next_help_heading = "Storage")]
pub(super) struct StorageSettings {
    /// Store of the ledger: sqlite:FILE, or azure:CONNECTION-STRING (azure:UseDevelopmentStorage=true is
    /// Azurite)
    // A connection string contains the key of the storage account.
    #[arg(long, value_name = "STORE", hide_env_values = true, value_parser = storage)]
    #[arg(default_value = "sqlite:./postonce-data/postonce.db")]
    pub(super) storage: StorageConfig,
    /// Prefix of the names of tables, queues and containers: 1 to 20 lower-case letters and digits, a
    /// letter first
    #[arg(long, value_name = "NAME", default_value = "postonce", value_parser = name_prefix)]
    pub(super) name_prefix: String,
    /// Number of work queues over which the accounts are distributed, from 1 to 64; by default 1 on SQLite
    /// and 4 on Azure
    #[arg(long, value_name = "COUNT", value_parser = number::<u16>(1..=64))]
    pub(super) queue_count: Option<u16>,
}

#[derive(Args)]
#[command(next_help_heading = "HTTP")]
pub(super) struct HttpSettings {
    /// Address of the HTTP API, ip:port; with port 0 the system chooses a free port, which is logged
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    pub(super) bind: SocketAddr,
    /// Address at which other processes of the bank call this process, ip:port; a worker process also serves
    /// health and metrics there; with port 0 the system chooses a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address)]
    pub(super) worker_bind: SocketAddr,
    /// true: other processes call a web process at bind instead of worker-bind, for a single machine without
    /// a second port; false: they call it at worker-bind; must be false with TLS
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set)]
    pub(super) internal_on_bind: bool,
    /// Address at which other processes of the bank reach worker-bind of this process, `http://host:port`; by
    /// default the address on which it listens
    #[arg(long, value_name = "URL", value_parser = advertise)]
    pub(super) advertise: Option<Address>,
    /// Secret with which the processes of the bank sign their calls to each other, at least 16 visible ASCII
    /// characters; during a change two secrets as new,old; by default one is generated and kept in the store
    #[arg(long, value_name = "SECRET", hide_env_values = true, value_parser = ring_keys)]
    pub(super) ring_secret: Option<RingKeys>,
    /// First API key of an empty store, at least 16 visible ASCII characters; by default one is generated and
    /// printed once
    #[arg(long, value_name = "KEY", hide_env_values = true, value_parser = bootstrap_key)]
    pub(super) bootstrap_key: Option<SecretString>,
}

#[derive(Args)]
#[command(next_help_heading = "Worker")]
pub(super) struct WorkerSettings {
    /// Time for which a received message is hidden from other workers, in seconds, from 1 to 604800; renewed
    /// while the work continues
    #[arg(long = "visibility-timeout-s", value_name = "SECONDS")]
    #[arg(default_value = "20", value_parser = seconds(1..=604_800))]
    pub(super) visibility_timeout: Duration,
    /// Number of deliveries after which work that cannot be posted becomes a dead letter, from 1 to 1000;
    /// deliveries during an outage do not count
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = number::<u32>(1..=1000))]
    pub(super) dequeue_count_max: u32,
    /// Minimum number of receivers of each queue that has messages, in each worker process, from 1 to 64
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = number::<NonZeroUsize>(1..=64))]
    pub(super) receivers_min: NonZeroUsize,
    /// Maximum number of receivers of each queue, in each worker process, from 1 to 64; not below
    /// receivers-min
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = number::<NonZeroUsize>(1..=64))]
    pub(super) receivers_max: NonZeroUsize,
    /// Maximum interval between two polls of empty queues, in milliseconds, from 100 to 600000
    #[arg(long = "idle-poll-max-ms", value_name = "MILLISECONDS")]
    #[arg(default_value = "60000", value_parser = milliseconds(100..=600_000))]
    pub(super) idle_poll_max: Duration,
    /// Partner on whose behalf, and on whose terms, the worker accepts XML and delimited bodies that
    /// producers write directly to the queue; by default none, and they become dead letters
    #[arg(long, value_name = "PARTNER", value_parser = legacy_partner)]
    pub(super) legacy_partner: Option<PartnerId>,
}

#[derive(Args)]
#[command(next_help_heading = "Prices")]
pub(super) struct PriceSettings {
    /// Price of 10000 reads or writes of a table row, in US dollars, from 0 to 1000 with at most 9 decimals
    #[arg(long, value_name = "USD", default_value = prices::TABLE, value_parser = price)]
    price_table: Price,
    /// Price of 10000 table batches or scans, in US dollars, from 0 to 1000 with at most 9 decimals
    #[arg(long, value_name = "USD", default_value = prices::TABLE_BATCH, value_parser = price)]
    price_table_batch: Price,
    /// Price of 10000 queue operations, in US dollars, from 0 to 1000 with at most 9 decimals
    #[arg(long, value_name = "USD", default_value = prices::QUEUE, value_parser = price)]
    price_queue: Price,
    /// Price of 10000 writes of a blob, in US dollars, from 0 to 1000 with at most 9 decimals
    #[arg(long, value_name = "USD", default_value = prices::BLOB_WRITE, value_parser = price)]
    price_blob_write: Price,
    /// Price of 10000 reads of a blob and other blob operations, in US dollars, from 0 to 1000 with at most 9
    /// decimals
    #[arg(long, value_name = "USD", default_value = prices::BLOB_READ, value_parser = price)]
    price_blob_read: Price,
}

#[derive(Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogSettings {
    /// Format of log lines: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
    /// Log level (error, warn, info, debug or trace), or directives such as info,postonce_shared=debug
    #[arg(long, value_name = "DIRECTIVES", default_value = "info")]
    pub(super) log: String,
}

impl From<PriceSettings> for Prices {
    fn from(settings: PriceSettings) -> Self {
        let PriceSettings { price_table, price_table_batch, price_queue, price_blob_write, price_blob_read } =
            settings;
        Self {
            table: price_table,
            table_batch: price_table_batch,
            queue: price_queue,
            blob_write: price_blob_write,
            blob_read: price_blob_read,
        }
    }
}

/// Adds `--config` and the settings to a command line, where they may stand before and after a
/// subcommand. The variable of the setting `some-name` is `POSTONCE_SOME_NAME`.
///
/// Parsing this command line checks its form only; [`super::Config::read`] checks the values, so that those
/// of the configuration file have the same rules and errors.
pub fn add_settings(command: Command) -> Command {
    let settings = Settings::augment_args(Command::new("settings"));
    let settings = settings.mut_args(|arg| {
        let variable = arg.get_long().unwrap_or_default().replace('-', "_").to_ascii_uppercase();
        arg.env(format!("POSTONCE_{variable}")).global(true).value_parser(StringValueParser::new())
    });
    let config = clap::arg!(--config <FILE> "TOML file with settings, named like the flags with _ for -")
        .env("POSTONCE_CONFIG")
        .value_parser(value_parser!(PathBuf))
        .required(false)
        .global(true);
    command.arg(config).args(settings.get_arguments())
}
