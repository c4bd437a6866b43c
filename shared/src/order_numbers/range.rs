//! A confirmed range in the hands of this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::register::Span;

/// Hands out the counters of a span, each once, by one atomic add.
#[derive(Debug)]
pub struct Range {
    span: Span,
    next: AtomicU64,
    /// Whether somebody was already told that it is time for another range.
    called: AtomicBool,
}

impl Range {
    /// A range that was confirmed and from which nothing was taken.
    pub const fn new(span: Span) -> Self {
        Self { span, next: AtomicU64::new(span.from), called: AtomicBool::new(false) }
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

    /// Whether something is left.
    pub fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.span.until
    }

    /// Ends the range: nothing can be taken any more. What was left.
    pub fn close(&self) -> Span {
        let from = self.next.swap(self.span.until, Ordering::Relaxed).min(self.span.until);
        Span { from, until: self.span.until }
    }

    /// True once: for the first caller after half of the range was taken.
    pub fn is_time_for_another(&self) -> bool {
        let taken = self.next.load(Ordering::Relaxed).saturating_sub(self.span.from);
        taken >= self.span.len().div_ceil(2) && !self.called.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_and_is_asked_for_another_once() {
        let range = Range::new(Span { from: 10, until: 20 });
        assert!(!range.is_time_for_another());
        assert_eq!(range.take(4), Span { from: 10, until: 14 });
        assert!(!range.is_time_for_another());
        assert_eq!(range.take(4), Span { from: 14, until: 18 });
        assert!(range.is_time_for_another());
        assert!(!range.is_time_for_another());
        assert_eq!(range.take(4), Span { from: 18, until: 20 });
        assert!(range.take(4).is_empty());
        assert!(range.close().is_empty());
    }

    #[test]
    fn a_closed_range_gives_nothing() {
        let range = Range::new(Span { from: 10, until: 20 });
        let _ = range.take(3);
        assert_eq!(range.close(), Span { from: 13, until: 20 });
        assert!(range.take(1).is_empty());
        assert!(range.close().is_empty());
    }
}
