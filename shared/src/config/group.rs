//! Groups of settings: their command line, their defaults, and errors about invalid combinations.

use clap::{Args, Command};

/// Error: a setting contradicts other settings.
pub(super) struct InvalidSetting {
    /// The setting.
    pub(super) name: &'static str,
    /// The other settings that the rule depends on.
    pub(super) others: &'static [&'static str],
    /// The violated rule, which completes a sentence.
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

pub(super) fn command<T: Args>() -> Command {
    T::augment_args(Command::new("settings").no_binary_name(true).disable_help_flag(true))
}

pub(super) fn defaults<T: Args>() -> T {
    let matches = command::<T>().try_get_matches_from::<_, String>([]);
    let settings = matches.and_then(|matches| T::from_arg_matches(&matches));
    settings.expect("every setting of the group has a valid default or is optional")
}
