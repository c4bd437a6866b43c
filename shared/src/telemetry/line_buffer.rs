//! Passes log lines to their output through a bounded buffer and a writer thread.
//!
//! Logging never waits for the output, which may be a pipe without a reader, a paused terminal or a full disk. Lines that
//! do not fit into the buffer are counted. Their number is logged as soon as the output accepts lines again.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use crate::oversight::audit;

/// The target of the line that reports lost lines.
pub(super) const TARGET: &str = "postonce::log";

/// Maximum size of the waiting lines in bytes. While they are written, as many again can wait.
const BYTES_MAX: usize = 4 << 20;
/// Additional room for the line that reports lost lines.
const RESERVED_BYTES: usize = 4 << 10;
/// Capacity that is kept for the next lines after a write.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// How long the thread collects lines before it writes them. Meanwhile, a new line does not wake the thread.
const COLLECTING: Duration = Duration::from_millis(5);
/// Pause before the next attempt to write to a non-blocking output that accepts nothing now.
const WOULD_BLOCK_PAUSE: Duration = Duration::from_millis(10);
/// How long the end of a process waits for an output that accepts nothing.
const STALLED_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum number of these waits for an output that accepts some lines.
const STALLED_TIMES_MAX: u32 = 5;

/// Number of lines that the output did not accept.
static LINES_LOST: AtomicU64 = AtomicU64::new(0);

/// Returns how many log lines of this process were lost because the output did not accept them.
pub fn lines_lost() -> u64 {
    LINES_LOST.load(Ordering::Relaxed)
}

fn count_lost(lines: u64) {
    LINES_LOST.fetch_add(lines, Ordering::Relaxed);
}

/// How lines are written to an output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batching {
    collecting: Duration,
    piece_bytes_max: usize,
}

impl Batching {
    /// Large writes.
    pub(super) const LARGE: Self = Self { collecting: COLLECTING, piece_bytes_max: 64 << 10 };
    /// For a pipe shared with other processes. Writes of at most `PIPE_BUF` bytes (POSIX; 4096 on Linux, at least 512
    /// elsewhere) are not interleaved, so shorter lines stay whole.
    pub(super) const SHARED: Self = Self { piece_bytes_max: 4 << 10, ..Self::LARGE };
    /// Immediate writes, because a person waits.
    pub(super) const AT_ONCE: Self = Self { collecting: Duration::ZERO, ..Self::LARGE };
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Number of lines that did not fit and were not reported yet.
    lost: u64,
    thread: Thread,
    /// The process ends, so the thread writes the last lines.
    is_ending: bool,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Thread {
    /// Running. It checks for lines before it waits.
    #[default]
    Runs,
    /// Waiting for a line.
    WaitsForLine,
    /// Waiting a moment for further lines.
    Collects,
}

/// The buffer between the logging threads and the writer thread.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// Signals that the thread has ended.
    ended: Condvar,
    /// Number of bytes that the output accepted.
    taken: AtomicU64,
}

impl LineBuffer {
    /// Starts the thread that writes lines to `output`.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(super) fn start(output: impl Write + Send + 'static, batching: Batching) -> io::Result<Arc<Self>> {
        let buffer = Arc::new(Self::default());
        let of_thread = Arc::clone(&buffer);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || of_thread.write_to(&mut Output::new(output, batching)))?;
        Ok(buffer)
    }

    fn add(&self, line: &[u8], kind: Kind) {
        let room = match kind {
            Kind::Report => BYTES_MAX.saturating_add(RESERVED_BYTES),
            Kind::Plain | Kind::Urgent => BYTES_MAX,
        };
        let mut waiting = self.waiting.lock();
        if waiting.lines.len().saturating_add(line.len()) > room {
            waiting.lost = waiting.lost.saturating_add(1);
            count_lost(1);
            return;
        }
        waiting.lines.extend_from_slice(line);
        let is_awaited = match waiting.thread {
            Thread::Runs => false,
            Thread::WaitsForLine => true,
            Thread::Collects => kind == Kind::Urgent,
        };
        if is_awaited {
            waiting.thread = Thread::Runs;
            self.wake.notify_one();
        }
    }

    fn write_to(&self, output: &mut Output<impl Write>) {
        let mut lines = Vec::new();
        // Lines that no report has covered.
        let mut lost = 0_u64;
        while self.next(&mut lines, output.batching.collecting) {
            match output.write(&lines, &self.taken) {
                Ok(()) => {
                    lost = lost.saturating_add(std::mem::take(&mut self.waiting.lock().lost));
                    if lost > 0 {
                        // The report follows the last line that fit.
                        tracing::warn!(
                            target: TARGET,
                            lines = lost,
                            "{lost} log lines were lost, because the output of the log did not take them"
                        );
                        lost = 0;
                    }
                }
                Err(lines) => {
                    count_lost(lines);
                    lost = lost.saturating_add(lines);
                }
            }
            lines.clear();
            lines.shrink_to(KEPT_BYTES_MAX);
        }
    }

    /// Waits for lines, and takes them. Returns `false` at the end of the process when no lines are left.
    fn next(&self, lines: &mut Vec<u8>, collecting: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        while waiting.lines.is_empty() {
            if waiting.is_ending {
                waiting.has_ended = true;
                self.ended.notify_all();
                return false;
            }
            waiting.thread = Thread::WaitsForLine;
            self.wake.wait(&mut waiting);
        }
        if !collecting.is_zero() && !waiting.is_ending {
            waiting.thread = Thread::Collects;
            self.wake.wait_for(&mut waiting, collecting);
        }
        waiting.thread = Thread::Runs;
        std::mem::swap(&mut waiting.lines, lines);
        true
    }

    /// Waits until all lines so far are written, while the output accepts some.
    pub(super) fn end(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_ending = true;
        self.wake.notify_one();
        for _ in 0..STALLED_TIMES_MAX {
            if waiting.has_ended {
                return;
            }
            let before = self.taken.load(Ordering::Relaxed);
            let waited = self.ended.wait_for(&mut waiting, STALLED_TIME_MAX);
            if waited.timed_out() && self.taken.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

/// The output of the thread.
struct Output<W> {
    to: W,
    batching: Batching,
    /// Whether the output ends within a line, because a write failed there.
    is_torn: bool,
}

impl<W: Write> Output<W> {
    fn new(to: W, batching: Batching) -> Self {
        Self { to, batching, is_torn: false }
    }

    /// Writes whole lines, and adds the bytes written to `taken`. If the output fails, returns the number of lines that
    /// were not written.
    fn write(&mut self, lines: &[u8], taken: &AtomicU64) -> Result<(), u64> {
        if self.is_torn && matches!(self.to.write(b"\n"), Ok(1)) {
            self.is_torn = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match self.to.write(self.piece(rest)) {
                Ok(length @ 1..) => {
                    taken.fetch_add(u64::try_from(length).unwrap_or(u64::MAX), Ordering::Relaxed);
                    let (written, others) = rest.split_at(length.min(rest.len()));
                    self.is_torn = !written.ends_with(b"\n");
                    rest = others;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(WOULD_BLOCK_PAUSE),
                Ok(0) | Err(_) => {
                    let lines = rest.iter().filter(|byte| **byte == b'\n').count();
                    return Err(u64::try_from(lines).unwrap_or(u64::MAX));
                }
            }
        }
        Ok(())
    }

    /// Returns the next piece to write: as many whole lines as fit in one write.
    fn piece<'a>(&self, lines: &'a [u8]) -> &'a [u8] {
        let Some(start) = lines.get(..self.batching.piece_bytes_max) else { return lines };
        let end =
            start.iter().rposition(|byte| *byte == b'\n').map_or(start.len(), |at| at.saturating_add(1));
        start.get(..end).unwrap_or(start)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// A line of the audit trail. It is written immediately, so that few are lost if the process is killed.
    Urgent,
    /// A report of lost lines.
    Report,
}

/// Creates the writers of lines.
#[derive(Debug, Clone)]
pub(super) struct Lines(pub(super) Arc<LineBuffer>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { buffer: &self.0, kind: Kind::Plain }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        let kind = match metadata.target() {
            TARGET => Kind::Report,
            audit::TARGET => Kind::Urgent,
            _ => Kind::Plain,
        };
        Line { buffer: &self.0, kind }
    }
}

/// The writer of one line, which must be written whole.
pub(super) struct Line<'a> {
    buffer: &'a LineBuffer,
    kind: Kind,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.buffer.add(line, self.kind);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::testing::captured_output::Written;

    /// Accepts lines only after it is opened.
    struct Gated {
        open: Receiver<()>,
        is_open: bool,
        written: Written,
    }

    impl Gated {
        fn new() -> (Sender<()>, Written, Self) {
            let (opener, open) = channel();
            let written = Written::default();
            (opener, written.clone(), Self { open, is_open: false, written })
        }
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.is_open {
                // An error means that the sender was dropped.
                self.open.recv().map_err(|_| io::Error::from(ErrorKind::StorageFull))?;
                self.is_open = true;
            }
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn add_lines(buffer: &LineBuffer, lines: usize) {
        let line = format!("{}\n", "x".repeat(1023));
        (0..lines).for_each(|_| buffer.add(line.as_bytes(), Kind::Plain));
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_and_nobody_waits() {
        let (opener, written, output) = Gated::new();
        let buffer = LineBuffer::start(output, Batching::AT_ONCE).unwrap();
        // One buffer being written, another one waiting, and more.
        add_lines(&buffer, 3 * BYTES_MAX / 1024);
        let lost = buffer.waiting.lock().lost;
        assert!(lost >= u64::try_from(BYTES_MAX / 1024).unwrap() && lines_lost() >= lost, "{lost}");
        opener.send(()).unwrap();
        buffer.end();
        let arrived = u64::try_from(written.lines().len()).unwrap();
        assert_eq!(arrived + lost, u64::try_from(3 * BYTES_MAX / 1024).unwrap());
        assert_eq!(buffer.waiting.lock().lost, 0, "they were told");
    }

    #[test]
    fn the_end_waits_for_an_output_that_works_and_not_for_one_that_does_not() {
        for batching in [Batching::LARGE, Batching::SHARED, Batching::AT_ONCE] {
            let written = Written::default();
            let buffer = LineBuffer::start(written.clone(), batching).unwrap();
            add_lines(&buffer, 1000);
            buffer.end();
            assert_eq!(written.lines().len(), 1000);
        }
        let (_opener, written, output) = Gated::new();
        let buffer = LineBuffer::start(output, Batching::LARGE).unwrap();
        add_lines(&buffer, 1000);
        // Would otherwise not return.
        buffer.end();
        assert!(written.lines().is_empty());
    }

    #[test]
    fn an_output_that_fails_loses_lines_and_is_tried_again() {
        let (opener, _, output) = Gated::new();
        drop(opener);
        let mut output = Output::new(output, Batching::LARGE);
        let taken = AtomicU64::new(0);
        assert_eq!(output.write(b"one\ntwo\n", &taken), Err(2));
        let mut output = Output::new(Vec::new(), Batching::LARGE);
        output.is_torn = true;
        assert_eq!(output.write(b"three\n", &taken), Ok(()));
        assert_eq!(output.to, b"\nthree\n", "it does not continue a line of which a part was written");
    }

    #[test]
    fn what_is_written_in_one_call_ends_with_a_line_if_one_fits() {
        let output = Output::new(io::sink(), Batching { piece_bytes_max: 8, ..Batching::LARGE });
        for (lines, piece) in [
            ("one\ntwo\nthree\n", "one\ntwo\n"),
            ("one\n", "one\n"),
            ("one\nthree\n", "one\n"),
            ("a long line\n", "a long l"),
        ] {
            assert_eq!(output.piece(lines.as_bytes()), piece.as_bytes());
        }
    }
}
