//! The document: its format, its id, and the body of the request.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use futures::stream;
use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, RequestBuilder};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::progress::Progress;

/// Size of the pieces of the body, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// A format of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DocumentFormat {
    /// A JSON object on each line
    Ndjson,
    /// A header line, and a record for each item
    Csv,
    /// The canonical XML
    Xml,
}

impl DocumentFormat {
    fn of_extension(extension: &str) -> Option<Self> {
        match extension {
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            "csv" => Some(Self::Csv),
            "xml" => Some(Self::Xml),
            _ => None,
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv",
            Self::Xml => "application/xml",
        }
    }
}

/// A document to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    path: PathBuf,
    format: DocumentFormat,
    encoding: Option<&'static str>,
    bytes: u64,
    /// The id that is derived from its bytes.
    pub id: Uuid,
}

impl Document {
    /// Reads the document once, to derive its id.
    ///
    /// # Errors
    /// When its format is not known, or it cannot be read.
    pub fn open(path: &Path, format: Option<DocumentFormat>, progress: &Progress) -> anyhow::Result<Self> {
        let (named, encoding) = form(path);
        let Some(format) = format.or(named) else {
            bail!("{} does not end with .ndjson, .jsonl, .csv or .xml; name its --format", path.display());
        };
        let read = || -> std::io::Result<(u64, Uuid)> {
            let mut file = File::open(path)?;
            progress.start("read", file.metadata()?.len());
            let (mut digest, mut bytes, mut piece) = (Sha256::new(), 0_u64, vec![0; PIECE_BYTES]);
            loop {
                let size = file.read(&mut piece)?;
                let Some(piece) = piece.get(..size).filter(|piece| !piece.is_empty()) else { break };
                digest.update(piece);
                bytes = bytes.saturating_add(length(piece));
                progress.set(bytes);
            }
            let digest: [u8; 32] = digest.finalize().into();
            let start = digest.first_chunk().copied().unwrap_or_default();
            Ok((bytes, uuid::Builder::from_custom_bytes(start).into_uuid()))
        };
        let (bytes, id) = read().with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(Self { path: path.to_owned(), format, encoding, bytes, id })
    }

    /// Adds the document to a request, which reads it piece by piece.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn send(&self, request: RequestBuilder, progress: &Arc<Progress>) -> anyhow::Result<RequestBuilder> {
        let file =
            File::open(&self.path).with_context(|| format!("{} cannot be read", self.path.display()))?;
        let request =
            request.header(CONTENT_TYPE, self.format.media_type()).header(CONTENT_LENGTH, self.bytes);
        let request = match self.encoding {
            Some(encoding) => request.header(CONTENT_ENCODING, encoding),
            None => request,
        };
        progress.start("sent", self.bytes);
        Ok(request.body(body(file, Arc::clone(progress))))
    }

    /// Returns the file of the results if no other is named.
    pub fn results_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(if self.format == DocumentFormat::Csv { ".results.csv" } else { ".results.ndjson" });
        path.into()
    }
}

/// Returns the format and the encoding that the name of a file shows.
fn form(path: &Path) -> (Option<DocumentFormat>, Option<&'static str>) {
    let extension = |path: &Path| path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
    let encoding = match extension(path).as_str() {
        "gz" => Some("gzip"),
        "zst" => Some("zstd"),
        _ => None,
    };
    let inner = if encoding.is_some() { path.with_extension("") } else { path.to_owned() };
    (DocumentFormat::of_extension(&extension(&inner)), encoding)
}

fn body(file: File, progress: Arc<Progress>) -> Body {
    let pieces = stream::try_unfold((file, 0_u64), move |(mut file, sent)| {
        let progress = Arc::clone(&progress);
        async move {
            let mut piece = vec![0; PIECE_BYTES];
            let size = file.read(&mut piece)?;
            piece.truncate(size);
            let sent = sent.saturating_add(length(&piece));
            progress.set(sent);
            Ok::<_, std::io::Error>((!piece.is_empty()).then_some((piece, (file, sent))))
        }
    });
    Body::wrap_stream(pieces)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_shows_its_format_and_encoding() {
        let check =
            |name: &str, format, encoding| assert_eq!(form(Path::new(name)), (format, encoding), "{name}");
        check("a/payroll.csv", Some(DocumentFormat::Csv), None);
        check("payroll.CSV.GZ", Some(DocumentFormat::Csv), Some("gzip"));
        check("a.b.ndjson.zst", Some(DocumentFormat::Ndjson), Some("zstd"));
        check("a.jsonl", Some(DocumentFormat::Ndjson), None);
        check("a.xml", Some(DocumentFormat::Xml), None);
        check("a.txt", None, None);
        check("csv", None, None);
        check("a.gz", None, Some("gzip"));
    }
}
