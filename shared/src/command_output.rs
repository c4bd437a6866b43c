//! Output of a program on standard output and standard error, apart from the log.
//!
//! A reader such as `head` may close the output of a command early. The command then exits without a message, where the
//! print macros of the standard library would panic.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind, Stderr, Stdout, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use crate::printable;

/// Exit code of a command whose output was closed. A shell reports the same code for a program killed by SIGPIPE (128 +
/// 13).
pub const OUTPUT_CLOSED: u8 = 141;

/// How long a failing service waits for standard error to accept its last message.
const LAST_MESSAGE_TIME_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("the reader of the output has closed it")]
struct OutputClosed;

/// An output of a command. Its errors mark a pipe closed by the reader, to distinguish it from a broken connection to
/// another process.
#[derive(Debug)]
pub struct CommandOutput<W>(W);

impl CommandOutput<Stdout> {
    /// Returns standard output.
    pub fn stdout() -> Self {
        Self(io::stdout())
    }
}

impl CommandOutput<Stderr> {
    /// Returns standard error.
    pub fn stderr() -> Self {
        Self(io::stderr())
    }
}

impl<W: Write> Write for CommandOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::BrokenPipe {
        io::Error::new(ErrorKind::BrokenPipe, OutputClosed)
    } else {
        error
    }
}

/// Prints why a command failed, and returns `code`. If the command failed because the reader closed its output, prints
/// nothing and returns [`OUTPUT_CLOSED`].
pub fn failed(error: &(dyn Error + 'static), message: impl Display, code: u8) -> ExitCode {
    if is_closed(error) {
        return ExitCode::from(OUTPUT_CLOSED);
    }
    tell(format_args!("Error: {message}"));
    ExitCode::from(code)
}

/// Writes a line to standard error. Ignores failures.
pub fn tell(line: impl Display) {
    let _written = writeln!(io::stderr(), "{}", printable::lines(&line.to_string()));
}

/// Prints why a service failed. Waits at most a second, because standard error may be a pipe without a reader.
pub fn service_failed(message: impl Display) -> ExitCode {
    let message = format!("Error: {message}");
    let (sender, told) = mpsc::channel();
    let telling = move || {
        tell(message);
        // The receiver is gone after a timeout.
        let _sent = sender.send(());
    };
    if std::thread::Builder::new().name("last message".to_owned()).spawn(telling).is_ok() {
        let _told = told.recv_timeout(LAST_MESSAGE_TIME_MAX);
    }
    ExitCode::FAILURE
}

/// Returns whether a command failed because the reader has closed its output.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if inner.is_some_and(|inner| inner.is::<OutputClosed>()) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_the_closed_output_of_the_command_itself_ends_it_quietly() {
        let failure = |kind| writeln!(CommandOutput(Fails(kind)), "line").unwrap_err();
        assert!(is_closed(&failure(ErrorKind::BrokenPipe)));
        assert!(!is_closed(&failure(ErrorKind::StorageFull)));
        // A connection, not an output.
        assert!(!is_closed(&io::Error::from(ErrorKind::BrokenPipe)));
    }
}
