//! The file of the results. It gets its name when it is complete.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// The result of an item. A newer service may report more.
#[derive(Debug, Deserialize, Serialize)]
struct ResultLine {
    line: u64,
    message_id: Option<String>,
    status: String,
    order_number: Option<String>,
    balance_after: Option<String>,
    reason: Option<String>,
}

impl ResultLine {
    /// Returns whether the item is posted, by this batch or by an earlier request.
    fn is_posted(&self) -> bool {
        match self.status.as_str() {
            "posted" => true,
            "replayed" => self.reason.is_none(),
            _ => false,
        }
    }
}

/// The output in one of the two formats.
enum Output {
    NdJson(BufWriter<File>),
    Csv(Box<csv::Writer<File>>),
}

/// The results so far.
pub struct ResultsFile {
    path: PathBuf,
    part: PathBuf,
    output: Option<Output>,
    /// The number of results.
    pub lines: u64,
    unposted: u64,
}

impl ResultsFile {
    /// Creates the file under another name.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let mut part = path.to_owned().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).with_context(|| format!("{} cannot be created", part.display()))?;
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let csv = |file| csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(file);
        let output =
            if is_csv { Output::Csv(Box::new(csv(file))) } else { Output::NdJson(BufWriter::new(file)) };
        Ok(Self { path: path.to_owned(), part, output: Some(output), lines: 0, unposted: 0 })
    }

    /// Adds the result of the next item, a line of NDJSON without its end.
    ///
    /// # Errors
    /// When it is not that of the next item, or cannot be written.
    pub fn add(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let result: ResultLine = serde_json::from_slice(line).context("a result has another form")?;
        let expected = self.lines.saturating_add(1);
        if result.line != expected {
            bail!("the service sent the result of line {} instead of {expected}", result.line);
        }
        self.lines = expected;
        self.unposted = self.unposted.saturating_add(u64::from(!result.is_posted()));
        let written = match &mut self.output {
            Some(Output::NdJson(file)) => file.write_all(line).and_then(|()| file.write_all(b"\n")),
            Some(Output::Csv(writer)) => writer.serialize(&result).map_err(std::io::Error::from),
            None => Ok(()),
        };
        written.with_context(|| self.cannot_be_written())
    }

    /// Gives the file its name, once it is on disk. Returns the number of items that are not posted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> anyhow::Result<u64> {
        let file = match self.output.take() {
            Some(Output::NdJson(file)) => file.into_inner().map_err(|error| error.into_error()),
            Some(Output::Csv(writer)) => writer.into_inner().map_err(|error| error.into_error()),
            None => return Ok(self.unposted),
        };
        let named = file.and_then(|file| file.sync_all()).and_then(|()| fs::rename(&self.part, &self.path));
        named.with_context(|| self.cannot_be_written())?;
        Ok(self.unposted)
    }

    fn cannot_be_written(&self) -> String {
        format!("{} cannot be written", self.path.display())
    }
}

impl Drop for ResultsFile {
    fn drop(&mut self) {
        // After `finish` it has another name.
        drop(fs::remove_file(&self.part));
    }
}
