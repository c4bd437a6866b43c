//! Frames of an HTTP/2 connection (RFC 9113, section 4.1), read as they pass. Only their headers are parsed.

const HEAD_BYTES: usize = 9;

/// Type of a frame, where it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Part of a body.
    Data,
    /// First header fields of a request or a response, or trailers.
    Headers,
    /// Termination of a stream before its end.
    ResetStream,
    /// Parameters of the connection.
    Settings,
    /// Flow control credit for bodies.
    WindowUpdate,
    /// More header fields.
    Continuation,
    Other,
}

impl Kind {
    const fn of(code: u8) -> Self {
        match code {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x3 => Self::ResetStream,
            0x4 => Self::Settings,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Size of the payload in bytes.
    pub(super) length: usize,
    pub(super) kind: Kind,
    flags: u8,
    /// The stream, or zero for the connection.
    pub(super) stream: u32,
}

impl FrameHead {
    const fn of(bytes: [u8; HEAD_BYTES]) -> Self {
        let [high, middle, low, kind, flags, a, b, c, d] = bytes;
        Self {
            length: u32_of([0, high, middle, low]),
            kind: Kind::of(kind),
            flags,
            stream: u32::from_be_bytes([a & 0x7f, b, c, d]),
        }
    }

    /// Whether the sender will send no further frame with a body or fields on the stream.
    pub(super) const fn ends_stream(self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Headers) && self.flags & 0x1 != 0
    }

    /// Whether this frame completes the fields of a request.
    pub(super) const fn ends_fields(self) -> bool {
        self.flags & 0x4 != 0
    }

    /// Whether the payload contains padding, which some implementations do not count as credit.
    pub(super) const fn is_padded(self) -> bool {
        self.flags & 0x8 != 0
    }
}

#[expect(clippy::as_conversions, reason = "24 bits fit in usize, and `From` is not const")]
const fn u32_of(bytes: [u8; 4]) -> usize {
    u32::from_be_bytes(bytes) as usize
}

/// The header fields in the payload of a frame that passes in parts (RFC 9113, sections 6.2 and 6.10).
#[derive(Debug, Default)]
pub(super) struct FieldPart {
    /// Bytes before the fields: the padding length and the priority.
    before: usize,
    /// Whether the padding length is still to be read.
    is_padded: bool,
    /// Remaining bytes of the fields, with the padding until its length is known.
    left: usize,
}

impl FieldPart {
    /// Returns the fields of a frame; none for frames of other types.
    pub(super) fn of(head: FrameHead) -> Self {
        if head.kind == Kind::Continuation {
            return Self { left: head.length, ..Self::default() };
        }
        if head.kind != Kind::Headers {
            return Self::default();
        }
        let priority = if head.flags & 0x20 != 0 { 5 } else { 0 };
        let before = usize::from(head.is_padded()).saturating_add(priority);
        Self { before, is_padded: head.is_padded(), left: head.length.saturating_sub(before) }
    }

    /// Returns the fields in the next part of the payload.
    pub(super) fn take<'b>(&mut self, payload: &'b [u8]) -> &'b [u8] {
        let (before, rest) = payload.split_at(self.before.min(payload.len()));
        self.before = self.before.saturating_sub(before.len());
        if let Some(padding) = before.first().filter(|_| std::mem::take(&mut self.is_padded)) {
            self.left = self.left.saturating_sub(usize::from(*padding));
        }
        let fields = rest.get(..self.left.min(rest.len())).unwrap_or_default();
        self.left = self.left.saturating_sub(fields.len());
        fields
    }
}

/// Finds frame headers in bytes that pass in parts of any size.
#[derive(Debug)]
pub(super) struct FrameReader {
    head: [u8; HEAD_BYTES],
    /// Number of header bytes read so far.
    known: usize,
    /// Bytes until the next header.
    skipped: usize,
}

impl FrameReader {
    /// Starts before `bytes` bytes that are not frames.
    pub(super) const fn after(bytes: usize) -> Self {
        Self { head: [0; HEAD_BYTES], known: 0, skipped: bytes }
    }

    /// Returns how many bytes of the last frame's payload are still to come.
    pub(super) const fn left(&self) -> usize {
        self.skipped
    }

    /// Removes and returns the next bytes of the last frame's payload.
    pub(super) fn payload<'b>(&mut self, bytes: &mut &'b [u8]) -> &'b [u8] {
        let (payload, rest) = bytes.split_at(self.skipped.min(bytes.len()));
        self.skipped = self.skipped.saturating_sub(payload.len());
        *bytes = rest;
        payload
    }

    /// Removes bytes up to the end of the next frame header. Returns `None` if the bytes end before.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<FrameHead> {
        self.payload(bytes);
        let rest = *bytes;
        let missing = self.head.get_mut(self.known..).unwrap_or_default();
        let (part, rest) = rest.split_at(missing.len().min(rest.len()));
        missing.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        self.known = self.known.saturating_add(part.len());
        *bytes = rest;
        if self.known < HEAD_BYTES {
            return None;
        }
        let head = FrameHead::of(self.head);
        (self.known, self.skipped) = (0, head.length);
        Some(head)
    }
}

/// Returns the server's first frame with one more parameter, and the original size of the frame. `None` if the bytes do not
/// begin with a complete SETTINGS frame.
pub(super) fn with_setting(bytes: &[u8], setting: u16, value: u32) -> Option<(Vec<u8>, usize)> {
    let mut rest = bytes;
    let head = FrameReader::after(0).next(&mut rest)?;
    let is_settings = head.kind == Kind::Settings && head.flags == 0 && head.stream == 0;
    let payload = rest.get(..head.length).filter(|_| is_settings)?;
    let parameter = [&setting.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let length = u32::try_from(payload.len().checked_add(parameter.len())?).ok()?.to_be_bytes();
    let fields = bytes.get(3..HEAD_BYTES)?;
    let frame = [length.get(1..)?, fields, payload, &parameter].concat();
    Some((frame, HEAD_BYTES.checked_add(payload.len())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize, kind: u8, flags: u8, stream: u32) -> Vec<u8> {
        let length = u32::try_from(length).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), &vec![0xff; usize::from(length[3])]].concat()
    }

    #[test]
    fn heads_are_found_however_the_bytes_are_cut() {
        let bytes = [vec![b'P'; 24], frame(3, 1, 5, 7), frame(0, 0, 1, 7), frame(4, 8, 0, 0)].concat();
        for size in 1..bytes.len() {
            let (mut reader, mut found) = (FrameReader::after(24), Vec::new());
            for mut part in bytes.chunks(size) {
                while let Some(head) = reader.next(&mut part) {
                    found.push((head.kind, head.length, head.stream, head.ends_stream()));
                }
                assert!(part.is_empty());
            }
            let expected =
                [(Kind::Headers, 3, 7, true), (Kind::Data, 0, 7, true), (Kind::WindowUpdate, 4, 0, false)];
            assert_eq!(found, expected, "in parts of {size}");
        }
    }

    #[test]
    fn a_parameter_is_added_to_the_first_settings_only() {
        let settings = [vec![0, 0, 6, 4, 0, 0, 0, 0, 0], vec![0, 4, 0, 1, 0, 0], vec![9]].concat();
        let (with, size) = with_setting(&settings, 3, 256).unwrap();
        assert_eq!(size, 15, "the rest follows unchanged");
        let expected = [&[0, 0, 12, 4, 0, 0, 0, 0, 0][..], &[0, 4, 0, 1, 0, 0], &[0, 3, 0, 0, 1, 0]].concat();
        assert_eq!(with, expected);
        assert_eq!(with_setting(&settings[..14], 3, 256), None, "not whole");
        assert_eq!(with_setting(&frame(0, 4, 1, 0), 3, 256), None, "an acknowledgement");
    }
}
