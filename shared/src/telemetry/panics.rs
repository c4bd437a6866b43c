//! Logs the panics of a service. The standard library would write them to standard error, where a thread blocks forever if
//! nobody reads it, and then blocks every other panic.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

/// The log target of panics.
pub(super) const TARGET: &str = "postonce::panic";

/// Logs every panic from now on, including caught ones. `RUST_BACKTRACE` adds a backtrace, as usual.
pub(super) fn log() {
    std::panic::set_hook(Box::new(log_panic));
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let message = panic.payload_as_str().unwrap_or("without a message");
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    // Quoted, so that it stays on one line.
    tracing::error!(target: TARGET, backtrace, "The thread {thread} panicked at {at}: {message:?}");
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::fmt;
    use tracing_subscriber::fmt::writer::BoxMakeWriter;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::testing::captured_output::Written;

    #[test]
    fn a_panic_is_one_line_of_the_log() {
        let written = Written::default();
        let lines = fmt::layer().with_ansi(false).with_writer(BoxMakeWriter::new({
            let written = written.clone();
            move || written.clone()
        }));
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(log_panic));
        let panicked = tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            std::panic::catch_unwind(|| panic!("a bug\nof {}", 7))
        });
        std::panic::set_hook(usual);
        assert!(panicked.is_err());
        let lines = written.lines();
        assert!(
            matches!(&*lines, [line] if line.contains("ERROR") && line.contains("panicked at shared/src/telemetry/panics.rs:") && line.contains(r#""a bug\nof 7""#)),
            "{lines:#?}"
        );
    }
}
