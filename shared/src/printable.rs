//! Makes foreign text safe to print. A server, a partner or a damaged store can send control characters that clear the
//! screen of a terminal, change its title or hide lines. They are printed as escapes such as `\u001b`, which are also
//! valid in JSON.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use serde::{Deserialize, Deserializer};

/// Returns whether the character is a control character, or changes the direction of text or the line structure.
fn is_obeyed(c: char) -> bool {
    let is_mark =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_mark
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let escape = |mut all: String, c: char| {
        match is_escaped(c) {
            true => all.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => all.push(c),
        }
        all
    };
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), escape))
}

/// Escapes everything that a terminal would interpret, except line feeds.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_obeyed(c) && c != '\n')
}

/// Foreign text that is safe to print within one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printable(String);

impl Printable {
    /// Returns the escaped text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Printable {
    fn from(text: &str) -> Self {
        Self(escaped(text, is_obeyed).into_owned())
    }
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Printable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*String::deserialize(deserializer)?))
    }
}

/// A writer that escapes control characters, except line feeds ([`lines`]).
#[derive(Debug)]
pub struct PrintableOutput<W>(pub W);

impl<W: Write> Write for PrintableOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // A formatter writes whole characters, so no character is split between two calls.
        bytes.utf8_chunks().try_for_each(|chunk| {
            self.0.write_all(lines(chunk.valid()).as_bytes())?;
            self.0.write_all(chunk.invalid())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "a\u{1b}[2J\r\u{7f}\u{9b}31m\u{202e}\u{61c}\u{200e}\u{200f}\u{200d}\n\"é\"";

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let escaped = r#"a\u001b[2J\u000d\u007f\u009b31m\u202e\u061c\u200e\u200f"#.to_owned() + "\u{200d}";
        assert_eq!(lines(SENT), format!("{escaped}\n\"é\""));
        assert_eq!(Printable::from(SENT).as_str(), format!("{escaped}\\u000a\"é\""));
        assert!(matches!(lines("posted\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_output_escapes_and_keeps_json() {
        let mut out = PrintableOutput(Vec::new());
        write!(out, "{}\n{}", serde_json::to_string(SENT).unwrap(), SENT).unwrap();
        out.write_all(&[0xff]).unwrap();
        let written = out.0;
        let (json, rest) = written.split_at(written.iter().position(|byte| *byte == b'\n').unwrap());
        assert_eq!(serde_json::from_slice::<String>(json).unwrap(), SENT);
        assert_eq!(rest, [b"\n".as_slice(), lines(SENT).as_bytes(), &[0xff]].concat());
    }
}
