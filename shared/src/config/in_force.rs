//! The effective settings with their origins.

use std::path::PathBuf;

use super::settings::variable_of;

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The default; no source sets the value.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment,
    /// A secret file named by an environment variable.
    SecretFile(PathBuf),
    /// The command line.
    CommandLine,
}

impl Origin {
    /// Returns the stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(_) => "file",
            Self::Environment => "environment",
            Self::SecretFile(_) => "secret_file",
            Self::CommandLine => "command_line",
        }
    }

    pub(super) const fn words(&self) -> &'static str {
        match self {
            Self::Default => "by default",
            Self::File(_) => "in the configuration file",
            Self::Environment => "in the environment",
            Self::SecretFile(_) => "in the file of the secret",
            Self::CommandLine => "on the command line",
        }
    }
}

/// A setting with its effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingInForce {
    /// The name, such as `queue-count`.
    pub name: String,
    /// The group of the setting.
    pub group: String,
    /// The value, with `(not shown)` in place of a secret; `None` if it is not set.
    pub value: Option<String>,
    /// The origin of the value.
    pub origin: Origin,
}

impl SettingInForce {
    /// Returns where the value can be changed: the variable, option or file; `default` if no source sets it.
    pub fn place(&self) -> String {
        match &self.origin {
            Origin::Default => "default".to_owned(),
            Origin::File(path) | Origin::SecretFile(path) => path.display().to_string(),
            Origin::Environment => variable_of(&self.name),
            Origin::CommandLine => format!("--{}", self.name),
        }
    }
}
