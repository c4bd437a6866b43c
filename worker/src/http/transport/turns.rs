//! One request after the other over HTTP/1.1: the framework reads and keeps all requests that a client has sent, also while it
//! answers the first, so each is handed over when the one before is answered.

use std::task::Waker;

use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::Bytes;
use memchr::memmem;
use tokio::io::ReadBuf;

use super::super::under_way::InTurn;

/// The end of the head of a request.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The length of the body that a head announces; 0 if it announces none, or the framework has to look closer.
fn announced_body(head: &[u8]) -> usize {
    let mut lines = head.split(|byte| *byte == b'\n');
    let length = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(CONTENT_LENGTH.as_str().len())?;
        let is_length = name.eq_ignore_ascii_case(CONTENT_LENGTH.as_str().as_bytes());
        is_length.then(|| value.strip_prefix(b":").map(<[u8]>::trim_ascii)).flatten()
    });
    length.and_then(|length| std::str::from_utf8(length).ok()?.parse().ok()).unwrap_or(0)
}

/// What was received and not handed over.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: Bytes,
    /// Whether the last part that was handed over ends with the head of a request, which is begun next.
    is_paused: bool,
}

impl Held {
    /// Whether nothing may be handed over until the request in progress is answered. Then `waker` is woken.
    pub(super) fn waits(&self, turn: &InTurn, waker: &Waker) -> bool {
        if turn.wanted() > 0 {
            return false;
        }
        turn.reader.register(waker);
        turn.wanted() == 0
    }

    /// Whether a read has to wait until the request whose head was handed over is begun. True once for each.
    pub(super) const fn takes_pause(&mut self) -> bool {
        std::mem::replace(&mut self.is_paused, false)
    }

    /// Whether something was received and not handed over.
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Hands over what is held, as far as it is its turn.
    pub(super) fn hand_over(&mut self, turn: &InTurn, buffer: &mut ReadBuf<'_>) {
        let part = self.bytes.split_to(self.bytes.len().min(buffer.remaining()));
        let before = buffer.filled().len();
        buffer.put_slice(&part);
        self.cut(turn, buffer, before);
    }

    /// Holds back what is behind the body of the request in progress, or behind the next head and its body.
    pub(super) fn cut(&mut self, turn: &InTurn, buffer: &mut ReadBuf<'_>, before: usize) {
        let received = buffer.filled().get(before..).unwrap_or_default();
        let wanted = turn.wanted();
        // A body of a known length may contain what looks like the end of a head.
        let head = if wanted == usize::MAX { memmem::find(received, HEAD_END) } else { None };
        let head = head.and_then(|at| received.split_at_checked(at.saturating_add(HEAD_END.len())));
        self.is_paused = head.is_some();
        let count = if let Some((head, behind)) = head {
            let ahead = if behind.is_empty() { 0 } else { announced_body(head).min(behind.len()) };
            turn.note_head(ahead);
            head.len().saturating_add(ahead)
        } else {
            let count = wanted.min(received.len());
            turn.note(count);
            count
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

    /// Receives bytes, and returns what is handed over until it waits.
    fn read(held: &mut Held, turn: &InTurn, received: &[u8]) -> String {
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
        assert!(held.takes_pause() && !held.takes_pause());
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
        assert!(!held.waits(&turn, Waker::noop()), "a body without a length");
        assert_eq!(read(&mut held, &turn, b"3\r\nabc\r\n"), "3\r\nabc\r\n");
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
        // The rest of a body follows, before the request is begun and after.
        assert_eq!(read(&mut held, &turn, format!("{head}1").as_bytes()), format!("{head}1"));
        assert_eq!(read(&mut held, &turn, b"2"), "2");
        turn.begin(Some(4));
        assert_eq!(read(&mut held, &turn, format!("34{next}").as_bytes()), "34");
        assert!(held.waits(&turn, Waker::noop()));
        // What the framework refuses is not looked into.
        for length in ["-1", "x", "", "4, 4", "99999999999999999999"] {
            let head = format!("POST /a HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(announced_body(head.as_bytes()), 0, "{length}");
        }
    }
}
