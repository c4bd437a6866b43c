//! Limits of one HTTP/2 connection. The library below the framework has no configurable ones: it accepts any number of streams,
//! and keeps their responses in memory until the client takes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::in_progress::{StreamCounts, Totals};
use super::fields::FieldCount;
use super::frames::{FieldPart, FrameHead, FrameReader, Kind};

/// Maximum number of open streams of a connection: requests whose response is not yet sent. The server announces it to clients
/// (`SETTINGS_MAX_CONCURRENT_STREAMS`, RFC 9113, section 6.5.2).
pub(super) const OPEN_MAX: usize = 256;
/// Maximum size of the fields of a request as sent, compressed or not; more than the largest `header-bytes-max`.
const FIELD_BYTES_MAX: usize = 96 * 1024;
/// Maximum number of fields of a request; HTTP/1.1 is similar, where the framework accepts 96.
const FIELDS_MAX: usize = 128;
/// Maximum number of empty body frames since the server last granted credit.
const EMPTY_MAX: u32 = 256;
/// Maximum number of body frames below [`SMALL_BYTES`] since then. They take memory, but hardly any credit.
const SMALL_MAX: u32 = 16_384;
/// Size from which a body frame uses about as much credit as memory.
const SMALL_BYTES: usize = 32;
/// Maximum number of requests that are read before earlier ones have begun.
const UNBEGUN_MAX: usize = 16;
/// The same limit for the bytes of their fields, because one byte may encode a field.
const UNBEGUN_BYTES_MAX: usize = 8 * 1024;
/// Size of the client's connection preface (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// The limit that a client exceeded. The connection is closed, because the library has no state for a stream that it must not
/// see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamLimitError {
    #[error("it opened more than {OPEN_MAX} streams at the same time")]
    Streams,
    #[error("the fields of a request have more than {FIELD_BYTES_MAX} bytes")]
    Fields,
    #[error("a request has more than {FIELDS_MAX} fields")]
    FieldCount,
    #[error("it sent more than {EMPTY_MAX} empty parts of bodies")]
    EmptyData,
    #[error("it sent more than {SMALL_MAX} parts of bodies with less than {SMALL_BYTES} bytes")]
    SmallData,
}

pub(super) struct Streams {
    incoming: FrameReader,
    outgoing: FrameReader,
    open: BTreeSet<u32>,
    /// The last opened stream. Stream numbers only grow.
    last: u32,
    field_bytes: usize,
    /// Whether the current frame, or the one before it, is the last one with fields.
    has_fields: bool,
    fields: FieldCount,
    /// The fields in the current frame.
    part: FieldPart,
    empty: u32,
    small: u32,
    /// Number of requests since the last pause.
    unbegun: usize,
    unbegun_bytes: usize,
    /// Number of reads that still return pending.
    paused: usize,
    all: Arc<Totals>,
    counts: Arc<StreamCounts>,
}

impl Streams {
    pub(super) fn new(all: Arc<Totals>) -> Self {
        Self {
            incoming: FrameReader::after(PREFACE_BYTES),
            outgoing: FrameReader::after(0),
            open: BTreeSet::new(),
            last: 0,
            field_bytes: 0,
            has_fields: true,
            fields: FieldCount::new(),
            part: FieldPart::default(),
            empty: 0,
            small: 0,
            unbegun: 0,
            unbegun_bytes: 0,
            paused: 0,
            all,
            counts: Arc::default(),
        }
    }

    pub(super) const fn counts(&self) -> &Arc<StreamCounts> {
        &self.counts
    }

    /// Returns the size of the fields of a request that has not arrived completely.
    pub(super) const fn head_bytes(&self) -> usize {
        let left = self.incoming.left();
        if self.has_fields && left == 0 { 0 } else { self.field_bytes.saturating_sub(left) }
    }

    /// Whether a read has to wait until earlier requests have begun. The library reads while bytes are available, and hands out
    /// one request each time a read is pending.
    pub(super) const fn takes_pause(&mut self) -> bool {
        if self.paused == 0 && (self.unbegun >= UNBEGUN_MAX || self.unbegun_bytes >= UNBEGUN_BYTES_MAX) {
            // One pending read for each request, and one more without a request, after which other tasks run.
            self.paused = self.unbegun.saturating_add(1);
            (self.unbegun, self.unbegun_bytes) = (0, 0);
        }
        let is_paused = self.paused > 0;
        self.paused = self.paused.saturating_sub(1);
        is_paused
    }

    /// Inspects bytes from the client. Returns whether the client opened a stream.
    pub(super) fn received(&mut self, mut bytes: &[u8]) -> Result<bool, StreamLimitError> {
        let before = self.last;
        loop {
            let payload = self.incoming.payload(&mut bytes);
            if self.fields.take(self.part.take(payload)) > FIELDS_MAX {
                return Err(StreamLimitError::FieldCount);
            }
            let Some(head) = self.incoming.next(&mut bytes) else { break };
            self.part = FieldPart::of(head);
            if !matches!(head.kind, Kind::Headers | Kind::Continuation) {
                // No other frame is allowed between the frames of a head (RFC 9113, section 4.3).
                self.field_bytes = 0;
            }
            match head.kind {
                Kind::Headers => self.begin(head)?,
                Kind::Continuation => self.add_fields(head)?,
                Kind::Data => self.note_data(head)?,
                Kind::ResetStream => self.end(head.stream, false),
                Kind::Settings | Kind::WindowUpdate | Kind::Other => {}
            }
        }
        Ok(self.last != before)
    }

    /// Inspects bytes sent to the client.
    pub(super) fn sent(&mut self, mut bytes: &[u8]) {
        while let Some(head) = self.outgoing.next(&mut bytes) {
            if head.kind == Kind::WindowUpdate {
                (self.empty, self.small) = (0, 0);
            }
            if head.ends_stream() || head.kind == Kind::ResetStream {
                self.end(head.stream, true);
            }
        }
    }

    fn begin(&mut self, head: FrameHead) -> Result<(), StreamLimitError> {
        (self.field_bytes, self.fields) = (0, FieldCount::new());
        self.add_fields(head)?;
        // Trailers belong to a stream that is open or was already closed.
        if head.stream <= self.last {
            return Ok(());
        }
        self.last = head.stream;
        self.unbegun = self.unbegun.saturating_add(1);
        if self.open.len() >= OPEN_MAX {
            return Err(StreamLimitError::Streams);
        }
        if self.open.is_empty() {
            // Until now there was no answer to take.
            self.note_answered(self.all.answered_streams.load(Ordering::Relaxed));
        }
        self.open.insert(head.stream);
        self.all.open_streams.fetch_add(1, Ordering::Relaxed);
        self.counts.open.store(self.open.len(), Ordering::Relaxed);
        Ok(())
    }

    const fn add_fields(&mut self, head: FrameHead) -> Result<(), StreamLimitError> {
        self.has_fields = head.ends_fields();
        self.field_bytes = self.field_bytes.saturating_add(head.length);
        self.unbegun_bytes = self.unbegun_bytes.saturating_add(head.length);
        if self.field_bytes > FIELD_BYTES_MAX { Err(StreamLimitError::Fields) } else { Ok(()) }
    }

    const fn note_data(&mut self, head: FrameHead) -> Result<(), StreamLimitError> {
        if head.ends_stream() {
            return Ok(());
        }
        if head.length == 0 {
            self.empty = self.empty.saturating_add(1);
        }
        if head.length < SMALL_BYTES || head.is_padded() {
            self.small = self.small.saturating_add(1);
        }
        if self.empty > EMPTY_MAX {
            return Err(StreamLimitError::EmptyData);
        }
        if self.small > SMALL_MAX { Err(StreamLimitError::SmallData) } else { Ok(()) }
    }

    fn end(&mut self, stream: u32, is_answered: bool) {
        if !self.open.remove(&stream) {
            return;
        }
        self.all.open_streams.fetch_sub(1, Ordering::Relaxed);
        self.counts.open.store(self.open.len(), Ordering::Relaxed);
        if is_answered {
            self.note_answered(self.all.answered_streams.fetch_add(1, Ordering::Relaxed).saturating_add(1));
        }
    }

    fn note_answered(&self, answered: u64) {
        self.counts.answered_at.store(answered, Ordering::Relaxed);
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.all.open_streams.fetch_sub(self.open.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u8 = 0x1;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    fn begun() -> Streams {
        let mut streams = Streams::new(Arc::default());
        assert_eq!(streams.received(&[b'P'; 24]), Ok(false));
        streams
    }

    fn headers(number: usize) -> Vec<u8> {
        let stream = u32::try_from(number).unwrap().saturating_mul(2).saturating_add(1);
        frame(0x1, END | 0x4, stream, b"....")
    }

    #[test]
    fn a_stream_is_open_until_its_answer_is_sent_or_it_is_reset() {
        let mut streams = begun();
        for number in 0..3 {
            assert_eq!(streams.received(&headers(number)), Ok(true));
        }
        assert_eq!(streams.received(&headers(0)), Ok(false), "trailers open no stream");
        streams.sent(&frame(0x1, 0x4, 1, b"...."));
        assert_eq!(streams.counts().open(), 3, "its body follows");
        streams.sent(&frame(0x0, END, 1, b"body"));
        streams.sent(&frame(0x3, 0, 3, &[0; 4]));
        assert_eq!(streams.received(&frame(0x3, 0, 5, &[0; 4])), Ok(false));
        assert_eq!((streams.counts().open(), streams.all.open_streams.load(Ordering::Relaxed)), (0, 0));
        assert_eq!(streams.received(&headers(1)), Ok(false), "trailers after the answer");
        assert_eq!(streams.counts().open(), 0);
        assert_eq!(streams.counts().answered_at(), 2, "the client took two of them");
    }

    #[test]
    fn a_connection_waits_for_answers_since_it_opened_a_stream() {
        let mut streams = begun();
        for (number, answered, since) in [(0, 7, 7), (1, 9, 7)] {
            streams.all.answered_streams.store(answered, Ordering::Relaxed);
            assert_eq!(streams.received(&headers(number)), Ok(true));
            assert_eq!(streams.counts().answered_at(), since);
        }
    }

    #[test]
    fn more_streams_than_the_client_was_told_close_the_connection() {
        let mut streams = begun();
        for number in 0..OPEN_MAX {
            assert_eq!(streams.received(&headers(number)), Ok(true));
        }
        assert_eq!(streams.received(&headers(OPEN_MAX)), Err(StreamLimitError::Streams));
        let all = Arc::clone(&streams.all);
        assert_eq!(all.open_streams.load(Ordering::Relaxed), OPEN_MAX);
        drop(streams);
        assert_eq!(all.open_streams.load(Ordering::Relaxed), 0, "they end with their connection");
    }

    #[test]
    fn frames_that_take_memory_without_credit_are_counted_until_there_is_new_credit() {
        let empty = frame(0x0, 0, 1, b"");
        let mut streams = begun();
        for _ in 0..EMPTY_MAX {
            assert_eq!(streams.received(&empty), Ok(false));
        }
        streams.sent(&frame(0x8, 0, 0, &[0; 4]));
        for _ in 0..EMPTY_MAX {
            assert_eq!(streams.received(&empty), Ok(false));
        }
        assert_eq!(streams.received(&frame(0x0, END, 1, b"")), Ok(false), "the end of a body");
        assert_eq!(streams.received(&empty), Err(StreamLimitError::EmptyData));
        for (small, name) in [(frame(0x0, 0, 1, b"1"), "a byte"), (frame(0x0, 0x8, 1, &[60; 61]), "padding")]
        {
            let mut streams = begun();
            let received = (0..=SMALL_MAX).map(|_| streams.received(&small)).find_map(Result::err);
            assert_eq!(received, Some(StreamLimitError::SmallData), "{name}");
        }
    }

    #[test]
    fn fields_are_bounded_over_all_their_frames() {
        let mut streams = begun();
        let mut part = [0; 16 * 1024];
        // One field with a value of many bytes (RFC 7541, section 6.2.2).
        part[..5].copy_from_slice(&[0x04, 0x7f, 0xff, 0xff, 0x7f]);
        assert_eq!(streams.received(&frame(0x1, 0, 1, &part)), Ok(true));
        let received = (0..6).map(|_| streams.received(&frame(0x9, 0, 1, &part))).find_map(Result::err);
        assert_eq!(received, Some(StreamLimitError::Fields));
    }

    #[test]
    fn fields_count_as_a_head_until_all_have_arrived() {
        let mut streams = begun();
        let first = frame(0x1, END, 1, &[0x90; 100]);
        let (begin, rest) = first.split_at(49);
        assert_eq!((streams.received(begin), streams.head_bytes()), (Ok(true), 40));
        assert_eq!((streams.received(rest), streams.head_bytes()), (Ok(false), 100));
        let last = frame(0x9, 0x4, 1, &[0x90; 10]);
        let (begin, rest) = last.split_at(12);
        assert_eq!((streams.received(begin), streams.head_bytes()), (Ok(false), 103));
        assert_eq!((streams.received(rest), streams.head_bytes()), (Ok(false), 0));
        assert_eq!(
            (streams.received(&frame(0x0, 0, 1, b"body")[..10]), streams.head_bytes()),
            (Ok(false), 0)
        );
    }

    #[test]
    fn the_number_of_fields_is_bounded_over_all_frames_and_without_what_is_around_them() {
        let indexed = |count: usize| vec![0x90; count];
        let padded = [&[200][..], &[0; 5], &indexed(FIELDS_MAX), &[0x90; 200]].concat();
        for size in [1, 7, 1000] {
            let mut streams = begun();
            for (number, (flags, payload)) in
                [(0x4, indexed(FIELDS_MAX)), (0x4 | 0x8 | 0x20, padded.clone())].into_iter().enumerate()
            {
                let stream = u32::try_from(number).unwrap().saturating_mul(2).saturating_add(1);
                for part in frame(0x1, flags, stream, &payload).chunks(size) {
                    assert!(streams.received(part).is_ok(), "padding and priority are no fields");
                }
            }
            assert_eq!(streams.received(&frame(0x1, 0, 5, &indexed(100))), Ok(true));
            assert_eq!(streams.received(&frame(0x9, 0, 5, &indexed(28))), Ok(false));
            assert_eq!(streams.received(&frame(0x9, 0, 5, &indexed(1))), Err(StreamLimitError::FieldCount));
        }
    }

    #[test]
    fn after_some_requests_reads_wait_until_all_are_begun() {
        let mut streams = begun();
        for number in 0..UNBEGUN_MAX {
            assert!(!streams.takes_pause(), "{number}");
            assert_eq!(streams.received(&headers(number)), Ok(true));
        }
        for number in 0..=UNBEGUN_MAX {
            assert!(streams.takes_pause(), "{number}");
        }
        assert!(!streams.takes_pause());
    }
}
