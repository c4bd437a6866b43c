//! Text from outside: its byte order mark, the names of its encoding, and the digits of its numbers. Everything that a client, an
//! operator or a mounted file provides as text passes here once, before its format is recognised, so that no reader has a rule of
//! its own.

use std::str::FromStr;

/// The UTF-8 byte order mark, which many editors and spreadsheets write at the start of a file.
pub const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Number of leading bytes of a text that [`without_mark`] inspects: two marks.
pub const START_BYTES: u64 = 6;

/// Why bytes are not accepted as text. The message completes a sentence about the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A byte order mark of another encoding, or a zero byte in the first two bytes.
    #[error("must be in UTF-8, but looks like UTF-16 or UTF-32")]
    WideCharacters,
    /// A second byte order mark, which is never removed.
    #[error("must have at most one byte order mark")]
    SecondMark,
    /// A byte above 0x7F in a document that is declared as US-ASCII.
    #[error("is declared as US-ASCII, which has no byte above 0x7F, but has 0x{byte:02X} at byte {at}")]
    NotAscii {
        /// The byte found.
        byte: u8,
        /// The position of the byte, from 0.
        at: u64,
    },
}

/// Removes one UTF-8 byte order mark from the start of a text.
///
/// # Errors
/// [`TextError`] for the mark of another encoding, and for a second mark.
pub fn without_mark(bytes: &[u8]) -> Result<&[u8], TextError> {
    if let [0xFE, 0xFF, ..] | [0xFF, 0xFE, ..] | [0, ..] | [_, 0, ..] = bytes {
        return Err(TextError::WideCharacters);
    }
    match bytes.strip_prefix(MARK) {
        Some(rest) if rest.starts_with(MARK) => Err(TextError::SecondMark),
        Some(rest) => Ok(rest),
        None => Ok(bytes),
    }
}

/// Removes one UTF-8 byte order mark from the start of a file. Does not check for other encodings.
pub fn without_mark_of_file(content: &[u8]) -> &[u8] {
    content.strip_prefix(MARK).unwrap_or(content)
}

/// Reads a number that consists of digits only; the parsers of the standard library also take a sign.
pub fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a number as [`digits`] does, in its only spelling: without a zero before it.
pub fn whole_number<T: FromStr>(text: &str) -> Option<T> {
    digits(text).filter(|_| text == "0" || !text.starts_with('0'))
}

/// Returns the position of the first percent sign that no two hexadecimal digits follow (RFC 3986, section 2.1). Decoders take it
/// for itself.
pub fn misplaced_percent(text: &str) -> Option<usize> {
    let is_encoded = |at: usize| {
        let digits = text.as_bytes().get(at..).and_then(|rest| rest.first_chunk::<3>());
        digits.is_some_and(|[_, digits @ ..]| digits.iter().all(u8::is_ascii_hexdigit))
    };
    text.match_indices('%').map(|(at, _)| at).find(|at| !is_encoded(*at))
}

/// Maximum length in bytes of a name that [`looks_like`] compares. Longer names differ from all known names.
const COMPARED_BYTES_MAX: usize = 32;

/// Returns whether a name is probably a mistake for a known one: they differ only in case and in at most one edit, which is a
/// letter added, removed, replaced, or swapped with the next one.
pub fn looks_like(name: &str, known: &str) -> bool {
    name.len() <= COMPARED_BYTES_MAX && strsim::osa_distance(&name.to_lowercase(), &known.to_lowercase()) <= 1
}

/// An encoding in which text is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Charset {
    /// UTF-8.
    #[default]
    Utf8,
    /// US-ASCII: UTF-8 without bytes above 0x7F.
    UsAscii,
}

/// The labels of UTF-8 in the Encoding Standard of the WHATWG, and its alias in the IANA registry of character sets.
const UTF_8: [&str; 7] =
    ["csutf8", "unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "utf-8", "utf8", "x-unicode20utf8"];
/// The names of US-ASCII in the IANA registry of character sets (RFC 2978), and `ascii`, which XML libraries write.
const US_ASCII: [&str; 11] = [
    "us-ascii",
    "ascii",
    "iso-ir-6",
    "ansi_x3.4-1968",
    "ansi_x3.4-1986",
    "iso_646.irv:1991",
    "iso646-us",
    "us",
    "ibm367",
    "cp367",
    "csascii",
];

impl Charset {
    /// Returns the encoding with this name, ignoring case; `None` if the encoding is not accepted.
    pub fn named(label: &str) -> Option<Self> {
        let is = |known: &&str| known.eq_ignore_ascii_case(label);
        match (UTF_8.iter().any(is), US_ASCII.iter().any(is)) {
            (true, _) => Some(Self::Utf8),
            (false, true) => Some(Self::UsAscii),
            (false, false) => None,
        }
    }

    /// Checks bytes of a text, the first of which is at position `start`. The parser of the format checks that UTF-8 is
    /// valid.
    ///
    /// # Errors
    /// [`TextError::NotAscii`] for the first byte above 0x7F of US-ASCII.
    pub fn check(self, start: u64, bytes: &[u8]) -> Result<(), TextError> {
        if self == Self::Utf8 || bytes.is_ascii() {
            return Ok(());
        }
        let mut positions = (start..).zip(bytes);
        match positions.find(|(_, byte)| !byte.is_ascii()) {
            Some((at, byte)) => Err(TextError::NotAscii { byte: *byte, at }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_removed_once() {
        assert_eq!(without_mark(b"{}"), Ok(b"{}".as_slice()));
        assert_eq!(without_mark(b"\xEF\xBB\xBF{}"), Ok(b"{}".as_slice()));
        assert_eq!(without_mark(b""), Ok(b"".as_slice()));
        assert_eq!(without_mark(b"\xEF\xBB"), Ok(b"\xEF\xBB".as_slice()));
        assert_eq!(without_mark(b"\xEF\xBB\xBF\xEF\xBB\xBF{}"), Err(TextError::SecondMark));
        assert_eq!(without_mark(b"{}\xEF\xBB\xBF"), Ok(b"{}\xEF\xBB\xBF".as_slice()));
        for wide in [b"\xFE\xFF\0{".as_slice(), b"\xFF\xFE{\0", b"\0{", b"{\0", b"\0\0\xFE\xFF"] {
            assert_eq!(without_mark(wide), Err(TextError::WideCharacters), "{wide:?}");
        }
    }

    #[test]
    fn numbers_consist_of_digits() {
        for (text, as_digits, as_number) in [
            ("0", Some(0), Some(0)),
            ("10", Some(10), Some(10)),
            ("255", Some(255), Some(255)),
            ("007", Some(7), None),
            ("00", Some(0), None),
            ("+4", None, None),
            ("-0", None, None),
            ("256", None, None),
            ("", None, None),
            (" 1", None, None),
            ("1_0", None, None),
            ("\u{663}", None, None),
        ] {
            assert_eq!((digits::<u8>(text), whole_number::<u8>(text)), (as_digits, as_number), "{text:?}");
        }
    }

    #[test]
    fn encodings_have_the_names_of_the_registries() {
        let check = |expected, labels: &[&str]| {
            for label in labels {
                assert_eq!(Charset::named(label), expected, "{label}");
            }
        };
        check(
            Some(Charset::Utf8),
            &["utf-8", "UTF-8", "utf8", "Utf8", "csUTF8", "unicode-1-1-utf-8", "x-unicode20utf8"],
        );
        check(
            Some(Charset::UsAscii),
            &["us-ascii", "US-ASCII", "ISO646-US", "ANSI_X3.4-1968", "cp367", "us"],
        );
        check(None, &["", "utf-16", "utf-8 ", "iso-8859-1", "windows-1252", "latin1", "utf-88", "utf_8"]);
    }

    #[test]
    fn us_ascii_has_no_byte_above_0x7f() {
        assert_eq!(Charset::UsAscii.check(0, b"\0abc\x7f"), Ok(()));
        assert_eq!(
            Charset::UsAscii.check(10, "aé".as_bytes()),
            Err(TextError::NotAscii { byte: 0xC3, at: 11 })
        );
        assert_eq!(Charset::Utf8.check(0, "é".as_bytes()), Ok(()));
    }
}
