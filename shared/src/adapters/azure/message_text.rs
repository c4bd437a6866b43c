//! Encodes a message body as the text of a queue message.
//!
//! An envelope is a JSON object, so its first byte is `{`, and it is sent as base64. Direct producers send plain text,
//! which is received unchanged. Only a text that decodes to an envelope is decoded, so plain text may happen to be
//! valid base64. Any other body that this program sends, such as the replayed text of a direct producer, is sent as
//! base64 after a marker that is not a base64 character.
//!
//! The text of a direct producer may have the maximum length, in which case its base64 would not fit. Such a body is
//! sent as the received text.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::ports::queue::BODY_BYTES_MAX;

/// Maximum size of a message text.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// First byte of every envelope.
const ENVELOPE: &[u8] = b"{";
/// Marker before the base64 of a body that is not an envelope. The base64 is not padded, to leave room for the marker.
const MARK: &str = "!";
/// Maximum size of a body that is sent with a marker.
const MARKED_BYTES_MAX: usize = BODY_BYTES_MAX - 1;

/// The body does not fit into a queue message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a body of {0} bytes does not fit a queue message")]
pub(super) struct TooLarge(usize);

/// Encodes a body. Bodies larger than [`BODY_BYTES_MAX`] are accepted only if they can have been received as text.
pub(super) fn encode(body: &[u8]) -> Result<String, TooLarge> {
    if body.len() > BODY_BYTES_MAX {
        return as_received_text(body).ok_or(TooLarge(body.len()));
    }
    // A body of the maximum size has no room for the marker. `decode` recognizes it by its size.
    if body.starts_with(ENVELOPE) || body.len() > MARKED_BYTES_MAX {
        return Ok(STANDARD.encode(body));
    }
    Ok(format!("{MARK}{}", STANDARD_NO_PAD.encode(body)))
}

/// Returns the body as text if this text decodes to the same body.
fn as_received_text(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    // Characters that are invalid in XML cannot have been received.
    let is_invalid = |c: char| {
        (c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t')) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    let fits = text.len() <= TEXT_BYTES_MAX && !text.contains(is_invalid);
    (fits && decode(text.to_owned()) == body).then(|| text.to_owned())
}

/// Decodes the text of a queue message.
pub(super) fn decode(text: String) -> Vec<u8> {
    if let Some(marked) = text.strip_prefix(MARK) {
        return STANDARD_NO_PAD.decode(marked).unwrap_or_else(|_| text.into_bytes());
    }
    match STANDARD.decode(&text) {
        Ok(body) if body.starts_with(ENVELOPE) || body.len() > MARKED_BYTES_MAX => body,
        Ok(_) | Err(_) => text.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_decoded_unchanged() {
        let bodies: [&[u8]; 9] =
            [b"", b"{", b"{}", b"{\0", b"one", b"!", b"\0\xff", b"<a/>", b"u|a|t|-12.50"];
        for body in bodies {
            assert_eq!(decode(encode(body).unwrap()), body);
        }
        for length in [BODY_BYTES_MAX - 3, BODY_BYTES_MAX - 2, BODY_BYTES_MAX - 1, BODY_BYTES_MAX] {
            for first in [b"{\0".as_slice(), b"{\"", b"x", b"!", b"\xff", b"\0{"] {
                let mut body = first.to_vec();
                body.resize(length, 7);
                let text = encode(&body).unwrap();
                assert!(text.len() <= TEXT_BYTES_MAX, "{} characters", text.len());
                assert_eq!(decode(text), body, "{length} from {first:?}");
            }
        }
    }

    #[test]
    fn an_envelope_is_plain_base64() {
        assert_eq!(encode(b"{\"v\":1}").unwrap(), STANDARD.encode(b"{\"v\":1}"));
    }

    #[test]
    fn texts_of_direct_producers_are_returned_unchanged() {
        // The last three are base64 of other content than envelopes, or resemble a marked text.
        for raw in ["<UserAccountTransaction/>", "a|b|c|1", "{\"v\":1}", "test", "abcdefgh", "! x"] {
            assert_eq!(decode(raw.to_owned()), raw.as_bytes());
        }
    }

    #[test]
    fn a_large_text_of_a_direct_producer_is_sent_as_it_was_received() {
        for raw in [format!("<x>{}</x>", "y".repeat(60_000)), "|".repeat(TEXT_BYTES_MAX), "{".repeat(49_153)]
        {
            let received = decode(raw.clone());
            assert_eq!(encode(&received).as_deref(), Ok(raw.as_str()));
        }
    }

    #[test]
    fn a_body_that_fits_no_message_is_refused() {
        let looks_encoded = STANDARD.encode([b"{".as_slice(), &[b'x'; 40_000]].concat());
        let bodies = [
            vec![0xff; BODY_BYTES_MAX + 1],
            vec![0; BODY_BYTES_MAX + 1],
            vec![b'|'; TEXT_BYTES_MAX + 1],
            looks_encoded.into_bytes(),
        ];
        for body in bodies {
            assert_eq!(encode(&body), Err(TooLarge(body.len())));
        }
    }
}
