//! Groups of settings: their command line, their defaults, and the error of settings that do not fit together.

use clap::{Args, Command};

/// A setting whose value is not allowed, and what is allowed, as the end of a sentence.
pub(super) type Refusal = (&'static str, String);

/// The command line of some settings, without variables.
pub(super) fn command<T: Args>() -> Command {
    T::augment_args(Command::new("settings").no_binary_name(true).disable_help_flag(true))
}

/// The values of some settings by default.
pub(super) fn defaults<T: Args>() -> T {
    let matches = command::<T>().try_get_matches_from::<_, String>([]);
    let settings = matches.and_then(|matches| T::from_arg_matches(&matches));
    settings.expect("every setting of the group has a valid default or is optional")
}
