//! Where a listing goes on. The service's own words, with the name of the listing before them, in
//! hexadecimal: safe in every address, and a cursor of another listing is refused.

use serde::{Deserialize, Serialize};

use crate::ports::fault::StoreFault;

/// Where a scan goes on: the service's own words, partition and row.
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
    /// Whether the words can be the service's own: they go into headers and addresses.
    fn is_of_service(&self) -> bool {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        plain(&self.partition) && self.row.as_deref().is_none_or(plain)
    }
}

/// The cursor of a listing that goes on there.
pub fn write(listing: &str, next: Continuation) -> String {
    let (partition, row) = next;
    let cursor = Cursor { listing: listing.to_owned(), partition, row };
    hex::encode(serde_json::to_vec(&cursor).expect("texts can always be written as JSON"))
}

/// Reads what [`write()`] wrote for the same listing.
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
