//! The way of a log line to its output: a bounded buffer, and a thread that writes it.
//!
//! Whoever logs never waits for the output, which may be a pipe that nobody reads, a paused terminal or a full disk. Lines
//! that find no room are counted; their number is logged as soon as the output takes lines again.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use crate::oversight::audit;

/// The target of the line that tells how many lines were lost.
pub(super) const TARGET: &str = "postonce::log";

/// Maximum size of the lines that wait. While they are written, as many others can wait.
const BYTES_MAX: usize = 4 << 20;
/// Room beyond it for the line that tells how many were lost.
const RESERVED_BYTES: usize = 4 << 10;
/// Memory that is kept for the next lines after they were written.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// How long the thread collects lines before it writes them. While it does, a new line wakes no thread.
const COLLECTING: Duration = Duration::from_millis(5);
/// Pause before the next attempt at an output that is set not to block and takes nothing now.
const WOULD_BLOCK_PAUSE: Duration = Duration::from_millis(10);
/// The end of a process waits for so long for an output that takes nothing …
const STALLED_TIME_MAX: Duration = Duration::from_secs(1);
/// … and so often for one that takes some.
const STALLED_TIMES_MAX: u32 = 5;

/// Lines of this process that no output took.
static LINES_LOST: AtomicU64 = AtomicU64::new(0);

/// Returns how many log lines of this process were lost, because the output did not take them.
pub fn lines_lost() -> u64 {
    LINES_LOST.load(Ordering::Relaxed)
}

fn count_lost(lines: u64) {
    LINES_LOST.fetch_add(lines, Ordering::Relaxed);
}

/// How lines are written to an output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batching {
    /// How long lines are collected before they are written.
    collecting: Duration,
    /// Maximum size of what is written in one call.
    piece_bytes_max: usize,
}

impl Batching {
    /// In large pieces.
    pub(super) const LARGE: Self = Self { collecting: COLLECTING, piece_bytes_max: 64 << 10 };
    /// For a pipe that other processes write to, too. Smaller writes than `PIPE_BUF` (POSIX; 4096 bytes on Linux, at least 512
    /// elsewhere) are not mixed with theirs, so shorter lines stay whole.
    pub(super) const SHARED: Self = Self { piece_bytes_max: 4 << 10, ..Self::LARGE };
    /// At once: a person waits.
    pub(super) const AT_ONCE: Self = Self { collecting: Duration::ZERO, ..Self::LARGE };
}

/// Lines that wait to be written.
#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines that found no room, and were not told yet.
    lost: u64,
    thread: Thread,
    /// The process ends: the thread writes the last lines.
    is_ending: bool,
    /// The thread has ended.
    has_ended: bool,
}

/// What the thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Thread {
    /// It runs. It looks for lines before it waits.
    #[default]
    Runs,
    /// It waits for a line.
    WaitsForLine,
    /// It waits a moment for more lines.
    Collects,
}

/// Lines between those who log and the thread that writes.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    waiting: Mutex<Waiting>,
    /// Wakes the thread.
    wake: Condvar,
    /// The thread has ended.
    ended: Condvar,
    /// Bytes that the output took.
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

    /// Adds a line. Never waits for the output.
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

    /// Writes lines until the process ends.
    fn write_to(&self, output: &mut Output<impl Write>) {
        let mut lines = Vec::new();
        // Lines that no report has told.
        let mut lost = 0_u64;
        while self.next(&mut lines, output.batching.collecting) {
            match output.write(&lines, &self.taken) {
                Ok(()) => {
                    lost = lost.saturating_add(std::mem::take(&mut self.waiting.lock().lost));
                    if lost > 0 {
                        // It follows the last line that found room.
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

    /// Waits for lines, and takes them. Returns false at the end of the process, when there are none left.
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

    /// Waits until the lines so far are written, as long as the output takes some.
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

/// Where the thread writes.
struct Output<W> {
    to: W,
    batching: Batching,
    /// Whether the output ends within a line, because it failed there.
    is_torn: bool,
}

impl<W: Write> Output<W> {
    fn new(to: W, batching: Batching) -> Self {
        Self { to, batching, is_torn: false }
    }

    /// Writes whole lines, and adds to `taken`. If the output fails, returns the number of lines that it did not take.
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

    /// Returns what is written next: as many lines as fit in one call.
    fn piece<'a>(&self, lines: &'a [u8]) -> &'a [u8] {
        let Some(start) = lines.get(..self.batching.piece_bytes_max) else { return lines };
        let end =
            start.iter().rposition(|byte| *byte == b'\n').map_or(start.len(), |at| at.saturating_add(1));
        start.get(..end).unwrap_or(start)
    }
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Of the audit trail: it is written at once, so that a process that is killed loses few.
    Urgent,
    /// It tells how many lines were lost.
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

/// The writer of a line, which arrives whole.
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
    use crate::testing::written::Written;

    /// Takes lines only after it was opened.
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
                // An error: it was dropped.
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
        // What is being written, as much again that waits, and more.
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
        // It would not return.
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
