//! Errors of the configuration. All of them are found at once, so that one start shows what has to be corrected.

use std::fmt;
use std::path::PathBuf;

use crate::ports::fault::chain;

/// An error of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value that is not allowed.
    #[error("{setting} is {value:?} ({source_of_value}), which is not allowed: it {allowed}")]
    Value {
        /// The setting.
        setting: String,
        /// The value; secrets are not shown.
        value: String,
        /// The source of the value.
        source_of_value: &'static str,
        /// The violated rule, as the end of a sentence.
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
    /// A secret is configured twice.
    #[error("{setting} is configured in a file by {variable} and in another way as well: remove one of them")]
    TwoSources {
        /// The setting.
        setting: String,
        /// The variable that names the file.
        variable: String,
    },
    /// The file cannot be read.
    #[error("the configuration file {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration file {} is not TOML: {reason}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The cause, without the text of the file, which may be a secret.
        reason: String,
    },
    /// A member of the file that is not a setting.
    #[error(
        "the configuration file has {name:?}, which is not a setting: the nearest one is {nearest} (--help-settings \
         lists all)"
    )]
    UnknownSetting {
        /// The name of the member.
        name: String,
        /// The most similar setting, as it is written in the file.
        nearest: String,
    },
    /// A setting that the file has twice: TOML tells the two names apart.
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

/// Maximum number of errors in a text.
const SHOWN_MAX: usize = 50;

/// All errors of a configuration, which stop the start.
///
/// Invariant: there is at least one.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Wraps errors. There must be at least one.
    pub(super) fn new(errors: Vec<ConfigError>) -> Self {
        assert!(!errors.is_empty(), "a configuration without errors is valid");
        Self(errors)
    }

    /// Returns the errors as the error of a configuration, if there are any.
    pub(super) fn of(errors: Vec<ConfigError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self::new(errors)) }
    }

    /// Returns the text of each error, with its causes.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|error| chain(error)).collect()
    }
}

impl fmt::Display for ConfigErrors {
    /// Writes the only error, or a line for each of them.
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
