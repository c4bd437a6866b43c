//! Logging with `tracing`: text for a terminal, or JSON for programs.
//!
//! A service writes a line for each request, and a system call per line would cost more than some of the logged work.
//! So a separate thread writes the buffered lines in batches. The audit trail is not buffered: each line is written
//! before the action continues, so that a process that is killed loses none.

mod label;
mod limited;

use std::io::{BufWriter, IsTerminal as _, Stdout, Write};
use std::sync::Arc;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use self::label::Labelled;
use self::limited::Limited;
use crate::adapters::system::SystemWorld;
use crate::config::LogFormat;
use crate::oversight::audit;

/// Prefix of our own log targets. Lines of dependencies are written only at level info or above, regardless of the
/// configuration: HTTP libraries log whole requests, with keys, names and references, at debug and trace.
const OWN: &str = "postonce";

/// Size of the buffer, which is written in one call.
const BATCH_BYTES: usize = 64 << 10;
/// How long the thread collects lines before it writes them. While it does, a new line wakes no thread.
const COLLECTING: Duration = Duration::from_millis(5);
/// Maximum number of lines that wait to be written.
const WAITING_LINES_MAX: usize = 16_384;

/// Output of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTo {
    /// Standard output, for services.
    Stdout,
    /// Standard output that is shared with other workers: each line names its process.
    SharedStdout,
    /// Standard error, for commands, which write their results to standard output.
    Stderr,
}

/// Error for filter directives that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error(
    "log is {directives:?}, which is not allowed: it must be a level or directives such as info,postonce_shared=debug"
)]
pub struct InvalidDirectives {
    directives: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// Handle to the thread that writes the buffered lines. Dropping it writes the remaining ones: keep it until the
/// process ends.
#[derive(Debug)]
#[must_use = "buffered lines are written only while it exists"]
pub struct LogWriter(#[expect(dead_code, reason = "held for its Drop")] Option<WorkerGuard>);

/// Checks filter directives, without starting anything.
///
/// # Errors
/// [`InvalidDirectives`] when they cannot be parsed.
pub fn check(directives: &str) -> Result<(), InvalidDirectives> {
    filter(directives).map(drop)
}

fn filter(directives: &str) -> Result<EnvFilter, InvalidDirectives> {
    EnvFilter::try_new(directives)
        .map_err(|source| InvalidDirectives { directives: directives.to_owned(), source })
}

/// Starts logging for the whole process. Only the first call has an effect. Of log targets with the prefix `quiet`, only warnings
/// and errors are written. Of each place in the program, ten warnings or errors a minute are written; the next one after that
/// minute tells the number of the others.
///
/// # Errors
/// [`InvalidDirectives`] when `directives` cannot be parsed.
pub fn start(
    format: LogFormat,
    directives: &str,
    to: LogTo,
    quiet: &'static str,
) -> Result<LogWriter, InvalidDirectives> {
    let filter = filter(directives)?;
    // The audit trail must be complete at every configured level.
    let audit_directive = format!("{}=info", audit::TARGET).parse().expect("the directive is valid");
    let filter = filter.add_directive(audit_directive);
    let (writer, colors, guard) = match to {
        LogTo::Stdout | LogTo::SharedStdout => {
            let (writer, guard) = buffered_stdout();
            let process = std::process::id();
            let writer = match (to, format) {
                (LogTo::Stdout | LogTo::Stderr, _) => writer,
                (LogTo::SharedStdout, LogFormat::Text) => BoxMakeWriter::new(Labelled::text(writer, process)),
                (LogTo::SharedStdout, LogFormat::Json) => BoxMakeWriter::new(Labelled::json(writer, process)),
            };
            (writer, std::io::stdout().is_terminal(), Some(guard))
        }
        LogTo::Stderr => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal(), None),
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
    drop(started);
    Ok(LogWriter(guard))
}

/// Returns the writer for standard output: unbuffered for the audit trail, buffered for all other lines. Both lock
/// standard output for whole lines, so no line is split.
fn buffered_stdout() -> (BoxMakeWriter, WorkerGuard) {
    let batches = Batches(BufWriter::with_capacity(BATCH_BYTES, std::io::stdout()));
    // If lines arrive faster than they can be written, the logging thread waits: no line is dropped.
    let builder = NonBlockingBuilder::default().lossy(false).buffered_lines_limit(WAITING_LINES_MAX);
    let (buffered, guard) = builder.thread_name("log").finish(batches);
    let is_trail = |metadata: &Metadata<'_>| metadata.target() == audit::TARGET;
    let trail = std::io::stdout.with_filter(is_trail);
    (BoxMakeWriter::new(trail.or_else(buffered)), guard)
}

/// Standard output that is written in batches.
struct Batches(BufWriter<Stdout>);

impl Write for Batches {
    fn write(&mut self, lines: &[u8]) -> std::io::Result<usize> {
        self.0.write(lines)
    }

    /// Called when no line waits: more of them arrive during the pause if the process is busy.
    fn flush(&mut self) -> std::io::Result<()> {
        std::thread::sleep(COLLECTING);
        self.0.flush()
    }
}

/// Returns whether log lines of that kind cannot contain text of a client, and are not of a quiet library.
fn is_harmless(metadata: &Metadata<'_>, quiet: &str) -> bool {
    let level_max = if metadata.target().starts_with(quiet) { Level::WARN } else { Level::INFO };
    *metadata.level() <= level_max || metadata.target().starts_with(OWN)
}
