//! Groups of settings: their command line, their defaults, and the error for an invalid combination.

use clap::{Args, Command};

/// The name of a setting with an invalid value, and the violated rule as the end of a sentence.
pub(super) type InvalidSetting = (&'static str, String);

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
