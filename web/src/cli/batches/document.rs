//! Document of a batch: its format, its id, and the body of the request.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use futures::stream;
use postonce_shared::files::{create_unnamed, open_regular};
use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, RequestBuilder};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::progress::Progress;
use crate::api::batch_upload::EXPANDED_BYTES_MAX;

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

const STANDARD_INPUT: &str = "-";
/// Folders with names of open files and devices. Results are not written beside such a name.
const SYSTEM_FOLDERS: [&str; 2] = ["/dev", "/proc"];

/// Document to send.
///
/// The id and every attempt read the same open file. An input that can be read only once, such as standard input or a
/// pipe, is first copied to an unnamed file.
#[derive(Debug)]
pub struct Document {
    name: String,
    file: Arc<File>,
    /// Path of the document; `None` if results cannot be written beside it.
    path: Option<PathBuf>,
    format: DocumentFormat,
    encoding: Option<&'static str>,
    bytes: u64,
    digest: [u8; 32],
    /// Reason why an attempt failed while it read the document. The document is then not sent again.
    broken: Arc<OnceLock<String>>,
    /// Id that is derived from the bytes of the document.
    pub id: Uuid,
}

impl Document {
    /// Reads the document once to derive its id. The path `-` is standard input.
    ///
    /// # Errors
    /// When the format is unknown, or the document is a folder, is too large, or cannot be read.
    pub fn open(path: &Path, format: Option<DocumentFormat>, progress: &Progress) -> anyhow::Result<Self> {
        let (named, encoding) = form(path);
        let is_standard_input = path == Path::new(STANDARD_INPUT);
        let name = if is_standard_input { "standard input".to_owned() } else { path.display().to_string() };
        let Some(format) = format.or(named) else {
            bail!("{name} does not end with .ndjson, .jsonl, .csv or .xml; name its --format");
        };
        let reading = || format!("{name} cannot be read");
        let kind = if is_standard_input { None } else { Some(fs::metadata(path).with_context(reading)?) };
        let is_regular = kind.as_ref().is_some_and(fs::Metadata::is_file);
        let file = match kind.as_ref().map(fs::Metadata::file_type) {
            None => spooled(io::stdin().lock(), &name, progress)?,
            Some(kind) if kind.is_fifo() || kind.is_char_device() => {
                progress.note(&format!("{name} is read until its end, and copied"));
                spooled(File::open(path).with_context(reading)?, &name, progress)?
            }
            // Refuses folders and other files that are not regular.
            Some(_) => open_regular(path).with_context(reading)?,
        };
        let (bytes, digest) = digest(&file, &name, progress)?;
        let start = digest.first_chunk().copied().unwrap_or_default();
        let encoding = encoding.or_else(|| if is_regular { None } else { compression(&file) });
        let is_of_system = SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder));
        Ok(Self {
            name,
            file: Arc::new(file),
            path: (is_regular && !is_of_system).then(|| path.to_owned()),
            format,
            encoding,
            bytes,
            digest,
            broken: Arc::default(),
            id: uuid::Builder::from_custom_bytes(start).into_uuid(),
        })
    }

    /// Adds the document to a request, which reads it in pieces and fails before the last one if the document has changed.
    ///
    /// # Errors
    /// When an earlier request failed for that reason.
    pub fn send(&self, request: RequestBuilder, progress: &Arc<Progress>) -> anyhow::Result<RequestBuilder> {
        if let Some(why) = self.broken.get() {
            bail!("{} {why}", self.name);
        }
        let request =
            request.header(CONTENT_TYPE, self.format.media_type()).header(CONTENT_LENGTH, self.bytes);
        let request = match self.encoding {
            Some(encoding) => request.header(CONTENT_ENCODING, encoding),
            None => request,
        };
        progress.start("sent", self.bytes);
        Ok(request.body(self.body(Arc::clone(progress))))
    }

    /// Returns the default path of the results: beside the document, or the id of the batch in the working directory.
    pub fn results_path(&self, id: Uuid) -> PathBuf {
        let place =
            self.path.as_ref().map_or_else(|| id.to_string().into(), |path| path.as_os_str().to_owned());
        let mut path = place;
        path.push(if self.format == DocumentFormat::Csv { ".results.csv" } else { ".results.ndjson" });
        path.into()
    }

    /// Returns whether the path leads to the document itself.
    pub fn is_at(&self, path: &Path) -> bool {
        let place = |found: fs::Metadata| (found.dev(), found.ino());
        let found = self.file.metadata().map(place).ok();
        found.is_some() && found == fs::metadata(path).map(place).ok()
    }

    fn body(&self, progress: Arc<Progress>) -> Body {
        let (file, broken) = (Arc::clone(&self.file), Arc::clone(&self.broken));
        let (bytes, digest) = (self.bytes, self.digest);
        let pieces = stream::try_unfold((Sha256::new(), 0_u64), move |(mut sent_digest, sent)| {
            let mut read = || -> Result<Option<(Vec<u8>, u64)>, String> {
                let unread = |error: io::Error| format!("cannot be read: {error}");
                let piece = piece_at(&file, sent, bytes.saturating_sub(sent)).map_err(unread)?;
                sent_digest.update(&piece);
                let sent = sent.saturating_add(length(&piece));
                // Checked before the last piece is sent, because the service stores nothing of an incomplete document.
                let is_end = piece.is_empty() || sent == bytes;
                let is_same = || sent == bytes && sent_digest.clone().finalize() == digest;
                let has_more = || piece_at(&file, bytes, 1).is_ok_and(|more| !more.is_empty());
                if is_end && (!is_same() || has_more()) {
                    return Err("was changed while it was read".to_owned());
                }
                progress.set(sent);
                Ok((!piece.is_empty()).then_some((piece, sent)))
            };
            let read = read().map_err(|why| io::Error::other(broken.get_or_init(|| why).clone()));
            std::future::ready(read.map(|read| read.map(|(piece, sent)| (piece, (sent_digest, sent)))))
        });
        Body::wrap_stream(pieces)
    }
}

/// Copies an input to an unnamed file, which only this process can read.
fn spooled(mut input: impl Read, name: &str, progress: &Progress) -> anyhow::Result<File> {
    let copying = || format!("{name} cannot be copied to the folder {}", std::env::temp_dir().display());
    let mut file = create_unnamed().with_context(copying)?;
    progress.start("read", 0);
    let (mut bytes, mut piece) = (0_u64, vec![0; PIECE_BYTES]);
    loop {
        let size = match input.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.with_context(|| format!("{name} cannot be read"))?,
        };
        let Some(piece) = piece.get(..size).filter(|piece| !piece.is_empty()) else { break };
        bytes = bytes.saturating_add(length(piece));
        check_size(bytes, name)?;
        file.write_all(piece).with_context(copying)?;
        progress.set(bytes);
    }
    Ok(file)
}

/// Reads a whole file. Returns its size and its digest.
fn digest(file: &File, name: &str, progress: &Progress) -> anyhow::Result<(u64, [u8; 32])> {
    let reading = || format!("{name} cannot be read");
    let size = file.metadata().with_context(reading)?.len();
    check_size(size, name)?;
    progress.start("read", size);
    let (mut digest, mut bytes) = (Sha256::new(), 0_u64);
    loop {
        let piece = piece_at(file, bytes, u64::MAX).with_context(reading)?;
        if piece.is_empty() {
            return Ok((bytes, digest.finalize().into()));
        }
        digest.update(&piece);
        bytes = bytes.saturating_add(length(&piece));
        check_size(bytes, name)?;
        progress.set(bytes);
    }
}

/// Refuses a document above the limit of the service, which also applies to decompressed documents.
fn check_size(bytes: u64, name: &str) -> anyhow::Result<()> {
    ensure!(
        bytes <= EXPANDED_BYTES_MAX,
        "{name} has more than {} GiB, the maximum size of a document",
        EXPANDED_BYTES_MAX >> 30
    );
    Ok(())
}

/// Reads at most `left` bytes of a file at a position. Returns no bytes at its end.
fn piece_at(file: &File, position: u64, left: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES)];
    loop {
        match file.read_at(&mut piece, position) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => {
                piece.truncate(read?);
                return Ok(piece);
            }
        }
    }
}

/// Returns the format and the content encoding that a file name indicates.
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

/// Detects compression by the first bytes (RFC 1952, RFC 8878), which no uncompressed document can have.
fn compression(file: &File) -> Option<&'static str> {
    let start = piece_at(file, 0, 4).ok()?;
    match start.as_slice() {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => Some("zstd"),
        _ => None,
    }
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
