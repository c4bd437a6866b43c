//! Configuration: defaults, then a TOML file, then `POSTONCE_…` variables, then flags. Read once,
//! into types; a wrong value stops the start with the setting, the value and what is allowed.
//!
//! Every setting is one row of [`SETTINGS`]; `--help` is made of the same table.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use secrecy::SecretString;

use crate::adapters::azure::AzureConnection;

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
    /// The first API key, if it is not to be made up.
    pub bootstrap_key: Option<SecretString>,
    /// How long a received message is hidden from other workers.
    pub visibility_timeout: Duration,
    /// Receipts after which a message is taken apart, and a single item set aside.
    pub dequeue_count_max: u32,
    /// Queues that share the work.
    pub queue_count: u16,
    /// Longest wait between two looks at an empty queue.
    pub idle_poll_max: Duration,
    /// What the names of tables, queues and containers begin with.
    pub name_prefix: String,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written: a level, or directives such as `info,postonce_shared=debug`.
    pub log: String,
}

/// One setting: the flag `--name`, the variable `POSTONCE_NAME`, and `name` in the TOML file.
struct Setting {
    name: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    secret: bool,
    help: &'static str,
}

const fn setting(
    name: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    help: &'static str,
) -> Setting {
    Setting { name, variable, default, secret: false, help }
}

const SETTINGS: [Setting; 10] = [
    Setting {
        // A connection string carries the key of the storage account.
        secret: true,
        ..setting(
            "storage",
            "POSTONCE_STORAGE",
            Some("sqlite:./postonce-data/postonce.db"),
            "Where data lives: sqlite:<file>, or azure:<connection string> (azure:UseDevelopmentStorage=true is Azurite)",
        )
    },
    setting(
        "bind",
        "POSTONCE_BIND",
        Some("127.0.0.1:8080"),
        "Address of the HTTP API, ip:port; port 0 picks a free one, which the log names",
    ),
    Setting {
        secret: true,
        ..setting(
            "bootstrap-key",
            "POSTONCE_BOOTSTRAP_KEY",
            None,
            "First API key of an empty store, at least 16 characters; without it one is made and printed once",
        )
    },
    setting(
        "visibility-timeout-s",
        "POSTONCE_VISIBILITY_TIMEOUT_S",
        Some("20"),
        "Seconds that a received message is hidden from other workers, 1 to 604800; renewed while work goes on",
    ),
    setting(
        "dequeue-count-max",
        "POSTONCE_DEQUEUE_COUNT_MAX",
        Some("5"),
        "Receipts after which work that cannot be posted goes to the dead letters, 1 to 1000; outages do not count",
    ),
    setting(
        "queue-count",
        "POSTONCE_QUEUE_COUNT",
        None,
        "Queues that share the work by account, 1 to 64 [default: 1 on SQLite, 4 on Azure]",
    ),
    setting(
        "idle-poll-max-ms",
        "POSTONCE_IDLE_POLL_MAX_MS",
        Some("1000"),
        "Longest wait between two looks at an empty queue, in milliseconds, 100 to 60000",
    ),
    setting(
        "name-prefix",
        "POSTONCE_NAME_PREFIX",
        Some("postonce"),
        "What names of tables, queues and containers begin with: 1 to 20 lower-case letters and digits, a letter first",
    ),
    setting("log-format", "POSTONCE_LOG_FORMAT", Some("text"), "How log lines look: text or json"),
    setting(
        "log",
        "POSTONCE_LOG",
        Some("info"),
        "Which log lines are written: error, warn, info, debug, trace, or directives such as info,postonce_shared=debug",
    ),
];

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
    #[error("the configuration file {} is not TOML", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
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

/// Adds the settings to a command line; they may stand before and after a subcommand.
pub fn add_settings(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .env("POSTONCE_CONFIG")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .global(true)
        .help("TOML file with settings, named like the flags with _ for -");
    SETTINGS.iter().fold(command.arg(config), |command, setting| {
        let mut arg = Arg::new(setting.name)
            .long(setting.name)
            .env(setting.variable)
            .value_name("VALUE")
            .global(true)
            .hide_env_values(setting.secret)
            .help(setting.help);
        if let Some(default) = setting.default {
            arg = arg.default_value(default);
        }
        command.arg(arg)
    })
}

/// Where a value came from, and the value.
struct Found {
    setting: &'static Setting,
    value: String,
    source: &'static str,
}

impl Found {
    fn refuse(&self, allowed: impl Into<String>) -> ConfigError {
        // A connection string may be shown, unless the key of the storage account stands in it.
        let harmless = self.setting.name == "storage" && !self.value.contains("AccountKey");
        let value = if self.setting.secret && !harmless { "(not shown)" } else { &self.value };
        ConfigError::Value {
            setting: self.setting.name,
            value: value.to_owned(),
            source_of_value: self.source,
            allowed: allowed.into(),
        }
    }

    fn number(&self, least: u64, most: u64) -> Result<u64, ConfigError> {
        let number = self.value.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| self.refuse(format!("must be a whole number from {least} to {most}")))
    }
}

impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    /// [`ConfigError`] at the first value that is not allowed.
    pub fn read(matches: &ArgMatches) -> Result<Self, ConfigError> {
        let file = match matches.get_one::<PathBuf>("config") {
            Some(path) => read_file(path)?,
            None => BTreeMap::new(),
        };
        let find = |name: &str| find(matches, &file, name);
        let storage =
            find("storage").map_or_else(|| unreachable!("it has a default"), |found| storage(&found))?;
        let default_queue_count = match &storage {
            StorageConfig::Sqlite { .. } => 1,
            StorageConfig::Azure { .. } => 4,
        };
        let number = |name: &str, least, most| find(name).map(|found| found.number(least, most)).transpose();
        let text = |name: &str| find(name).map(|found| found.value).unwrap_or_default();
        Ok(Self {
            storage,
            bind: find("bind").map_or_else(|| unreachable!("it has a default"), |found| address(&found))?,
            bootstrap_key: find("bootstrap-key").map(|found| bootstrap_key(&found)).transpose()?,
            visibility_timeout: Duration::from_secs(
                number("visibility-timeout-s", 1, 604_800)?.unwrap_or_default(),
            ),
            dequeue_count_max: u32::try_from(number("dequeue-count-max", 1, 1000)?.unwrap_or_default())
                .unwrap_or(u32::MAX),
            queue_count: u16::try_from(number("queue-count", 1, 64)?.unwrap_or(default_queue_count))
                .unwrap_or(u16::MAX),
            idle_poll_max: Duration::from_millis(
                number("idle-poll-max-ms", 100, 60_000)?.unwrap_or_default(),
            ),
            name_prefix: find("name-prefix")
                .map(|found| name_prefix(&found))
                .transpose()?
                .unwrap_or_default(),
            log_format: find("log-format").map_or(Ok(LogFormat::Text), |found| log_format(&found))?,
            log: text("log"),
        })
    }
}

/// The value of a setting, from the strongest source that has one.
fn find(matches: &ArgMatches, file: &BTreeMap<String, String>, name: &str) -> Option<Found> {
    let setting = SETTINGS.iter().find(|setting| setting.name == name).expect("only settings are asked for");
    let told = matches.get_one::<String>(name).cloned();
    let (value, source) = match (matches.value_source(name), file.get(name)) {
        (Some(ValueSource::CommandLine), _) => (told?, "on the command line"),
        (Some(ValueSource::EnvVariable), _) => (told?, "in the environment"),
        (_, Some(value)) => (value.clone(), "in the configuration file"),
        (_, None) => (told?, "by default"),
    };
    Some(Found { setting, value, source })
}

fn read_file(path: &PathBuf) -> Result<BTreeMap<String, String>, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.clone(), source })?;
    let table: toml::Table = toml::from_str(&text)
        .map_err(|source| ConfigError::Toml { path: path.clone(), source: Box::new(source) })?;
    let entry = |(name, value): (String, toml::Value)| {
        let flag = name.replace('_', "-");
        if SETTINGS.iter().any(|setting| setting.name == flag) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            return Ok((flag, text));
        }
        let allowed =
            SETTINGS.iter().map(|setting| setting.name.replace('-', "_")).collect::<Vec<_>>().join(", ");
        Err(ConfigError::UnknownSetting { name, allowed })
    };
    table.into_iter().map(entry).collect()
}

fn storage(found: &Found) -> Result<StorageConfig, ConfigError> {
    match found.value.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(StorageConfig::Sqlite { path: PathBuf::from(path) }),
        Some(("azure", connection)) => match AzureConnection::parse(connection) {
            Ok(connection) => Ok(StorageConfig::Azure { connection: Box::new(connection) }),
            Err(unusable) => Err(found.refuse(format!("must be a usable connection string, but {unusable}"))),
        },
        _ => Err(found.refuse("must be sqlite:<file> or azure:<connection string>")),
    }
}

fn address(found: &Found) -> Result<SocketAddr, ConfigError> {
    found.value.parse().map_err(|_| found.refuse("must be ip:port, such as 127.0.0.1:8080"))
}

fn bootstrap_key(found: &Found) -> Result<SecretString, ConfigError> {
    let visible = found.value.chars().all(|c| c.is_ascii_graphic());
    if visible && found.value.len() >= BOOTSTRAP_KEY_CHARS_MIN {
        return Ok(SecretString::from(found.value.clone()));
    }
    Err(found.refuse(format!(
        "must have at least {BOOTSTRAP_KEY_CHARS_MIN} visible ASCII characters without spaces"
    )))
}

fn name_prefix(found: &Found) -> Result<String, ConfigError> {
    let mut characters = found.value.chars();
    let sound = characters.next().is_some_and(|first| first.is_ascii_lowercase())
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && found.value.len() <= 20;
    if sound {
        return Ok(found.value.clone());
    }
    Err(found.refuse("must be 1 to 20 lower-case letters and digits, a letter first"))
}

fn log_format(found: &Found) -> Result<LogFormat, ConfigError> {
    match found.value.as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(found.refuse("must be text or json")),
    }
}

#[cfg(test)]
mod tests;
