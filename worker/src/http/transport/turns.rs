//! One request after the other over HTTP/1.1: the framework reads and keeps all requests that a client has sent, also while it
//! answers the first, so each is handed over when the one before is answered.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use actix_web::web::Bytes;
use futures::task::AtomicWaker;
use tokio::io::ReadBuf;

/// The end of the head of a request.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The request in progress on a connection over HTTP/1.1.
#[derive(Debug, Default)]
pub(in crate::http) struct InTurn {
    is_begun: AtomicBool,
    /// Bytes of its body that were not yet handed over; `u64::MAX` if nobody knows.
    body_left: AtomicU64,
    /// Who waits for a read until it is answered.
    reader: AtomicWaker,
}

impl InTurn {
    /// Notes that a request was begun, and the length of its body; `None` if it is not announced.
    pub(in crate::http) fn begin(&self, body: Option<u64>) {
        self.body_left.store(body.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.is_begun.store(true, Ordering::Release);
    }

    /// Notes that it is answered.
    pub(in crate::http) fn end(&self) {
        self.is_begun.store(false, Ordering::Release);
        self.reader.wake();
    }

    /// How many bytes may be handed over now: all up to the next head, if no request is in progress.
    fn wanted(&self) -> usize {
        if !self.is_begun.load(Ordering::Acquire) {
            return usize::MAX;
        }
        usize::try_from(self.body_left.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    fn note(&self, count: usize) {
        let left = self.body_left.load(Ordering::Relaxed);
        if left < u64::MAX {
            let left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
            self.body_left.store(left, Ordering::Relaxed);
        }
    }
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

    /// Holds back what is behind the body of the request in progress, or behind the next head.
    pub(super) fn cut(&mut self, turn: &InTurn, buffer: &mut ReadBuf<'_>, before: usize) {
        let received = buffer.filled().get(before..).unwrap_or_default();
        let wanted = turn.wanted().min(received.len());
        let head = received.windows(HEAD_END.len()).position(|window| window == HEAD_END);
        let head = head.map(|at| at.saturating_add(HEAD_END.len())).filter(|end| *end <= wanted);
        self.is_paused = head.is_some();
        let count = head.unwrap_or(wanted);
        if let Some(rest) = received.get(count..).filter(|rest| !rest.is_empty()) {
            self.bytes = [rest, &self.bytes].concat().into();
        }
        turn.note(count);
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
        assert_eq!(read(&mut held, &turn, b""), "1\r\n\r\n", "its body may contain the same");
        assert!(held.takes_pause() && !held.waits(&turn, Waker::noop()));
        assert_eq!(read(&mut held, &turn, b""), "2");
        assert!(held.waits(&turn, Waker::noop()), "the whole body was handed over");
        turn.end();
        assert_eq!(read(&mut held, &turn, b""), first);
        assert!(held.is_empty());
        turn.begin(None);
        assert!(!held.waits(&turn, Waker::noop()), "a body without a length");
        assert_eq!(read(&mut held, &turn, b"3\r\nabc\r\n"), "3\r\nabc\r\n");
    }
}
