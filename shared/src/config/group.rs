//! Groups of settings: their command line, their defaults, and the error for an invalid combination.

use clap::{Args, Command};

/// A setting whose value is not allowed together with the values of others.
pub(super) struct InvalidSetting {
    /// The setting.
    pub(super) name: &'static str,
    /// The settings that the rule is about as well.
    pub(super) others: &'static [&'static str],
    /// The violated rule, as the end of a sentence.
    pub(super) allowed: String,
}

impl InvalidSetting {
    /// Creates the error of a setting that contradicts `others`.
    pub(super) fn new(
        name: &'static str,
        others: &'static [&'static str],
        allowed: impl Into<String>,
    ) -> Self {
        Self { name, others, allowed: allowed.into() }
    }
}

/// Returns the command line of a group of settings, without environment variables.
pub(super) fn command<T: Args>() -> Command {
    T::augment_args(Command::new("settings").no_binary_name(true).disable_help_flag(true))
}

/// Returns a group of settings with their default values.
pub(super) fn defaults<T: Args>() -> T {
    let matches = command::<T>().try_get_matches_from::<_, String>([]);
    let settings = matches.and_then(|matches| T::from_arg_matches(&matches));
    settings.expect("every setting of the group has a valid default or is optional")
}
