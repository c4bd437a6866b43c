//! Rate limit for equal warnings and errors. An outage fails every request, and thousands of equal lines hide the first
//! ones and fill the disk.
//!
//! The limit applies per call site, because the texts contain ids. It is applied in the writer, because an event filter
//! cannot know whether another filter drops the event.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::line_buffer;
use crate::config::LogFormat;
use crate::oversight::audit;
use crate::ports::fault::EVIDENCE;
use crate::ports::world::World;

/// Maximum number of lines per call site and period. The last one notes that further lines are only counted.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// Writes at most ten warnings or errors per minute and call site. All other lines, the audit trail, and lines about
/// damaged rows and lost lines are not limited.
pub(super) struct Limited {
    inner: BoxMakeWriter,
    format: LogFormat,
    world: Arc<dyn World>,
    places: Mutex<HashMap<Identifier, Period>>,
}

#[derive(Debug)]
struct Period {
    /// Uptime of the process at the start of the period.
    began: Duration,
    written: u32,
    not_written: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Write,
    /// Write the last line of the period.
    WriteLast,
    /// Write the first line of a period, after this number of dropped lines.
    WriteAfter(u64),
    Drop,
}

impl Limited {
    pub(super) fn new(inner: BoxMakeWriter, format: LogFormat, world: Arc<dyn World>) -> Self {
        Self { inner, format, world, places: Mutex::default() }
    }

    fn judge(&self, metadata: &Metadata<'_>) -> Verdict {
        if *metadata.level() > Level::WARN
            || [audit::TARGET, EVIDENCE, line_buffer::TARGET].contains(&metadata.target())
        {
            return Verdict::Write;
        }
        let now = self.world.uptime();
        let mut places = self.places.lock();
        let period =
            places.entry(metadata.callsite()).or_insert(Period { began: now, written: 0, not_written: 0 });
        if now.saturating_sub(period.began) >= PERIOD {
            let not_written = period.not_written;
            *period = Period { began: now, written: 1, not_written: 0 };
            return if not_written == 0 { Verdict::Write } else { Verdict::WriteAfter(not_written) };
        }
        if period.written >= LINES_MAX {
            period.not_written = period.not_written.saturating_add(1);
            return Verdict::Drop;
        }
        period.written = period.written.saturating_add(1);
        if period.written == LINES_MAX { Verdict::WriteLast } else { Verdict::Write }
    }

    fn line<'a>(&self, inner: Box<dyn Write + 'a>, verdict: Verdict) -> LimitedLine<'a> {
        let note = match verdict {
            Verdict::Write | Verdict::Drop => None,
            Verdict::WriteLast => Some(("limited", format!("{} s", PERIOD.as_secs()))),
            Verdict::WriteAfter(count) => Some(("not_written", count.to_string())),
        };
        let note = note.map(|(name, value)| match self.format {
            LogFormat::Text => format!(" {name}={value:?}"),
            LogFormat::Json => format!(",\"{name}\":{value:?}"),
        });
        LimitedLine { inner: (verdict != Verdict::Drop).then_some(inner), note, format: self.format }
    }
}

impl<'a> MakeWriter<'a> for Limited {
    type Writer = LimitedLine<'a>;

    fn make_writer(&'a self) -> LimitedLine<'a> {
        self.line(Box::new(self.inner.make_writer()), Verdict::Write)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LimitedLine<'a> {
        self.line(Box::new(self.inner.make_writer_for(metadata)), self.judge(metadata))
    }
}

/// The writer of one line, which must be written whole.
pub(super) struct LimitedLine<'a> {
    /// `None` if the line is dropped.
    inner: Option<Box<dyn Write + 'a>>,
    note: Option<String>,
    format: LogFormat,
}

impl Write for LimitedLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(inner) = &mut self.inner else { return Ok(line.len()) };
        let end: &[u8] = match self.format {
            LogFormat::Text => b"\n",
            LogFormat::Json => b"}\n",
        };
        match (&self.note, line.strip_suffix(end)) {
            // Written in one call, so that the line is not split.
            (Some(note), Some(start)) => inner.write_all(&[start, note.as_bytes(), end].concat())?,
            (Some(_), None) | (None, _) => inner.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.as_mut().map_or(Ok(()), Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{Layer as _, fmt};

    use super::*;
    use crate::adapters::memory::world::TestWorld;
    use crate::testing::captured_output::Written;

    /// Logs through the library like a process, and returns the lines.
    fn logged(format: LogFormat, log: impl FnOnce(&TestWorld)) -> Vec<String> {
        let written = Written::default();
        let world = Arc::new(TestWorld::new(1));
        let inner = BoxMakeWriter::new({
            let written = written.clone();
            move || written.clone()
        });
        let lines = fmt::layer().with_ansi(false).without_time().with_target(false);
        let limited = Limited::new(inner, format, Arc::<TestWorld>::clone(&world));
        let lines = match format {
            LogFormat::Text => lines.with_writer(limited).boxed(),
            LogFormat::Json => lines.with_writer(limited).json().flatten_event(true).boxed(),
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || log(&world));
        written.lines()
    }

    fn fail(request: u32) {
        tracing::error!(request, "failed");
    }

    #[test]
    fn ten_equal_errors_a_minute_are_written_and_the_others_counted() {
        let lines = logged(LogFormat::Text, |world| {
            (1..=30).for_each(fail);
            tracing::warn!("another place");
            (1..=30).for_each(|request| tracing::info!(request, "answered"));
            world.advance(PERIOD);
            (31..=32).for_each(fail);
        });
        let errors: Vec<&str> =
            lines.iter().filter(|line| line.contains("ERROR")).map(String::as_str).collect();
        assert_eq!(errors.len(), 12, "{lines:#?}");
        assert!(errors[8].ends_with("request=9") && errors[9].ends_with("request=10 limited=\"60 s\""));
        assert!(errors[10].ends_with("request=31 not_written=\"20\"") && errors[11].ends_with("request=32"));
        assert_eq!(lines.iter().filter(|line| line.contains("WARN")).count(), 1);
        assert_eq!(lines.iter().filter(|line| line.contains("INFO")).count(), 30, "they are not limited");
    }

    #[test]
    fn a_counted_line_is_still_valid_json() {
        let lines = logged(LogFormat::Json, |world| {
            (1..=11).for_each(fail);
            world.advance(PERIOD);
            fail(12);
        });
        let members: Vec<serde_json::Value> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(members.len(), 11);
        assert_eq!((&members[9]["limited"], &members[9]["request"]), (&"60 s".into(), &10.into()));
        assert_eq!((&members[10]["not_written"], &members[10]["request"]), (&"1".into(), &12.into()));
    }

    #[test]
    fn the_audit_trail_and_evidence_are_complete() {
        let lines = logged(LogFormat::Text, |_| {
            (0..30).for_each(|row| tracing::warn!(target: audit::TARGET, row, "an act"));
            (0..30).for_each(|row| tracing::error!(target: EVIDENCE, row, "a damaged row"));
        });
        assert_eq!(lines.len(), 60);
    }
}
