//! `application/x-ndjson`: one JSON object per line. Empty lines are skipped, up to a limit between two items.

use std::io::BufRead;

use super::{ITEM_BYTES_MAX, Items, ItemsError, Parsed, PlainItem, read_line};
use crate::error::ApiError;
use crate::formats::json;

/// A document with one JSON object per line.
#[derive(Debug)]
pub struct NdJson<R> {
    input: R,
    line: Vec<u8>,
}

impl<R: BufRead> NdJson<R> {
    /// Creates a reader at the first byte of the document.
    pub const fn new(input: R) -> Self {
        Self { input, line: Vec::new() }
    }
}

impl<R: BufRead> Items for NdJson<R> {
    fn next(&mut self) -> Result<Option<Result<Parsed, ApiError>>, ItemsError> {
        let mut empty_bytes = 0_usize;
        while read_line(&mut self.input, &mut self.line)? {
            let text = self.line.trim_ascii();
            if text.is_empty() {
                empty_bytes = empty_bytes.saturating_add(self.line.len()).saturating_add(1);
                if empty_bytes > ITEM_BYTES_MAX {
                    return Err(ItemsError::Empty);
                }
                continue;
            }
            // The deserializer also accepts an array of the values, which is not an item.
            let object = Some(&self.line).filter(|_| text.starts_with(b"{"));
            let plain: Option<PlainItem<'_>> = object.and_then(|line| serde_json::from_slice(line).ok());
            return Ok(Some(match plain.and_then(PlainItem::parse) {
                Some(item) => Ok(Parsed::Plain(Box::new(item))),
                None => json::members(&self.line).map(Parsed::Members),
            }));
        }
        Ok(None)
    }

    fn sent(&self) -> Vec<u8> {
        self.line.trim_ascii().to_vec()
    }
}
