//! Where the value of a setting comes from: the command line, the environment, the file, the default.

use std::collections::BTreeMap;
use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::ConfigError;
use super::settings::{SETTINGS, Setting};

/// Where a value came from, and the value.
pub(super) struct Found {
    pub(super) setting: &'static Setting,
    pub(super) value: String,
    pub(super) source: &'static str,
}

impl Found {
    /// The error that says what is allowed, as the end of a sentence.
    pub(super) fn refuse(&self, allowed: impl Into<String>) -> ConfigError {
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

    /// A whole number in a range.
    pub(super) fn number(&self, least: u64, most: u64) -> Result<u64, ConfigError> {
        let number = self.value.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| self.refuse(format!("must be a whole number from {least} to {most}")))
    }
}

/// The value of a setting, from the strongest source that has one.
pub(super) fn find(matches: &ArgMatches, file: &BTreeMap<String, String>, name: &str) -> Option<Found> {
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

/// The text of a file.
pub(super) fn read_file(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })
}

/// The settings in the text of a file, by the names of their flags.
pub(super) fn parse_file(path: &Path, text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let table: toml::Table = toml::from_str(text).map_err(|source| {
        let before = source.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.lines().count().max(1);
        let reason = format!("line {line}: {}", source.message());
        ConfigError::Toml { path: path.to_owned(), reason }
    })?;
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
