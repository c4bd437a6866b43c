//! Where a listing goes on. The service's own words, with the name of the listing before them, in
//! hexadecimal: safe in every address, and a cursor of another listing is refused.

use serde::{Deserialize, Serialize};

use super::table::Continuation;
use crate::ports::fault::StoreFault;

#[derive(Serialize, Deserialize)]
struct Cursor {
    #[serde(rename = "l")]
    listing: String,
    #[serde(rename = "p")]
    partition: String,
    #[serde(rename = "r")]
    row: Option<String>,
}

/// The text is not a cursor of the listing.
#[derive(Debug, thiserror::Error)]
#[error("the cursor is not one of this listing")]
struct Foreign;

pub(super) fn write(listing: &str, next: Continuation) -> String {
    let (partition, row) = next;
    let cursor = Cursor { listing: listing.to_owned(), partition, row };
    hex::encode(serde_json::to_vec(&cursor).expect("texts can always be written as JSON"))
}

/// Reads what [`write()`] wrote for the same listing.
pub(super) fn read(
    listing: &str,
    cursor: Option<&str>,
    doing: &'static str,
) -> Result<Option<Continuation>, StoreFault> {
    let Some(text) = cursor else { return Ok(None) };
    let cursor = hex::decode(text).ok().and_then(|bytes| serde_json::from_slice::<Cursor>(&bytes).ok());
    match cursor {
        Some(cursor) if cursor.listing == listing => Ok(Some((cursor.partition, cursor.row))),
        Some(_) | None => Err(StoreFault::Corrupt { doing, source: Box::new(Foreign) }),
    }
}
