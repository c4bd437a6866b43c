//! The items of a batch document, one after the other, in bounded memory: the document is never in memory as a whole.
//! As with single requests, every format gives the same members.

mod csv;
mod ndjson;
mod plain;

use std::io::{self, BufRead, Read};

pub use self::csv::Csv;
pub use self::ndjson::NdJson;
pub use self::plain::{BatchItem, PlainItem};
use crate::error::ApiError;
use crate::formats::members::Members;

/// Maximum size of an item in bytes. The largest valid one needs less, also if each of its characters is written as an
/// escape sequence.
pub const ITEM_BYTES_MAX: usize = 64 * 1024;

/// The items of a document in their order.
pub trait Items {
    /// Returns the next item, or the reason why this item cannot be parsed; `None` at the end.
    ///
    /// # Errors
    /// [`Broken`] if the rest of the document cannot be read.
    fn next(&mut self) -> Result<Option<Result<Parsed, ApiError>>, Broken>;
}

/// An item as it was parsed.
#[derive(Debug)]
pub enum Parsed {
    /// A valid item.
    Plain(Box<BatchItem>),
    /// The members of an item that may be valid.
    Members(Members),
}

/// The reason why the rest of a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection or the decompression failed.
    #[error("The body cannot be read: {0}.")]
    Input(#[from] io::Error),
    /// An item is larger than [`ITEM_BYTES_MAX`].
    #[error("An item has more than {ITEM_BYTES_MAX} bytes.")]
    TooLong,
    /// The document does not have the form of its format.
    #[error("{0}")]
    Form(String),
}

/// A document whose items can be read.
type Opened = Result<Box<dyn Items>, Broken>;

/// A format of batch documents.
pub struct ItemFormat {
    /// The media type.
    pub media_type: &'static str,
    /// Starts to read a document.
    pub open: fn(Box<dyn BufRead>) -> Opened,
}

/// All formats of batch documents.
pub static ITEM_FORMATS: &[ItemFormat] = &[
    ItemFormat { media_type: "application/x-ndjson", open: |input| Ok(Box::new(NdJson::new(input))) },
    ItemFormat { media_type: "text/csv", open: |input| Ok(Box::new(Csv::new(input)?)) },
];

/// Reads a line of at most [`ITEM_BYTES_MAX`] bytes into `line`, without its end. Returns false at the end of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, Broken> {
    line.clear();
    let limit = u64::try_from(ITEM_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    if input.take(limit).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    let text = line.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line).len());
    match text {
        Some(length) => line.truncate(length),
        None if line.len() > ITEM_BYTES_MAX => return Err(Broken::TooLong),
        None => {}
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
