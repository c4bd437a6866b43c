//! Settings of the console for operators.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::group::defaults;
use super::values::seconds;

/// The settings of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[command(next_help_heading = "Console")]
pub struct ConsoleTerms {
    /// true: web processes serve the console, pages for operators at /console, where they serve /v1/admin; false: they do not
    #[arg(long = "console", value_name = "BOOL", default_value = "true", action = ArgAction::Set)]
    pub is_served: bool,
    /// Time without a request after which an operator has to sign in to the console again, in seconds, from 5 to 43200; 12 hours
    /// after signing in, that is necessary in any case
    #[arg(long = "console-session-s", value_name = "SECONDS")]
    #[arg(default_value = "1800", value_parser = seconds(5..=43_200))]
    pub session: Duration,
}

impl Default for ConsoleTerms {
    fn default() -> Self {
        defaults()
    }
}
