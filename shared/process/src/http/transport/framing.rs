//! Finds the end of the head of an HTTP/1.1 request and of a chunked body (RFC 9112, sections 2.2 and 7.1) in bytes that pass
//! in parts of any size. Input that the framework refuses is not parsed exactly, because the connection ends then.

use memchr::{memchr, memchr_iter};

/// Parser for the head of a request.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Whether the current line has bytes other than line ends.
    has_bytes: bool,
    /// Whether a line has passed. Empty lines before the first one are not part of the head.
    has_lines: bool,
    bytes: usize,
}

impl Head {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a part of the head has passed.
    pub(super) const fn has_begun(&self) -> bool {
        self.has_bytes || self.has_lines
    }

    /// Reads the next bytes. Returns the position at which the head ends, if it does.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        let has_bytes = |part: &[u8]| part.iter().any(|byte| *byte != b'\r');
        let mut begin = 0_usize;
        for at in memchr_iter(b'\n', bytes) {
            self.has_bytes |= has_bytes(bytes.get(begin..at).unwrap_or_default());
            begin = at.saturating_add(1);
            if !self.has_bytes && self.has_lines {
                return Some(begin);
            }
            self.has_lines |= self.has_bytes;
            self.has_bytes = false;
        }
        self.has_bytes |= has_bytes(bytes.get(begin..).unwrap_or_default());
        None
    }
}

/// Parser for a chunked body.
#[derive(Debug)]
pub(super) enum Chunks {
    /// The line with the size of a chunk, as read so far.
    Size { size: u64, has_ended: bool },
    /// Remaining bytes of a chunk.
    Content(u64),
    /// The end of the line after a chunk.
    End,
    /// The lines after the last chunk. Whether the current one has bytes other than line ends.
    Trailers(bool),
    /// The whole body has passed.
    Passed,
}

impl Default for Chunks {
    fn default() -> Self {
        Self::Size { size: 0, has_ended: false }
    }
}

impl Chunks {
    /// Reads the next bytes. Returns how many of them belong to the body.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0_usize;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let count = match self {
                Self::Passed => break,
                Self::Content(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
                    if *left == 0 {
                        *self = Self::End;
                    }
                    count
                }
                Self::Size { .. } | Self::End | Self::Trailers(_) => {
                    let end = memchr(b'\n', rest);
                    let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
                    self.line(line, end.is_some());
                    line.len().saturating_add(usize::from(end.is_some()))
                }
            };
            taken = taken.saturating_add(count);
        }
        taken
    }

    /// Reads a part of a line.
    fn line(&mut self, part: &[u8], is_end: bool) {
        match self {
            Self::Size { size, has_ended } => {
                for byte in part {
                    let digit = char::from(*byte).to_digit(16).map(u64::from);
                    match digit.filter(|_| !*has_ended) {
                        Some(digit) => *size = size.saturating_mul(16).saturating_add(digit),
                        None => *has_ended = true,
                    }
                }
                if is_end {
                    *self = if *size == 0 { Self::Trailers(false) } else { Self::Content(*size) };
                }
            }
            Self::End if is_end => *self = Self::default(),
            Self::Trailers(has_bytes) => {
                *has_bytes |= part.iter().any(|byte| *byte != b'\r');
                if is_end {
                    *self = if *has_bytes { Self::Trailers(false) } else { Self::Passed };
                }
            }
            Self::End | Self::Content(_) | Self::Passed => {}
        }
    }

    pub(super) const fn has_passed(&self) -> bool {
        matches!(self, Self::Passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_head_is_found_however_the_bytes_are_cut() {
        for (head, behind) in [
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"),
            ("\r\n\n\r\nGET / HTTP/1.1\nhost: a\n\n", "\r\n"),
            ("GET / HTTP/1.1\r\nhost: a\n\r\n", "x"),
            ("GET / HTTP/1.1\nhost: a\r\n\n", ""),
        ] {
            let all = format!("{head}{behind}");
            for size in 1..=all.len() {
                let (mut it, mut passed, mut end) = (Head::default(), 0, None);
                for part in all.as_bytes().chunks(size) {
                    end = it.take(part).map(|end| passed + end);
                    passed += part.len();
                    if end.is_some() {
                        break;
                    }
                }
                assert_eq!(end, Some(head.len()), "{all:?} in parts of {size}");
            }
        }
        assert_eq!(Head::default().take(b"GET / HTTP/1.1\r\nhost: a\r\n\r"), None);
    }

    #[test]
    fn the_end_of_a_body_in_chunks_is_found_however_the_bytes_are_cut() {
        for body in [
            "0\r\n\r\n",
            "5\r\n0\r\n\r\n\r\n0\r\n\r\n",
            "3;name=\"0\"\r\nabc\r\n1A\r\n01234567890123456789012345\r\n000\r\n\r\n",
            "1\r\na\r\n0\r\nx: y\r\nz: 1\r\n\r\n",
        ] {
            let all = format!("{body}GET / HTTP/1.1\r\n\r\n");
            for size in 1..=all.len() {
                let (mut chunks, mut taken) = (Chunks::default(), 0);
                for part in all.as_bytes().chunks(size) {
                    taken += chunks.take(part);
                }
                assert_eq!((taken, chunks.has_passed()), (body.len(), true), "{all:?} in parts of {size}");
            }
        }
        let mut endless = Chunks::default();
        assert_eq!(endless.take(b"fffffffffffffffffff\r\n0\r\n\r\n"), 26, "no number overflows");
        assert!(!endless.has_passed());
    }
}
