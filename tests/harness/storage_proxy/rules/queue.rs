//! The limits of messages ("Put Message", "Get Messages", "Queue Storage error codes").

use hyper::Method;

use super::{Cost, Refusal};
use crate::storage_proxy::error_responses::StorageError;
use crate::storage_proxy::request::ProxiedRequest;

/// Maximum size of the text of a message in UTF-8, without the enclosing XML.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Maximum number of messages of one receive.
const RECEIVE_MAX: i64 = 32;
/// Maximum visibility timeout: 7 days.
const VISIBILITY_MAX_S: i64 = 7 * 24 * 60 * 60;

const TOO_LARGE: StorageError =
    StorageError::bad_request("MessageTooLarge", "The message exceeds the maximum allowed size.");
const INVALID_XML: StorageError =
    StorageError::bad_request("InvalidXmlDocument", "The specified XML is not syntactically valid.");
const OUT_OF_RANGE: StorageError = StorageError::bad_request(
    "OutOfRangeQueryParameterValue",
    "A query parameter specified in the request URI is outside the permissible range.",
);

pub(super) fn check(request: &ProxiedRequest) -> Result<Cost, Refusal> {
    let Some((queue, _)) = request.target.path().split_once("/messages") else { return Ok(Cost::Request) };
    let receives = request.method == Method::GET;
    // A received message stays hidden for at least a second.
    let visible = if receives { 1..=VISIBILITY_MAX_S } else { 0..=VISIBILITY_MAX_S };
    in_range(request, "visibilitytimeout", &visible)?;
    in_range(request, "numofmessages", &(1..=RECEIVE_MAX))?;
    in_range(request, "messagettl", &(-1..=i64::MAX))?;
    if !receives && !request.body.is_empty() {
        let size = text_bytes(request).ok_or_else(|| {
            Refusal::new(INVALID_XML, "its body is not a message in XML, encoded in UTF-8".to_owned())
        })?;
        if size > MESSAGE_BYTES_MAX {
            let detail = format!("the message has {size} bytes; at most {MESSAGE_BYTES_MAX} are allowed");
            return Err(Refusal::new(TOO_LARGE, detail));
        }
    }
    Ok(Cost::Message { queue: queue.to_owned() })
}

fn in_range(
    request: &ProxiedRequest,
    name: &str,
    range: &std::ops::RangeInclusive<i64>,
) -> Result<(), Refusal> {
    let Some(value) = request.parameter(name) else { return Ok(()) };
    if value.parse().is_ok_and(|value| range.contains(&value)) {
        return Ok(());
    }
    let detail = format!("{name} is {value}; allowed is {} to {}", range.start(), range.end());
    Err(Refusal::new(OUT_OF_RANGE, detail))
}

/// Returns the size of the text of a message. An escaped character counts as one byte.
fn text_bytes(request: &ProxiedRequest) -> Option<usize> {
    let body = std::str::from_utf8(&request.body).ok()?;
    if body.contains("<MessageText/>") || body.contains("<MessageText />") {
        return Some(0);
    }
    let (_, text) = body.split_once("<MessageText>")?;
    let (text, _) = text.split_once("</MessageText>")?;
    // All characters of an escape such as `&lt;` except the first one.
    let extra = |escape: &str| escape.find(';').map_or(0, |end| end.saturating_add(1));
    let escaped: usize = text.split('&').skip(1).map(extra).sum();
    Some(text.len().saturating_sub(escaped))
}
