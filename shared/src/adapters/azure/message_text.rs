//! How a message body becomes the text of a queue message and back.
//!
//! Our envelopes are JSON objects, so their first byte is `{`; they travel as base64. Direct producers
//! write plain text, which is handed on as it is, even where it happens to be valid base64: so only
//! what decodes to an envelope is decoded. Any other body that we send ourselves, such as a replayed
//! text of a direct producer, is made to look like an envelope by a mark before it that no JSON has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::ports::queue::BODY_BYTES_MAX;

/// Stands before a body that is not an envelope.
const MARK: &[u8] = b"{\0";
/// Longest body that still has room for the mark.
const MARKED_BYTES_MAX: usize = BODY_BYTES_MAX - MARK.len();

/// The text that the queue gets. Panics when the body is longer than [`BODY_BYTES_MAX`].
pub(super) fn encode(body: &[u8]) -> String {
    assert!(body.len() <= BODY_BYTES_MAX, "a message of {} bytes", body.len());
    let is_envelope = body.starts_with(b"{") && !body.starts_with(MARK);
    // Without room for the mark its length alone says that it is ours: see `decode`.
    if is_envelope || body.len() > MARKED_BYTES_MAX {
        return STANDARD.encode(body);
    }
    STANDARD.encode([MARK, body].concat())
}

/// The body that the text stands for.
pub(super) fn decode(text: String) -> Vec<u8> {
    let Ok(decoded) = STANDARD.decode(&text) else { return text.into_bytes() };
    if let Some(body) = decoded.strip_prefix(MARK) {
        return body.to_vec();
    }
    if decoded.starts_with(b"{") || decoded.len() > MARKED_BYTES_MAX { decoded } else { text.into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_comes_back() {
        let bodies: [&[u8]; 8] = [b"", b"{", b"{}", b"{\0", b"one", b"\0\xff", b"<a/>", b"u|a|t|-12.50"];
        for body in bodies {
            let text = encode(body);
            assert_eq!(decode(text), body);
        }
        for length in [BODY_BYTES_MAX - 3, BODY_BYTES_MAX - 2, BODY_BYTES_MAX - 1, BODY_BYTES_MAX] {
            for first in [b'{', b'x', 0xff] {
                let mut body = vec![7; length];
                body[0] = first;
                let text = encode(&body);
                assert!(text.len() <= 64 * 1024, "{} characters", text.len());
                assert_eq!(decode(text), body, "{length} from {first}");
            }
        }
    }

    #[test]
    fn an_envelope_is_plain_base64() {
        assert_eq!(encode(b"{\"v\":1}"), STANDARD.encode(b"{\"v\":1}"));
    }

    #[test]
    fn what_direct_producers_write_stays_as_it_is() {
        // The last two are valid base64, but of no envelope.
        for raw in ["<UserAccountTransaction/>", "a|b|c|1", "{\"v\":1}", "test", "abcdefgh"] {
            assert_eq!(decode(raw.to_owned()), raw.as_bytes());
        }
    }
}
