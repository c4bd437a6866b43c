//! The grammar of CSV (RFC 4180), checked before the parser reads the document. The parser accepts every text. For a cell that
//! is cut off, or that has text after its closing quote, it returns another value than the client meant.
//!
//! A cell is either enclosed in quotes, with every inner quote doubled, or contains no quote. A separator or a line end
//! follows. A line ends with CR LF, or with LF alone, which most programs write although the standard does not have it.

use std::io::{self, Read};

use super::ItemsError;

/// A reader that fails where the document violates the grammar.
pub(super) struct Checked<R> {
    input: R,
    state: State,
    next: Place,
    /// Position of the quote that opened the current cell.
    quote: Place,
}

/// Position of a character, as editors count it: from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    line: u64,
    column: u64,
}

/// State after the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// After a separator or a line end, or at the start.
    Separated,
    /// In a cell without quotes.
    Plain,
    /// In a quoted cell.
    Quoted,
    /// After a quote in a quoted cell, which either closes the cell or begins a doubled quote.
    Closed,
    /// After a carriage return outside of quotes.
    Return,
}

/// The rule that a document violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum CsvError {
    #[error(
        "a quote within a cell that does not begin with one; separate cells by commas, quote the whole cell, and double \
         each quote in it"
    )]
    QuoteInside,
    #[error("text after the closing quote of a cell; expected a comma or a line end")]
    AfterQuote,
    #[error("a cell is separated by {}, expected ,", separator(*.0))]
    Separator(u8),
    #[error("a quoted cell begins, and the document ends before it is closed")]
    Unclosed,
    #[error("a carriage return without a line feed; expected CR LF or LF at the end of a line")]
    Return,
}

const fn separator(byte: u8) -> &'static str {
    match byte {
        b'\t' => "a tab",
        b'|' => "|",
        _ => ";",
    }
}

impl State {
    const fn after(self, byte: u8) -> Result<Self, CsvError> {
        match (self, byte) {
            (Self::Separated, b'"') => Ok(Self::Quoted),
            (Self::Quoted, b'"') => Ok(Self::Closed),
            (Self::Closed, b'"') => Ok(Self::Quoted),
            (Self::Quoted, _) => Ok(Self::Quoted),
            (Self::Return, b'\n') => Ok(Self::Separated),
            (Self::Return, _) => Err(CsvError::Return),
            (Self::Separated | Self::Plain | Self::Closed, b',' | b'\n') => Ok(Self::Separated),
            (Self::Separated | Self::Plain | Self::Closed, b'\r') => Ok(Self::Return),
            (Self::Plain, b'"') => Err(CsvError::QuoteInside),
            (Self::Separated | Self::Plain, _) => Ok(Self::Plain),
            (Self::Closed, b';' | b'\t' | b'|') => Err(CsvError::Separator(byte)),
            (Self::Closed, _) => Err(CsvError::AfterQuote),
        }
    }

    const fn at_end(self) -> Result<(), CsvError> {
        match self {
            Self::Separated | Self::Plain | Self::Closed => Ok(()),
            Self::Quoted => Err(CsvError::Unclosed),
            Self::Return => Err(CsvError::Return),
        }
    }
}

impl<R> Checked<R> {
    pub(super) const fn new(input: R) -> Self {
        let start = Place { line: 1, column: 1 };
        Self { input, state: State::Separated, next: start, quote: start }
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), ItemsError> {
        for byte in bytes {
            let before = self.state;
            self.state = before.after(*byte).map_err(|violation| self.broken(violation))?;
            if before == State::Separated && self.state == State::Quoted {
                self.quote = self.next;
            }
            let Place { line, column } = self.next;
            self.next = match byte {
                b'\n' => Place { line: line.saturating_add(1), column: 1 },
                // Continuation bytes of UTF-8 do not begin a character.
                0x80..=0xBF => self.next,
                _ => Place { line, column: column.saturating_add(1) },
            };
        }
        Ok(())
    }

    fn broken(&self, violation: CsvError) -> ItemsError {
        let Place { line, column } = match violation {
            CsvError::Unclosed => self.quote,
            // The violation is detected at the character after the carriage return.
            CsvError::Return => Place { column: self.next.column.saturating_sub(1), ..self.next },
            CsvError::QuoteInside | CsvError::AfterQuote | CsvError::Separator(_) => self.next,
        };
        ItemsError::Form(format!("The body is not valid CSV. Line {line}, column {column}: {violation}."))
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.input.read(buffer)?;
        let is_end = size == 0 && !buffer.is_empty();
        let checked = match is_end {
            true => self.state.at_end().map_err(|violation| self.broken(violation)),
            false => self.check(buffer.get(..size).unwrap_or_default()),
        };
        checked.map(|()| size).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reason why a document is refused, which does not depend on the size of the reads.
    fn refused(document: &str) -> Option<String> {
        let read = |piece: usize| {
            let mut checked = Checked::new(document.as_bytes());
            let mut buffer = vec![0; piece];
            loop {
                match checked.read(&mut buffer) {
                    Ok(0) => return None,
                    Ok(_) => {}
                    Err(error) => return Some(error.to_string()),
                }
            }
        };
        let whole = read(4096);
        assert_eq!(whole, read(1), "{document:?}");
        assert_eq!(whole, read(3), "{document:?}");
        whole
    }

    #[test]
    fn documents_in_the_grammar_are_accepted() {
        for document in [
            "",
            "a",
            "a,b",
            "a,b\r\n1,2\r\n",
            "a,b\n1,2\n",
            "\n\r\n",
            "\"\"",
            "\"\",\"\"\n",
            "\"a\"\"b\",\"\"\"\"\r\n",
            "\"a\r\nb\rc\n\",,\"d\"",
            "Grüße,\"ß\"\n",
        ] {
            assert_eq!(refused(document), None, "{document:?}");
        }
    }

    #[test]
    fn documents_outside_of_the_grammar_are_refused_with_line_and_column() {
        let check = |document: &str, line: u64, column: u64, rule: &str| {
            let refused = refused(document).unwrap_or_else(|| panic!("{document:?} is accepted"));
            let expected = format!("The body is not valid CSV. Line {line}, column {column}: {rule}");
            assert!(refused.starts_with(&expected), "{document:?}: {refused}");
        };
        let unclosed = "a quoted cell begins, and the document ends";
        check("a,b\n1,\"12", 2, 3, unclosed);
        check("a,b\n1,\"12\n3,4\n", 2, 3, unclosed);
        check("\"", 1, 1, unclosed);
        check("a,\"b\"\"", 1, 3, unclosed);
        let after = "text after the closing quote of a cell; expected a comma or a line end";
        check("a\n\"1\"000\n", 2, 4, after);
        check("a\n\"12\".50\n", 2, 5, after);
        check("a,\"ü\" ,b", 1, 6, after);
        check("a,\"12\n3,\"4\"", 2, 4, after);
        let inside = "a quote within a cell that does not begin with one";
        check("a\n12\"50\n", 2, 3, inside);
        check("ö, \"12.50\"", 1, 4, inside);
        let carriage_return = "a carriage return without a line feed; expected CR LF or LF";
        check("a\r1", 1, 2, carriage_return);
        check("a\n\"1\"\r2", 2, 4, carriage_return);
        check("a\r", 1, 2, carriage_return);
        check("\"a\";\"b\"\n", 1, 4, "a cell is separated by ;, expected ,");
        check("\"a\"\t\"b\"\n", 1, 4, "a cell is separated by a tab, expected ,");
        check("\"a\"|\"b\"\n", 1, 4, "a cell is separated by |, expected ,");
        check("a;\"b\"\n", 1, 3, &format!("{inside}; separate cells by commas"));
    }
}
