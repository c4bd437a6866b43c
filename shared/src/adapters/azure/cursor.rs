//! Cursors of listings. A cursor contains the name of the listing and the continuation token of the service, encoded
//! in hexadecimal: it is safe in every URL, and a cursor of another listing is refused.

use serde::{Deserialize, Serialize};

use crate::ports::fault::StoreFault;

/// Continuation token of a scan: partition and row.
pub type Continuation = (String, Option<String>);

#[derive(Serialize, Deserialize)]
struct Cursor {
    #[serde(rename = "l")]
    listing: String,
    #[serde(rename = "p")]
    partition: String,
    #[serde(rename = "r")]
    row: Option<String>,
}

impl Cursor {
    /// Returns whether the token can come from the service: it is sent in headers and URLs.
    fn is_of_service(&self) -> bool {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        plain(&self.partition) && self.row.as_deref().is_none_or(plain)
    }
}

/// Encodes the cursor of a listing that continues at `next`.
pub fn write(listing: &str, next: Continuation) -> String {
    let (partition, row) = next;
    let cursor = Cursor { listing: listing.to_owned(), partition, row };
    hex::encode(serde_json::to_vec(&cursor).expect("texts can always be written as JSON"))
}

/// Decodes a cursor that [`write()`] encoded for the same listing.
///
/// # Errors
/// [`StoreFault::ForeignCursor`] for any other text.
pub fn read(
    listing: &str,
    cursor: Option<&str>,
    doing: &'static str,
) -> Result<Option<Continuation>, StoreFault> {
    let Some(text) = cursor else { return Ok(None) };
    let cursor = hex::decode(text).ok().and_then(|bytes| serde_json::from_slice::<Cursor>(&bytes).ok());
    match cursor {
        Some(cursor) if cursor.listing == listing && cursor.is_of_service() => {
            Ok(Some((cursor.partition, cursor.row)))
        }
        Some(_) | None => Err(StoreFault::ForeignCursor { doing }),
    }
}
