//! Configuration errors. All of them are collected, so that one start shows everything that must be corrected.

use std::fmt;
use std::path::PathBuf;

use crate::ports::fault::chain;

/// An error of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is not allowed.
    #[error("{setting} is {value:?} ({source_of_value}), which is not allowed: it {allowed}")]
    Value {
        /// The setting.
        setting: String,
        /// The value, with secrets hidden.
        value: String,
        /// Where the value was set.
        source_of_value: &'static str,
        /// The violated rule, which completes a sentence.
        allowed: String,
    },
    /// The file with a secret cannot be read.
    #[error("{variable} is {}, which cannot be read", path.display())]
    SecretFile {
        /// The variable that names the file.
        variable: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A secret has two sources.
    #[error("{setting} is configured in a file by {variable} and in another way as well: remove one of them")]
    TwoSources {
        /// The setting.
        setting: String,
        /// The variable that names the file.
        variable: String,
    },
    /// The configuration file cannot be read.
    #[error("the configuration file {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The configuration file is not TOML.
    #[error("the configuration file {} is not TOML: {reason}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The cause, without content of the file, which may be secret.
        reason: String,
    },
    /// The configuration file has an unknown member.
    #[error(
        "the configuration file has {name:?}, which is not a setting: the nearest one is {nearest} (--help-settings \
         lists all)"
    )]
    UnknownSetting {
        /// The name of the member.
        name: String,
        /// The most similar setting, as written in the file.
        nearest: String,
    },
    /// The file has a setting twice: its names with `-` and with `_` are different keys in TOML.
    #[error("the configuration file has {name} twice, once with - in its name: remove one of them")]
    Repeated {
        /// The setting, as it is written in the file.
        name: String,
    },
    /// A variable that is not a setting.
    #[error(
        "the environment has {name}, which is not a setting: the nearest one is {nearest} (--help-settings lists all); \
         unset it or correct its name"
    )]
    UnknownVariable {
        /// The name of the variable.
        name: String,
        /// The most similar variable.
        nearest: String,
    },
}

/// Maximum number of errors that are displayed.
const SHOWN_MAX: usize = 50;

/// All errors of a configuration. They prevent the start.
///
/// Invariant: not empty.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Wraps errors. Panics if there are none.
    pub(super) fn new(errors: Vec<ConfigError>) -> Self {
        assert!(!errors.is_empty(), "a configuration without errors is valid");
        Self(errors)
    }

    /// Returns `Err` with the errors, unless there are none.
    pub(super) fn of(errors: Vec<ConfigError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self::new(errors)) }
    }

    /// Returns the text of each error with its cause chain.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|error| chain(error)).collect()
    }
}

impl fmt::Display for ConfigErrors {
    /// Writes a single error as it is, and several as a list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.texts();
        if let [only] = texts.as_slice() {
            return f.write_str(only);
        }
        write!(f, "the configuration has {} errors:", texts.len())?;
        texts.iter().take(SHOWN_MAX).try_for_each(|text| write!(f, "\n- {text}"))?;
        let hidden = texts.len().saturating_sub(SHOWN_MAX);
        if hidden > 0 { write!(f, "\n- and {hidden} more") } else { Ok(()) }
    }
}

impl std::error::Error for ConfigErrors {}
