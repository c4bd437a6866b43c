//! The sources of values: the command line, then environment variables, then the configuration file, then defaults. A secret
//! can come from a file of its own instead.
//!
//! The values of all sources are merged into one command line, which clap parses into the typed settings. So every
//! source has the same rules, and every invalid value becomes a [`ConfigError`] here.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches as _};

use secrecy::ExposeSecret as _;

use super::credentials_in_urls::{NOT_SHOWN, masked};
use super::environment::Environment;
use super::error::ConfigError;
use super::group::{InvalidSetting, command};
use super::in_force::{Origin, SettingInForce};
use super::ingest::{self, INGEST};
use super::nearest::nearest;
use super::secret_files::{
    SecretFile, SecretFiles, digest_of, file_variable_of, read_secret, without_line_end,
};
use super::settings::{STORAGE, Settings};

/// Values by setting.
pub(super) type Values = BTreeMap<String, String>;

/// The values that are set, each with its source.
pub(super) struct Sources {
    command: Command,
    set: BTreeMap<String, (String, Origin)>,
    secret_files: SecretFiles,
}

impl Sources {
    /// Merges the matches of [`super::add_settings`] with the configuration file and the files of secrets. A file that cannot
    /// be read is an error of its setting.
    pub(super) fn merge(
        matches: &ArgMatches,
        environment: &Environment,
        file: &Path,
        mut values: Values,
    ) -> (Self, BTreeMap<String, ConfigError>) {
        let command = command::<Settings>();
        let set = command.get_arguments().filter_map(|arg| {
            let (id, name) = (arg.get_id().as_str(), arg.get_long()?);
            let given = || matches.get_one::<String>(id).cloned();
            let (value, origin) = match (matches.value_source(id), values.remove(name)) {
                (Some(ValueSource::CommandLine), _) => (given()?, Origin::CommandLine),
                (Some(ValueSource::EnvVariable), _) => (given()?, Origin::Environment),
                (_, Some(value)) => (value, Origin::File(PathBuf::from(file))),
                (_, None) => return None,
            };
            // As in a file. No other value is changed: an error shows it as it was typed.
            let is_secret = arg.is_hide_env_values_set();
            let value = if is_secret { without_line_end(&value).to_owned() } else { value };
            Some((name.to_owned(), (value, origin)))
        });
        let mut sources = Self { set: set.collect(), command, secret_files: SecretFiles::default() };
        let mut errors = BTreeMap::new();
        let secrets: Vec<String> = sources.secrets().into_iter().map(str::to_owned).collect();
        for setting in secrets {
            let variable = file_variable_of(&setting);
            if let Some(path) = environment.file(&variable) {
                let added = sources.add_secret(setting.clone(), variable, path);
                errors.extend(added.err().map(|error| (setting, error)));
            }
        }
        (sources, errors)
    }

    /// Adds a secret from a file.
    fn add_secret(&mut self, setting: String, variable: String, path: &Path) -> Result<(), ConfigError> {
        if self.has(&setting) {
            return Err(ConfigError::TwoSources { setting, variable });
        }
        let path = path.to_owned();
        let secret = read_secret(&path);
        let secret =
            secret.map_err(|source| ConfigError::SecretFile { variable, path: path.clone(), source })?;
        let file = SecretFile { path: path.clone(), digest: digest_of(&secret) };
        self.secret_files.0.insert(setting.clone(), file);
        let value = secret.expose_secret().to_owned();
        self.set.insert(setting, (value, Origin::SecretFile(path)));
        Ok(())
    }

    /// Returns the names of the settings that are secret.
    pub(super) fn secrets(&self) -> Vec<&str> {
        let secret = self.command.get_arguments().filter(|arg| arg.is_hide_env_values_set());
        secret.filter_map(clap::Arg::get_long).collect()
    }

    /// Returns the files from which secrets were read.
    pub(super) fn secret_files(&self) -> SecretFiles {
        self.secret_files.clone()
    }

    /// Returns the names of all settings.
    pub(super) fn names(&self) -> Vec<&str> {
        self.command.get_arguments().filter_map(clap::Arg::get_long).collect()
    }

    /// Parses the values into typed settings. A value that is not allowed becomes an error of its setting, and is replaced
    /// by the default.
    pub(super) fn parse(&self) -> (Settings, BTreeMap<&str, ConfigError>) {
        let (mut accepted, mut refused) = (Vec::new(), BTreeMap::new());
        for (name, (value, _)) in &self.set {
            let argument = format!("--{name}={value}");
            match self.command.clone().try_get_matches_from([&argument]) {
                Ok(_) => accepted.push(argument),
                Err(error) => drop(refused.insert(name.as_str(), self.refused(name, &error))),
            }
        }
        let matches = self.command.clone().try_get_matches_from(accepted);
        let settings = matches.and_then(|matches| Settings::from_arg_matches(&matches));
        (settings.expect("values that are allowed one by one are allowed together"), refused)
    }

    /// Returns whether any source sets the setting.
    pub(super) fn has(&self, setting: &str) -> bool {
        self.set.contains_key(setting)
    }

    fn refused(&self, setting: &str, error: &clap::Error) -> ConfigError {
        let allowed = match (error.source(), error.get(ContextKind::ValidValue)) {
            (Some(allowed), _) => allowed.to_string(),
            (None, Some(ContextValue::Strings(allowed))) => format!("must be {}", allowed.join(" or ")),
            (None, _) => "must not be empty".to_owned(),
        };
        self.refuse(setting, allowed)
    }

    /// Returns the error for a combination of values that is not allowed.
    pub(super) fn contradiction(&self, invalid: InvalidSetting) -> ConfigError {
        self.refuse(invalid.name, invalid.allowed)
    }

    fn refuse(&self, setting: &str, allowed: String) -> ConfigError {
        let arg = self.command.get_arguments().find(|arg| arg.get_long() == Some(setting));
        let (value, origin) = self
            .set
            .get(setting)
            .cloned()
            .unwrap_or_else(|| (arg.and_then(default_of).unwrap_or_default(), Origin::Default));
        let is_secret = arg.is_none_or(clap::Arg::is_hide_env_values_set);
        ConfigError::Value {
            setting: setting.to_owned(),
            value: shown_when_refused(is_secret, &value),
            source_of_value: origin.words(),
            allowed,
        }
    }

    /// Returns all settings with the values in force. `computed` contains defaults that depend on other settings.
    pub(super) fn in_force(&self, computed: &[(&str, String)]) -> Vec<SettingInForce> {
        let setting = |arg: &clap::Arg| {
            let name = arg.get_long()?;
            let computed =
                || computed.iter().find(|(setting, _)| *setting == name).map(|(_, value)| value.clone());
            let (value, origin) = match self.set.get(name) {
                Some((value, origin)) => (Some(shown(arg, value)), origin.clone()),
                None => (computed().or_else(|| default_of(arg)), Origin::Default),
            };
            let group = arg.get_help_heading().unwrap_or_default().to_owned();
            Some(SettingInForce { name: name.to_owned(), group, value, origin })
        };
        self.command.get_arguments().filter_map(setting).collect()
    }
}

fn default_of(arg: &clap::Arg) -> Option<String> {
    arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned())
}

/// Returns a value without its secret parts.
fn shown(arg: &clap::Arg, value: &str) -> String {
    // The path of a file is no secret, a connection string contains one.
    let is_file = arg.get_long() == Some(STORAGE) && value.starts_with("sqlite:");
    match (arg.is_hide_env_values_set() && !is_file, value.split_once(':')) {
        (false, _) => masked(value).into_owned(),
        (true, Some((kind, _))) if arg.get_long() == Some(STORAGE) => format!("{kind}:{NOT_SHOWN}"),
        (true, _) => NOT_SHOWN.to_owned(),
    }
}

/// Returns a value that is refused. No part of a secret is shown, because a malformed one has no known parts.
fn shown_when_refused(is_secret: bool, value: &str) -> String {
    if is_secret { NOT_SHOWN.to_owned() } else { masked(value).into_owned() }
}

/// Parses the text of a configuration file. Members that are not settings become errors.
pub(super) fn parse_file(path: &Path, text: &str) -> (Values, Vec<ConfigError>) {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(source) => {
            let before = source.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.lines().count().max(1);
            let reason = format!("line {line}: {}", source.message());
            return (Values::new(), vec![ConfigError::Toml { path: path.to_owned(), reason }]);
        }
    };
    let command = command::<Settings>();
    let known: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    let (mut values, mut errors) = (Values::new(), Vec::new());
    for (name, value) in table {
        let setting = name.replace('_', "-");
        if setting == INGEST {
            errors.extend(ingest::read_table(path, value, &mut values));
            continue;
        }
        let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(setting.as_str())) else {
            let nearest = nearest(&setting, &known).replace('-', "_");
            errors.push(ConfigError::UnknownSetting { name, nearest });
            continue;
        };
        if !value.is_str() && is_free_text(arg) {
            errors.push(ConfigError::Value {
                setting,
                value: shown_when_refused(arg.is_hide_env_values_set(), &value.to_string()),
                source_of_value: Origin::File(path.to_owned()).words(),
                allowed: "must be a text in quotes".to_owned(),
            });
            continue;
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if values.insert(setting, text).is_some() {
            errors.push(ConfigError::Repeated { name: name.replace('-', "_") });
        }
    }
    (values, errors)
}

/// Names of values that are numbers.
const NUMBERS: [&str; 6] = ["BYTES", "COUNT", "MILLISECONDS", "PART", "SECONDS", "USD"];

/// Returns whether any text may be a value of the setting. Every other setting is a number or one of a list of values, and its parser
/// refuses the rest.
fn is_free_text(arg: &clap::Arg) -> bool {
    let is_number =
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| NUMBERS.contains(&name.as_str())));
    !is_number && arg.get_possible_values().is_empty()
}
