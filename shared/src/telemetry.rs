//! Log lines through `tracing`: for a person on a terminal, or JSON for a machine.
//!
//! A service writes a line for each request, and a system call for each of them would cost more than some of
//! the work that they tell about. So a thread of its own writes what has collected, in one piece. The audit
//! trail does not go that way: each of its lines is written before the act goes on, so that a process that is
//! killed leaves none out.

use std::io::{BufWriter, IsTerminal as _};

use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::config::LogFormat;
use crate::oversight::audit;

/// What our own targets begin with. Of all other code only levels down to info are written, whatever is
/// asked for: HTTP libraries write whole requests at debug and trace, with keys, names and references in
/// them.
const OWN: &str = "postonce";

/// What is written in one piece.
const BATCH_BYTES: usize = 64 << 10;
/// Lines that may wait to be written.
const WAITING_LINES_MAX: usize = 16_384;

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

/// Writes the lines that collected. Dropping it writes the last of them: it has to live as long as the
/// process has something to say.
#[derive(Debug)]
#[must_use = "without it no line that collects is written"]
pub struct LogWriter(#[expect(dead_code, reason = "it works by being dropped")] Option<WorkerGuard>);

/// Starts logging for the whole process. Only the first call counts.
///
/// # Errors
/// [`InvalidDirectives`] when `directives` cannot be read.
pub fn start(format: LogFormat, directives: &str, to: LogTo) -> Result<LogWriter, InvalidDirectives> {
    let filter = EnvFilter::try_new(directives)
        .map_err(|source| InvalidDirectives { directives: directives.to_owned(), source })?;
    // An audit trail with holes is none.
    let whole_trail = format!("{}=info", audit::TARGET).parse().expect("it is a directive");
    let filter = filter.add_directive(whole_trail);
    let (writer, colors, guard) = match to {
        LogTo::Stdout => {
            let (writer, guard) = collected_stdout();
            (writer, std::io::stdout().is_terminal(), Some(guard))
        }
        LogTo::Stderr => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal(), None),
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
    Ok(LogWriter(guard))
}

/// Standard output: at once for the audit trail, collected for everything else. Both take the lock of the
/// standard output for whole lines, so none is torn.
fn collected_stdout() -> (BoxMakeWriter, WorkerGuard) {
    let batches = BufWriter::with_capacity(BATCH_BYTES, std::io::stdout());
    // Where lines come faster than they can be written, whoever logs waits: none is left out.
    let builder = NonBlockingBuilder::default().lossy(false).buffered_lines_limit(WAITING_LINES_MAX);
    let (collected, guard) = builder.thread_name("log").finish(batches);
    let is_trail = |metadata: &Metadata<'_>| metadata.target() == audit::TARGET;
    let trail = std::io::stdout.with_filter(is_trail);
    (BoxMakeWriter::new(trail.or_else(collected)), guard)
}

/// Whether a log line of that kind cannot quote what a client sent.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO || metadata.target().starts_with(OWN)
}
