//! Cursors of listings. A cursor contains the name of the listing and the continuation token of the service, encoded in
//! hexadecimal. So it is safe in URLs, and a cursor of another listing can be refused.

use serde::{Deserialize, Serialize};

use crate::ports::fault::StoreFault;

/// Continuation token of a scan: partition key and row key.
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
    /// Returns whether the service can have issued the token. It is sent in headers and URLs, so it must be printable ASCII.
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

/// Decodes a cursor that [`write()`] encoded for this listing.
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
