//! Labels log lines with their process, because several workers of one supervisor write to the same output.

use std::io::{self, Write};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// Inserts a label into each line. Lines must be written whole.
pub(super) struct Labelled {
    inner: BoxMakeWriter,
    label: Label,
}

#[derive(Debug, Clone)]
enum Label {
    /// Inserted before the line.
    Text(String),
    /// Inserted as the first member of the JSON object.
    Member(String),
}

impl Labelled {
    /// Labels text lines with the process.
    pub(super) fn text(inner: BoxMakeWriter, process: u32) -> Self {
        Self { inner, label: Label::Text(format!("worker={process} ")) }
    }

    /// Labels JSON lines with the process.
    pub(super) fn json(inner: BoxMakeWriter, process: u32) -> Self {
        Self { inner, label: Label::Member(format!("{{\"worker\":{process},")) }
    }
}

impl<'a> MakeWriter<'a> for Labelled {
    type Writer = Lines<'a>;

    fn make_writer(&'a self) -> Lines<'a> {
        Lines { inner: Box::new(self.inner.make_writer()), label: self.label.clone() }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Lines<'a> {
        Lines { inner: Box::new(self.inner.make_writer_for(metadata)), label: self.label.clone() }
    }
}

/// The writer of one line.
pub(super) struct Lines<'a> {
    inner: Box<dyn Write + 'a>,
    label: Label,
}

impl Write for Lines<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let labelled = match &self.label {
            Label::Text(text) => [text.as_bytes(), line].concat(),
            Label::Member(member) => [member.as_bytes(), line.strip_prefix(b"{").unwrap_or(line)].concat(),
        };
        // Written in one call, so that the line is not split.
        self.inner.write_all(&labelled)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::captured_output::Written;

    #[test]
    fn a_line_names_its_process() {
        let written = Written::default();
        let inner = || {
            let written = written.clone();
            BoxMakeWriter::new(move || written.clone())
        };
        Labelled::text(inner(), 17).make_writer().write_all(b"INFO started\n").unwrap();
        Labelled::json(inner(), 18).make_writer().write_all(b"{\"level\":\"INFO\"}\n").unwrap();
        assert_eq!(written.lines(), ["worker=17 INFO started", "{\"worker\":18,\"level\":\"INFO\"}"]);
    }
}
