//! Decoding of a document: removes the byte order mark, and checks the encoding that its headers name.

use std::io::{self, BufRead, Cursor, Read as _};

use postonce_shared::text::{Charset, START_BYTES, without_mark};

use super::{ItemsError, of_input};

/// Checks the start of a document and returns a reader of its text.
///
/// # Errors
/// [`ItemsError`] if the start has another encoding. The returned reader fails at later bytes outside of the encoding.
pub(super) fn decoded(mut input: Box<dyn BufRead>, charset: Charset) -> Result<Box<dyn BufRead>, ItemsError> {
    let mut start = Vec::new();
    input.by_ref().take(START_BYTES).read_to_end(&mut start).map_err(of_input)?;
    let text = charset.check(0, &start).and_then(|()| without_mark(&start));
    let text = text.map_err(|not_text| ItemsError::Form(format!("The body {not_text}.")))?;
    let whole = Cursor::new(text.to_vec()).chain(input);
    Ok(match charset {
        Charset::Utf8 => Box::new(whole),
        Charset::UsAscii => Box::new(Checked { input: whole, position: 0, ahead: 0, charset }),
    })
}

/// A reader that fails at a byte outside of the encoding.
struct Checked<R> {
    input: R,
    /// Number of bytes consumed so far.
    position: u64,
    /// Number of buffered bytes that are already checked.
    ahead: usize,
    charset: Charset,
}

impl<R: BufRead> io::Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let size = available.len().min(buffer.len());
        let (Some(from), Some(to)) = (available.get(..size), buffer.get_mut(..size)) else { return Ok(0) };
        to.copy_from_slice(from);
        self.consume(size);
        Ok(size)
    }
}

impl<R: BufRead> BufRead for Checked<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let available = self.input.fill_buf()?;
        let unchecked = available.get(self.ahead..).unwrap_or_default();
        let start = self.position.saturating_add(u64::try_from(self.ahead).unwrap_or(u64::MAX));
        self.ahead = self.ahead.max(available.len());
        let checked = self.charset.check(start, unchecked);
        checked.map_err(|not_text| io::Error::other(ItemsError::Form(format!("The body {not_text}."))))?;
        Ok(available)
    }

    fn consume(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.ahead = self.ahead.saturating_sub(bytes);
        self.position = self.position.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}
