//! Results file, which gets its name only when it is complete.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use postonce_schemas::json::{BatchItemStatus, BatchResult};
use postonce_shared::files::NewFile;

use crate::api::batch_report::{COLUMNS, cells};

/// Returns whether the item is posted, by this batch or by an earlier request.
const fn is_posted(result: &BatchResult) -> bool {
    match result.status {
        BatchItemStatus::Posted => true,
        BatchItemStatus::Replayed => result.reason.is_none(),
        BatchItemStatus::Rejected
        | BatchItemStatus::Refused
        | BatchItemStatus::Invalid
        | BatchItemStatus::Other(_) => false,
    }
}

enum Output {
    NdJson(BufWriter<File>),
    Csv(Box<csv::Writer<File>>),
}

/// Results that were received so far.
pub struct ResultsFile {
    path: PathBuf,
    file: NewFile,
    output: Option<Output>,
    /// Number of results.
    pub lines: u64,
    unposted: u64,
}

impl ResultsFile {
    /// Creates the file under a temporary name. Only its owner can read it. It can replace only a regular file.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let create = || {
            let file = NewFile::create(path)?;
            let output = file.file().try_clone()?;
            Ok::<_, std::io::Error>((file, output))
        };
        let (file, output) = create().with_context(|| format!("{} cannot be created", path.display()))?;
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let output = if is_csv {
            let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(output);
            writer.write_record(COLUMNS)?;
            Output::Csv(Box::new(writer))
        } else {
            Output::NdJson(BufWriter::new(output))
        };
        Ok(Self { path: path.to_owned(), file, output: Some(output), lines: 0, unposted: 0 })
    }

    /// Adds the result of the next item: a line of NDJSON without its line end.
    ///
    /// # Errors
    /// When the line is not the result of the next item, or cannot be written.
    pub fn add(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let result: BatchResult = serde_json::from_slice(line).context("a result has another form")?;
        let expected = self.lines.saturating_add(1);
        if u64::from(result.line) != expected {
            bail!("the service sent the result of line {} instead of {expected}", result.line);
        }
        self.lines = expected;
        self.unposted = self.unposted.saturating_add(u64::from(!is_posted(&result)));
        let written = match &mut self.output {
            Some(Output::NdJson(file)) => file.write_all(line).and_then(|()| file.write_all(b"\n")),
            Some(Output::Csv(writer)) => writer.write_record(cells(&result)).map_err(std::io::Error::from),
            None => Ok(()),
        };
        written.with_context(|| self.cannot_be_written())
    }

    /// Syncs the file and renames it to its final name. Returns the number of items that are not posted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> anyhow::Result<u64> {
        let written = match self.output.take() {
            Some(Output::NdJson(mut file)) => file.flush(),
            Some(Output::Csv(mut writer)) => writer.flush(),
            None => Ok(()),
        };
        let failed = self.cannot_be_written();
        written.and_then(|()| self.file.publish()).context(failed)?;
        Ok(self.unposted)
    }

    fn cannot_be_written(&self) -> String {
        format!("{} cannot be written", self.path.display())
    }
}
