//! How a message body becomes the text of a queue message and back.
//!
//! Our envelopes are JSON objects, so their first byte is `{`; they travel as base64. Direct producers
//! write plain text, which is handed on as it is, even where it happens to be valid base64: so only
//! what decodes to an envelope is decoded. Any other body that we send ourselves, such as a replayed
//! text of a direct producer, is base64 behind a mark in the text that no base64 has.
//!
//! Direct producers may fill the whole text, which as base64 would not fit any more. Such a body goes
//! back as the text that it came as.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::ports::queue::BODY_BYTES_MAX;

/// Most bytes of a message text.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// What every envelope begins with.
const ENVELOPE: &[u8] = b"{";
/// Stands before the base64 of what is no envelope. Without padding, because the mark needs its room.
const MARK: &str = "!";
/// Longest body that leaves room for the mark.
const MARKED_BYTES_MAX: usize = BODY_BYTES_MAX - 1;

/// The body fits no message of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a body of {0} bytes does not fit a queue message")]
pub(super) struct TooLarge(usize);

/// The text that the queue gets. Above [`BODY_BYTES_MAX`] only for what can have come as text.
pub(super) fn encode(body: &[u8]) -> Result<String, TooLarge> {
    if body.len() > BODY_BYTES_MAX {
        return as_it_came(body).ok_or(TooLarge(body.len()));
    }
    // One byte lacks room for the mark: its length says that it is ours, see `decode`.
    if body.starts_with(ENVELOPE) || body.len() > MARKED_BYTES_MAX {
        return Ok(STANDARD.encode(body));
    }
    Ok(format!("{MARK}{}", STANDARD_NO_PAD.encode(body)))
}

/// The body as text, if that text gives the same body again.
fn as_it_came(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    // What XML cannot hold did not come in XML.
    let unfit = |c: char| {
        (c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t')) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    let fits = text.len() <= TEXT_BYTES_MAX && !text.contains(unfit);
    (fits && decode(text.to_owned()) == body).then(|| text.to_owned())
}

/// The body that the text stands for.
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
    fn every_body_comes_back() {
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
    fn what_direct_producers_write_stays_as_it_is() {
        // The last three are valid base64, but of no envelope, or nearly marked.
        for raw in ["<UserAccountTransaction/>", "a|b|c|1", "{\"v\":1}", "test", "abcdefgh", "! x"] {
            assert_eq!(decode(raw.to_owned()), raw.as_bytes());
        }
    }

    #[test]
    fn a_large_text_of_a_direct_producer_goes_back_as_it_came() {
        for raw in [format!("<x>{}</x>", "y".repeat(60_000)), "|".repeat(TEXT_BYTES_MAX), "{".repeat(49_153)]
        {
            let received = decode(raw.clone());
            assert_eq!(encode(&received).as_deref(), Ok(raw.as_str()));
        }
    }

    #[test]
    fn what_fits_no_message_is_refused() {
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
