//! Splits long content over several properties of a row, because a property holds at most 64 KiB and a row 1 MiB.
//!
//! Text is stored as text, so that an operator can read it in a storage explorer. Azure stores it as UTF-16, with two
//! bytes for most characters. Content that is not text, or too large for a row as text, is stored as binary. 98 entries
//! with the largest metadata are 900 KB in binary form, and fit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::invalid_property::InvalidProperty;
use super::table::Properties;

/// Maximum number of UTF-16 code units in one text property. The service allows 32 Ki.
const TEXT_UNITS_MAX: usize = 30_000;
/// Maximum number of UTF-16 code units stored as text. The other properties share the 1 MiB of the row.
const TEXT_UNITS_TOTAL_MAX: usize = 450_000;
/// Maximum size of one binary property. The service allows 64 KiB.
const BINARY_BYTES_MAX: usize = 60_000;
/// Maximum size of the content of a row, in bytes.
pub(super) const PARTS_BYTES_MAX: usize = 1_000_000;

const COUNT: &str = "BodyParts";
const FORM: &str = "BodyForm";
const TEXT: &str = "text";
const BINARY: &str = "binary";

fn name(index: usize) -> String {
    format!("Body{index}")
}

/// Encodes content as properties. Panics if it is larger than [`PARTS_BYTES_MAX`], which callers must prevent.
pub(super) fn write(content: &[u8]) -> Properties {
    assert!(content.len() <= PARTS_BYTES_MAX, "{} bytes do not fit one row", content.len());
    let text = std::str::from_utf8(content).ok().filter(|text| is_plain_text(text));
    let mut properties = Properties::new();
    let (form, count) = match text {
        Some(text) => {
            let pieces = split_text(text);
            let count = pieces.len();
            for (index, piece) in pieces.into_iter().enumerate() {
                properties.insert(name(index), Value::from(piece));
            }
            (TEXT, count)
        }
        None => {
            for (index, piece) in content.chunks(BINARY_BYTES_MAX).enumerate() {
                properties.insert(format!("{}@odata.type", name(index)), Value::from("Edm.Binary"));
                properties.insert(name(index), Value::from(STANDARD.encode(piece)));
            }
            (BINARY, content.len().div_ceil(BINARY_BYTES_MAX))
        }
    };
    properties.insert(COUNT.to_owned(), Value::from(count.to_string()));
    properties.insert(FORM.to_owned(), Value::from(form));
    properties
}

/// Decodes content that [`write()`] encoded.
pub(super) fn read(properties: &Properties) -> Result<Vec<u8>, InvalidProperty> {
    let text = |name: &str| properties.get(name).and_then(Value::as_str);
    let count: usize = text(COUNT).and_then(|count| count.parse().ok()).ok_or(InvalidProperty(COUNT))?;
    let form = text(FORM).ok_or(InvalidProperty(FORM))?;
    let mut content = Vec::new();
    for index in 0..count {
        let piece = text(&name(index)).ok_or(InvalidProperty("Body"))?;
        match form {
            TEXT => content.extend_from_slice(piece.as_bytes()),
            BINARY => content.extend(STANDARD.decode(piece).map_err(|_| InvalidProperty("Body"))?),
            _ => return Err(InvalidProperty(FORM)),
        }
    }
    Ok(content)
}

/// Returns whether a text fits and can be stored as text, so that the service returns it unchanged.
fn is_plain_text(text: &str) -> bool {
    let unsafe_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    !text.contains(unsafe_control)
        // These characters are invalid in XML, and the service may store the text as XML.
        && !text.contains(['\u{fffe}', '\u{ffff}'])
        && text.chars().map(char::len_utf16).sum::<usize>() <= TEXT_UNITS_TOTAL_MAX
}

fn split_text(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut units) = (0, 0_usize);
    for (position, character) in text.char_indices() {
        let more = units.saturating_add(character.len_utf16());
        if more > TEXT_UNITS_MAX {
            pieces.push(&text[start..position]);
            start = position;
            units = character.len_utf16();
        } else {
            units = more;
        }
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &[u8], form: &str, parts: usize) {
        let properties = write(content);
        assert_eq!(properties[FORM], Value::from(form));
        assert_eq!(properties[COUNT], Value::from(parts.to_string()));
        for index in 0..parts {
            let part = properties[&name(index)].as_str().unwrap();
            assert!(form == BINARY || part.encode_utf16().count() <= TEXT_UNITS_MAX);
        }
        assert_eq!(read(&properties).unwrap(), content);
    }

    #[test]
    fn content_of_every_size_is_read_unchanged() {
        check(b"", TEXT, 1);
        check("grüße\n".as_bytes(), TEXT, 1);
        check("x".repeat(30_000).as_bytes(), TEXT, 1);
        check("x".repeat(30_001).as_bytes(), TEXT, 2);
        // A character of two units is never split.
        check(format!("x{}", "\u{1d11e}".repeat(30_000)).as_bytes(), TEXT, 3);
        check("x".repeat(450_001).as_bytes(), BINARY, 8);
        check(&vec![7; PARTS_BYTES_MAX], BINARY, 17);
        check(&[0xff, 0xfe], BINARY, 1);
        check(b"a\0b", BINARY, 1);
    }

    #[test]
    fn a_missing_part_is_detected() {
        let mut properties = write("x".repeat(60_001).as_bytes());
        properties.remove("Body1");
        assert!(read(&properties).is_err());
    }
}
