//! Log lines through `tracing`: for a person on a terminal, or JSON for a machine.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::LogFormat;

/// Log directives that hold whatever is asked for: these libraries write whole requests at level
/// debug, with names and references of customers in them.
const QUIET: [&str; 3] = ["azure_core=info", "azure_storage=info", "azure_data_tables=info"];

/// Where log lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTo {
    /// A service logs to where its supervisor listens.
    Stdout,
    /// A command answers on standard output, and logs beside it.
    Stderr,
}

/// The directives cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "log is {directives:?}, which is not allowed: it must be a level or directives such as info,postonce_shared=debug"
)]
pub struct InvalidDirectives {
    directives: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// Starts logging for the whole process. Only the first call counts.
///
/// # Errors
/// [`InvalidDirectives`] when `directives` cannot be read.
pub fn start(format: LogFormat, directives: &str, to: LogTo) -> Result<(), InvalidDirectives> {
    let filter = EnvFilter::try_new(directives)
        .map_err(|source| InvalidDirectives { directives: directives.to_owned(), source })?;
    let filter = QUIET
        .iter()
        .fold(filter, |filter, quiet| filter.add_directive(quiet.parse().expect("it is a directive")));
    let (writer, colors) = match to {
        LogTo::Stdout => (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal()),
        LogTo::Stderr => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colors);
    let started = match format {
        LogFormat::Text => subscriber.with_target(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    // A second start, as in tests that share a process, leaves the first one in place.
    drop(started);
    Ok(())
}
