//! The sources of values: the command line, then environment variables, then the configuration file, then defaults.
//!
//! The values of all sources are merged into one command line, which clap parses into the typed settings. So every
//! source has the same rules, and every invalid value becomes a [`ConfigError`] here.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches as _};

use super::ConfigError;
use super::group::command;
use super::settings::Settings;

/// Values by setting.
pub(super) type Values = BTreeMap<String, String>;

/// The values that are set, each with its source.
pub(super) struct Sources {
    command: Command,
    set: BTreeMap<String, (String, &'static str)>,
}

impl Sources {
    /// Merges the matches of [`super::add_settings`] with the configuration file.
    pub(super) fn merge(matches: &ArgMatches, mut file: Values) -> Self {
        let command = command::<Settings>();
        let set = command.get_arguments().filter_map(|arg| {
            let (id, name) = (arg.get_id().as_str(), arg.get_long()?);
            let given = || matches.get_one::<String>(id).cloned();
            let (value, place) = match (matches.value_source(id), file.remove(name)) {
                (Some(ValueSource::CommandLine), _) => (given()?, "on the command line"),
                (Some(ValueSource::EnvVariable), _) => (given()?, "in the environment"),
                (_, Some(value)) => (value, "in the configuration file"),
                (_, None) => return None,
            };
            Some((name.to_owned(), (value, place)))
        });
        let set = set.collect();
        Self { command, set }
    }

    /// Parses the values into typed settings.
    pub(super) fn parse(&self) -> Result<Settings, ConfigError> {
        let arguments = self.set.iter().map(|(name, (value, _))| format!("--{name}={value}"));
        let matches = self.command.clone().try_get_matches_from(arguments);
        matches.and_then(|matches| Settings::from_arg_matches(&matches)).map_err(|error| self.refused(&error))
    }

    /// Returns whether any source sets the setting.
    pub(super) fn has(&self, setting: &str) -> bool {
        self.set.contains_key(setting)
    }

    fn refused(&self, error: &clap::Error) -> ConfigError {
        let allowed = match (error.source(), error.get(ContextKind::ValidValue)) {
            (Some(allowed), _) => allowed.to_string(),
            (None, Some(ContextValue::Strings(allowed))) => format!("must be {}", allowed.join(" or ")),
            (None, _) => "must not be empty".to_owned(),
        };
        // For example `--bind <ADDRESS>`.
        let usage = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
        let setting = usage.trim_start_matches('-').split(' ').next().unwrap_or_default();
        self.refuse(setting, allowed)
    }

    /// Returns the error for an [`InvalidSetting`](super::group::InvalidSetting).
    pub(super) fn refuse(&self, setting: &str, allowed: String) -> ConfigError {
        let arg = self.command.get_arguments().find(|arg| arg.get_long() == Some(setting));
        let default = || {
            let values = arg.map(|arg| arg.get_default_values()).unwrap_or_default();
            (values.iter().map(|value| value.to_string_lossy()).collect(), "by default")
        };
        let (value, place) = self.set.get(setting).cloned().unwrap_or_else(default);
        let is_secret = arg.is_none_or(clap::Arg::is_hide_env_values_set);
        ConfigError::Value {
            setting: setting.to_owned(),
            value: if is_secret { "(not shown)".to_owned() } else { value },
            source_of_value: place,
            allowed,
        }
    }
}

/// Parses the text of a configuration file.
pub(super) fn parse_file(path: &Path, text: &str) -> Result<Values, ConfigError> {
    let table: toml::Table = toml::from_str(text).map_err(|source| {
        let before = source.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.lines().count().max(1);
        let reason = format!("line {line}: {}", source.message());
        ConfigError::Toml { path: path.to_owned(), reason }
    })?;
    let command = command::<Settings>();
    let entry = |(name, value): (String, toml::Value)| {
        let setting = name.replace('_', "-");
        if command.get_arguments().any(|arg| arg.get_long() == Some(&setting)) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            return Ok((setting, text));
        }
        let settings = command.get_arguments().filter_map(clap::Arg::get_long);
        let allowed = settings.map(|name| name.replace('-', "_")).collect::<Vec<_>>().join(", ");
        Err(ConfigError::UnknownSetting { name, allowed })
    };
    table.into_iter().map(entry).collect()
}
