//! Log lines through `tracing`: for a person on a terminal, or JSON for a machine.

use std::io::IsTerminal as _;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::audit;
use crate::config::LogFormat;

/// What our own targets begin with. Of all other code only levels down to info are written, whatever is
/// asked for: HTTP libraries write whole requests at debug and trace, with keys, names and references in
/// them.
const OWN: &str = "postonce";

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
    // An audit trail with holes is none.
    let whole_trail = format!("{}=info", audit::TARGET).parse().expect("it is a directive");
    let filter = filter.add_directive(whole_trail);
    let (writer, colors) = match to {
        LogTo::Stdout => (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal()),
        LogTo::Stderr => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
    };
    let lines = fmt::layer().with_writer(writer).with_ansi(colors);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let started =
        tracing_subscriber::registry().with(lines.with_filter(filter.and(filter_fn(is_harmless)))).try_init();
    // A second start, as in tests that share a process, leaves the first one in place.
    drop(started);
    Ok(())
}

/// Whether a log line of that kind cannot quote what a client sent.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO || metadata.target().starts_with(OWN)
}
