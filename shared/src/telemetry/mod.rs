//! Logging with `tracing`, as text for terminals or JSON for programs.
//!
//! A service writes a line per request, and a system call per line would cost more than some of the logged work. A
//! separate thread therefore writes lines in batches, and lines of the audit trail immediately. Logging never waits for
//! the output: lines that it does not accept are lost and counted ([`lines_lost`]).

mod label;
mod limited;
mod line_buffer;
mod panics;

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{Directive, FilterExt as _, filter_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use self::label::Labelled;
use self::limited::Limited;
pub use self::line_buffer::lines_lost;
use self::line_buffer::{Batching, LineBuffer, Lines};
use crate::adapters::system::SystemWorld;
use crate::config::LogFormat;
use crate::oversight::audit;

/// Prefix of our own log targets. Lines of dependencies are written only at level info or above, whatever the
/// configuration: at debug and trace, HTTP libraries log whole requests with keys, names and references.
const OWN: &str = "postonce";
/// Targets that are logged at every configured level, because the audit trail must be complete, or report that it is not.
const ALWAYS_LOGGED: [&str; 3] = [audit::TARGET, line_buffer::TARGET, panics::TARGET];

/// Output of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTo {
    /// Standard output, for services.
    Stdout,
    /// Standard output shared with other workers. Each line names its process.
    SharedStdout,
    /// Standard error, for commands, which write their results to standard output.
    Stderr,
}

/// Error: filter directives cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error(
    "log is {directives:?}, which is not allowed: it must be a level or directives such as info,postonce_shared=debug"
)]
pub struct DirectivesError {
    directives: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// Why logging cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartFault {
    /// The filter directives cannot be parsed.
    #[error(transparent)]
    Directives(#[from] DirectivesError),
    /// The system cannot start a thread, or duplicate a file descriptor.
    #[error("the log cannot be started")]
    System(#[from] io::Error),
}

/// Handle to the writer thread. Dropping it waits until the remaining lines are written: up to 5 seconds, or 1 second if
/// the output accepts nothing. Keep it until the process ends.
#[derive(Debug)]
#[must_use = "the last lines are written only if it is dropped at the end"]
pub struct LogWriter(Arc<LineBuffer>);

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Checks filter directives without starting anything.
///
/// # Errors
/// [`DirectivesError`] when they cannot be parsed.
pub fn check(directives: &str) -> Result<(), DirectivesError> {
    filter(directives).map(drop)
}

fn filter(directives: &str) -> Result<EnvFilter, DirectivesError> {
    EnvFilter::try_new(directives)
        .map_err(|source| DirectivesError { directives: directives.to_owned(), source })
}

/// Starts logging for the whole process. Only the first call has an effect. For log targets with the prefix `quiet`, only
/// warnings and errors are written. Each call site writes at most ten warnings or errors per minute; its next line after
/// that minute contains the number of dropped lines. In a service, panics are logged instead of written to standard error.
///
/// # Errors
/// [`StartFault`] when `directives` cannot be parsed, or the system lacks resources.
pub fn start(
    format: LogFormat,
    directives: &str,
    to: LogTo,
    quiet: &'static str,
) -> Result<LogWriter, StartFault> {
    let filter = ALWAYS_LOGGED
        .into_iter()
        .fold(filter(directives)?, |filter, target| filter.add_directive(always(target)));
    let (output, batching) = match to {
        LogTo::Stdout => (io::stdout().as_fd().try_clone_to_owned(), Batching::LARGE),
        LogTo::SharedStdout => (io::stdout().as_fd().try_clone_to_owned(), Batching::SHARED),
        LogTo::Stderr => (io::stderr().as_fd().try_clone_to_owned(), Batching::AT_ONCE),
    };
    // Bypasses the buffers of the standard library, whose locks would be held while the output blocks.
    let output = File::from(output?);
    let colors = output.is_terminal();
    let buffer = LineBuffer::start(output, batching)?;
    let writer = BoxMakeWriter::new(Lines(Arc::clone(&buffer)));
    let process = std::process::id();
    let writer = match (to, format) {
        (LogTo::Stdout | LogTo::Stderr, _) => writer,
        (LogTo::SharedStdout, LogFormat::Text) => BoxMakeWriter::new(Labelled::text(writer, process)),
        (LogTo::SharedStdout, LogFormat::Json) => BoxMakeWriter::new(Labelled::json(writer, process)),
    };
    let limited = Limited::new(writer, format, Arc::new(SystemWorld::new()));
    let lines = fmt::layer().with_writer(limited).with_ansi(colors);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let filter = filter.and(filter_fn(move |metadata| is_harmless(metadata, quiet)));
    let started = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    // A second start, as in tests that share a process, has no effect.
    if started.is_ok() && to != LogTo::Stderr {
        panics::log();
    }
    Ok(LogWriter(buffer))
}

/// Returns the directive that logs a target at every configured level.
fn always(target: &str) -> Directive {
    format!("{target}=info").parse().expect("the directive is valid")
}

/// Returns whether lines with this metadata cannot contain client text, and do not come from a quiet library.
fn is_harmless(metadata: &Metadata<'_>, quiet: &str) -> bool {
    let level_max = if metadata.target().starts_with(quiet) { Level::WARN } else { Level::INFO };
    *metadata.level() <= level_max || metadata.target().starts_with(OWN)
}
