//! Reads the items of a batch document one by one, in bounded memory. As for single requests, every format gives the same
//! members.

mod csv;
mod csv_grammar;
mod ndjson;
mod plain;
mod text;
mod xml;

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use postonce_shared::messaging::xml::XmlLimits;
use postonce_shared::text::Charset;

pub use self::csv::Csv;
pub use self::ndjson::NdJson;
pub use self::plain::{BatchItem, PlainItem};
pub use self::xml::Xml;
use crate::error::ApiError;
use crate::formats::members::Members;

/// Maximum size of an item in bytes. The largest valid item is smaller, even if each of its characters is escaped.
pub const ITEM_BYTES_MAX: usize = 64 * 1024;

/// Iterates over the items of a document, including its record of control totals.
pub trait Items {
    /// Returns the next record, or the reason why it cannot be parsed; `None` at the end.
    ///
    /// # Errors
    /// [`ItemsError`] if the rest of the document cannot be read.
    fn next(&mut self) -> Result<Option<Result<Parsed, ApiError>>, ItemsError>;

    /// Returns what was sent as the last record, if it could not be parsed.
    fn sent(&self) -> Vec<u8>;
}

/// A parsed item or record.
#[derive(Debug)]
pub enum Parsed {
    /// A valid item.
    Plain(Box<BatchItem>),
    /// Members to be validated: of an item, or of a record of control totals.
    Members(Members),
}

/// Member that marks a record of control totals.
const CONTROL: &str = "control";

/// Returns whether the members are a record of control totals. The record has no id, and every item needs one, so an item
/// with an unknown member of this name stays an item.
pub fn is_control(members: &Members) -> bool {
    members.contains(CONTROL) && !members.contains("message_id")
}

/// The reason why the rest of a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ItemsError {
    /// The connection or the decompression failed.
    #[error("The body cannot be read: {0}.")]
    Input(#[from] io::Error),
    /// An item is larger than [`ITEM_BYTES_MAX`].
    #[error("An item has more than {ITEM_BYTES_MAX} bytes.")]
    TooLong,
    /// Empty lines are larger than [`ITEM_BYTES_MAX`].
    #[error("There are more than {ITEM_BYTES_MAX} bytes of empty lines without an item.")]
    Empty,
    /// The document is malformed for its format.
    #[error("{0}")]
    Form(String),
}

type Opened = Result<Box<dyn Items>, ItemsError>;

/// A format of batch documents.
pub struct ItemFormat {
    /// The media type.
    pub media_type: &'static str,
    /// A document with one item, the same in every format.
    pub example: &'static str,
    /// Opens a document without a byte order mark. The limits apply to XML.
    open: fn(Box<dyn BufRead>, &XmlLimits) -> Opened,
}

impl ItemFormat {
    /// Opens a document at its first byte, in the encoding that its headers name.
    ///
    /// # Errors
    /// [`ItemsError`] if the beginning of the document is malformed or not in the encoding.
    pub fn read(&self, input: Box<dyn BufRead>, charset: Charset, limits: &XmlLimits) -> Opened {
        (self.open)(text::decoded(input, charset)?, limits)
    }
}

/// Media type for documents whose format is detected.
pub const OCTET_STREAM: &str = "application/octet-stream";
/// Example of an item in JSON.
const JSON_ITEM: &str = r#"{"user_id":"0b1c2d3e-0000-4000-8000-000000000001","account_id":"77aa0000-0000-4000-8000-000000000001","message_id":"4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10","type":"deposit","amount":"125.50","currency":"EUR"}
"#;

/// All formats of batch documents.
pub static ITEM_FORMATS: &[ItemFormat] = &[
    ItemFormat {
        media_type: "application/x-ndjson",
        example: JSON_ITEM,
        open: |input, _| Ok(Box::new(NdJson::new(input))),
    },
    ItemFormat {
        media_type: "text/csv",
        example: "user_id,account_id,message_id,type,amount,currency\r\n\
            0b1c2d3e-0000-4000-8000-000000000001,77aa0000-0000-4000-8000-000000000001,\
            4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10,deposit,125.50,EUR\r\n",
        open: |input, _| Ok(Box::new(Csv::new(input)?)),
    },
    ItemFormat {
        media_type: "application/xml",
        example: include_str!("../../../../schemas/samples/xml/BatchRequest/valid/least.xml"),
        open: |input, limits| Ok(Box::new(Xml::new(input, limits)?)),
    },
    ItemFormat { media_type: OCTET_STREAM, example: JSON_ITEM, open: recognize },
];

/// Detects the format from the first character, and opens the document. For clients that cannot choose the media type, such
/// as generated ones.
fn recognize(mut input: Box<dyn BufRead>, limits: &XmlLimits) -> Opened {
    let first = input.fill_buf().map_err(of_input)?.first().copied();
    Ok(match first {
        Some(b'{') => Box::new(NdJson::new(input)),
        Some(b'<') => Box::new(Xml::new(input, limits)?),
        _ => Box::new(Csv::new(input)?),
    })
}

/// A reader that fails after the allowed number of bytes, so that an item without an end does not fill the memory.
struct Bounded<R> {
    input: R,
    allowance: Rc<Cell<usize>>,
}

impl<R> Bounded<R> {
    /// Allows [`ITEM_BYTES_MAX`] bytes. Also returns the allowance, which the caller resets for each item.
    fn new(input: R) -> (Self, Rc<Cell<usize>>) {
        let allowance = Rc::new(Cell::new(ITEM_BYTES_MAX));
        (Self { input, allowance: Rc::clone(&allowance) }, allowance)
    }

    fn used(&self, bytes: usize) {
        self.allowance.set(self.allowance.get().saturating_sub(bytes));
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = buffer.len().min(self.allowance.get());
        if size == 0 && !buffer.is_empty() {
            return Err(io::Error::other(ItemsError::TooLong));
        }
        let read = self.input.read(buffer.get_mut(..size).unwrap_or_default())?;
        self.used(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let available = self.input.fill_buf()?;
        let size = available.len().min(self.allowance.get());
        if size == 0 && !available.is_empty() {
            return Err(io::Error::other(ItemsError::TooLong));
        }
        Ok(available.get(..size).unwrap_or_default())
    }

    fn consume(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.used(bytes);
    }
}

/// Returns the error that a [`Bounded`] or checked input reported; any other error is [`ItemsError::Input`].
fn of_input(error: io::Error) -> ItemsError {
    error.downcast().unwrap_or_else(ItemsError::Input)
}

/// Reads a line of at most [`ITEM_BYTES_MAX`] bytes into `line`, without its line end. Returns false at the end of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, ItemsError> {
    line.clear();
    let limit = u64::try_from(ITEM_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    if input.take(limit).read_until(b'\n', line).map_err(of_input)? == 0 {
        return Ok(false);
    }
    let text = line.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line).len());
    match text {
        Some(length) => line.truncate(length),
        None if line.len() > ITEM_BYTES_MAX => return Err(ItemsError::TooLong),
        None => {}
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
