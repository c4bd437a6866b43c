//! Passes on one request at a time over HTTP/1.1. The framework would read and keep all requests that a client has sent while
//! it answers the first, so each is handed over only when the previous one is answered.

use std::task::Waker;

use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::Bytes;
use tokio::io::ReadBuf;

use super::super::in_progress::InTurn;
use super::framing::{Chunks, Head};

/// Returns the length of the body that a head announces; 0 if it announces none, or in a form that is left to the framework.
fn announced_body(head: &[u8]) -> usize {
    let mut lines = head.split(|byte| *byte == b'\n');
    let length = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(CONTENT_LENGTH.as_str().len())?;
        let is_length = name.eq_ignore_ascii_case(CONTENT_LENGTH.as_str().as_bytes());
        is_length.then(|| value.strip_prefix(b":").map(<[u8]>::trim_ascii)).flatten()
    });
    length.and_then(|length| std::str::from_utf8(length).ok()?.parse().ok()).unwrap_or(0)
}

/// The next part of the request in progress.
#[derive(Debug)]
enum Phase {
    Head(Head),
    /// Nothing until more than `others` requests have begun. `ahead` bytes of the body were handed over with the head.
    Begin {
        others: u64,
        ahead: u64,
    },
    /// The remaining bytes of a body with a length.
    Sized(u64),
    /// A chunked body.
    Chunked(Chunks),
    /// Nothing until the request is answered.
    Answer,
}

/// Received bytes that were not yet handed over, and the part of the request that follows.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Bytes,
    phase: Phase,
}

impl Default for Held {
    fn default() -> Self {
        Self { bytes: Bytes::new(), phase: Phase::Head(Head::default()) }
    }
}

impl Held {
    /// Whether reads must wait until a request has begun or is answered. If so, `waker` is woken then.
    pub(super) fn waits(&mut self, turn: &InTurn, waker: &Waker) -> bool {
        if !self.is_blocked(turn) {
            return false;
        }
        turn.reader.register(waker);
        self.is_blocked(turn)
    }

    fn is_blocked(&mut self, turn: &InTurn) -> bool {
        if let Phase::Begin { others, ahead } = self.phase
            && turn.begun() > others
        {
            self.phase = match turn.body() {
                Some(body) => Phase::Sized(body.saturating_sub(ahead)),
                None => Phase::Chunked(Chunks::default()),
            };
        }
        let has_passed = match &self.phase {
            Phase::Sized(left) => *left == 0,
            Phase::Chunked(chunks) => chunks.has_passed(),
            Phase::Head(_) | Phase::Begin { .. } | Phase::Answer => false,
        };
        if has_passed {
            self.phase = Phase::Answer;
        }
        if matches!(self.phase, Phase::Answer) && turn.answered() >= turn.begun() {
            self.phase = Phase::Head(Head::default());
        }
        matches!(self.phase, Phase::Begin { .. } | Phase::Answer)
    }

    /// Whether the head of a request comes next.
    pub(super) const fn awaits_head(&self) -> bool {
        matches!(self.phase, Phase::Head(_))
    }

    /// Returns the size of a request head that has not arrived completely.
    pub(super) const fn head_bytes(&self) -> usize {
        match &self.phase {
            Phase::Head(head) => head.bytes(),
            Phase::Begin { .. } | Phase::Sized(_) | Phase::Chunked(_) | Phase::Answer => 0,
        }
    }

    /// Whether no received bytes are held back.
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Hands over held bytes, up to the end of the current part.
    pub(super) fn hand_over(&mut self, turn: &InTurn, buffer: &mut ReadBuf<'_>) {
        let part = self.bytes.split_to(self.bytes.len().min(buffer.remaining()));
        let before = buffer.filled().len();
        buffer.put_slice(&part);
        self.cut(turn, buffer, before);
    }

    /// Holds back bytes after the body of the request in progress, or after the next head and its body.
    pub(super) fn cut(&mut self, turn: &InTurn, buffer: &mut ReadBuf<'_>, before: usize) {
        let received = buffer.filled().get(before..).unwrap_or_default();
        let count = match &mut self.phase {
            Phase::Head(head) => match (head.has_begun(), head.take(received)) {
                (has_begun, Some(end)) => {
                    let (head, behind) = received.split_at(end.min(received.len()));
                    // The first part of a head may end within a line, so a later part alone cannot be parsed.
                    let is_known = !has_begun && !behind.is_empty();
                    let ahead = if is_known { announced_body(head).min(behind.len()) } else { 0 };
                    let others = turn.begun();
                    self.phase = Phase::Begin { others, ahead: u64::try_from(ahead).unwrap_or(u64::MAX) };
                    end.saturating_add(ahead)
                }
                (_, None) => received.len(),
            },
            Phase::Sized(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(received.len());
                *left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
                count
            }
            Phase::Chunked(chunks) => chunks.take(received),
            Phase::Begin { .. } | Phase::Answer => 0,
        };
        if let Some(rest) = received.get(count..).filter(|rest| !rest.is_empty()) {
            self.bytes = [rest, &self.bytes].concat().into();
        }
        buffer.set_filled(before.saturating_add(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives bytes, and returns those that are handed over until reads must wait.
    fn read(held: &mut Held, turn: &InTurn, received: &[u8]) -> String {
        assert!(!held.waits(turn, Waker::noop()));
        let mut bytes = [0; 256];
        let mut buffer = ReadBuf::new(&mut bytes);
        buffer.put_slice(received);
        if received.is_empty() {
            held.hand_over(turn, &mut buffer)
        } else {
            held.cut(turn, &mut buffer, 0)
        }
        String::from_utf8(buffer.filled().to_vec()).unwrap()
    }

    #[test]
    fn a_request_is_handed_over_when_the_one_before_is_answered() {
        let (mut held, turn) = (Held::default(), InTurn::default());
        let (first, second) = ("GET /a HTTP/1.1\r\n\r\n", "POST /b HTTP/1.1\r\n\r\n");
        let all = format!("{first}{second}1\r\n\r\n2{first}");
        assert_eq!(read(&mut held, &turn, all.as_bytes()), first);
        assert!(held.waits(&turn, Waker::noop()), "it is not begun");
        turn.begin(Some(0));
        assert!(held.waits(&turn, Waker::noop()));
        turn.end();
        assert!(!held.waits(&turn, Waker::noop()));
        assert_eq!(read(&mut held, &turn, b""), second);
        turn.begin(Some(6));
        assert_eq!(read(&mut held, &turn, b""), "1\r\n\r\n2", "its body may contain the same");
        assert!(held.waits(&turn, Waker::noop()), "the whole body was handed over");
        turn.end();
        assert_eq!(read(&mut held, &turn, b""), first);
        assert!(held.is_empty());
        turn.begin(None);
        assert_eq!(read(&mut held, &turn, b"3\r\nabc\r\n"), "3\r\nabc\r\n");
        assert_eq!(read(&mut held, &turn, format!("0\r\n\r\n{second}").as_bytes()), "0\r\n\r\n");
        assert!(held.waits(&turn, Waker::noop()), "the whole body was handed over");
        turn.end();
        assert_eq!(read(&mut held, &turn, b""), second);
    }

    #[test]
    fn a_head_that_is_cut_at_any_place_is_no_body() {
        let (head, body) = ("POST /a HTTP/1.1\r\ncontent-length: 4\r\n\r\n", "\r\n\r\n");
        for cut in 1..head.len() {
            let (mut held, turn) = (Held::default(), InTurn::default());
            let (begin, rest) = head.split_at(cut);
            assert_eq!(read(&mut held, &turn, begin.as_bytes()), begin);
            assert_eq!(read(&mut held, &turn, format!("{rest}{body}{head}").as_bytes()), rest, "{cut}");
            turn.begin(Some(4));
            assert_eq!(read(&mut held, &turn, b""), body, "{cut}");
            turn.end();
            assert_eq!(read(&mut held, &turn, b""), head, "{cut}");
        }
    }

    #[test]
    fn a_body_that_arrived_with_its_head_is_handed_over_with_it() {
        let (mut held, turn) = (Held::default(), InTurn::default());
        let head = "POST /a HTTP/1.1\r\nx-content-length: 9\r\nContent-LENGTH: 4 \r\nx: y\r\n\r\n";
        let next = "GET /b HTTP/1.1\r\n\r\n";
        assert_eq!(
            read(&mut held, &turn, format!("{head}1234{next}").as_bytes()),
            format!("{head}1234"),
            "and nothing of the next request"
        );
        turn.begin(Some(4));
        assert!(held.waits(&turn, Waker::noop()), "the whole body was handed over");
        turn.end();
        assert_eq!(read(&mut held, &turn, b""), next);
        turn.begin(Some(0));
        turn.end();
        // The rest of a body follows.
        assert_eq!(read(&mut held, &turn, format!("{head}1").as_bytes()), format!("{head}1"));
        assert!(held.waits(&turn, Waker::noop()), "it is not begun");
        turn.begin(Some(4));
        assert_eq!(read(&mut held, &turn, b"2"), "2");
        turn.end();
        assert_eq!(
            read(&mut held, &turn, format!("34{next}").as_bytes()),
            "34",
            "also if it was answered before"
        );
        assert_eq!(read(&mut held, &turn, b""), next);
        // Lengths that the framework refuses are not interpreted.
        for length in ["-1", "x", "", "4, 4", "99999999999999999999"] {
            let head = format!("POST /a HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(announced_body(head.as_bytes()), 0, "{length}");
        }
    }
}
