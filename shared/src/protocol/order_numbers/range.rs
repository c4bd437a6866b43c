//! A confirmed range in the hands of this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::register::Span;

/// Hands out the counters of a span, each once, by one atomic add.
#[derive(Debug)]
pub struct Range {
    span: Span,
    next: AtomicU64,
    /// From here on it is time for another range.
    call_at: u64,
    /// Whether somebody was already told so.
    called: AtomicBool,
}

impl Range {
    /// A range that was confirmed and from which nothing was taken. It is time for another one once the
    /// counter `call_at` was taken.
    pub const fn new(span: Span, call_at: u64) -> Self {
        Self { span, next: AtomicU64::new(span.from), call_at, called: AtomicBool::new(false) }
    }

    /// The whole span.
    pub const fn span(&self) -> Span {
        self.span
    }

    /// Takes up to `count` counters; fewer, maybe none, when the range ends.
    pub fn take(&self, count: u64) -> Span {
        // Adding past the end is harmless: `next` only grows, and 2^64 adds do not happen.
        let from = self.next.fetch_add(count, Ordering::Relaxed).min(self.span.until);
        Span { from, until: from.saturating_add(count).min(self.span.until) }
    }

    /// How many counters were taken so far.
    pub fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.span.until).saturating_sub(self.span.from)
    }

    /// Whether something is left.
    pub fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.span.until
    }

    /// Ends the range: nothing can be taken any more. What was left.
    pub fn close(&self) -> Span {
        let from = self.next.swap(self.span.until, Ordering::Relaxed).min(self.span.until);
        Span { from, until: self.span.until }
    }

    /// True once: for the first caller who took that, and with it the counter from which on it is time for
    /// another range.
    pub fn is_time_for_another(&self, taken: Span) -> bool {
        // Looked at before it is changed: a change takes the memory away from all other processors.
        taken.until > self.call_at
            && !self.called.load(Ordering::Relaxed)
            && !self.called.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_and_is_asked_for_another_once() {
        let range = Range::new(Span { from: 10, until: 20 }, 15);
        let (first, second) = (Span { from: 10, until: 14 }, Span { from: 14, until: 18 });
        assert_eq!((range.take(4), range.taken()), (first, 4));
        assert!(!range.is_time_for_another(first));
        assert_eq!(range.take(4), second);
        assert!(range.is_time_for_another(second));
        assert!(!range.is_time_for_another(second));
        assert_eq!(range.take(4), Span { from: 18, until: 20 });
        assert!(range.take(4).is_empty());
        assert_eq!(range.taken(), 10, "what was asked for in vain does not count");
        assert!(range.close().is_empty());
    }

    #[test]
    fn a_closed_range_gives_nothing() {
        let range = Range::new(Span { from: 10, until: 20 }, 15);
        let _ = range.take(3);
        assert_eq!(range.close(), Span { from: 13, until: 20 });
        assert!(range.take(1).is_empty());
        assert!(range.close().is_empty());
    }
}
