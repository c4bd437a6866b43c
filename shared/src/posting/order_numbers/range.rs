//! A confirmed range from which this process issues numbers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::register::Span;

/// Issues each counter of a span once, with one atomic add.
#[derive(Debug)]
pub struct Range {
    span: Span,
    next: AtomicU64,
    /// The counter at which the next range is fetched.
    prefetch_at: u64,
    /// Whether a caller has already started this fetch.
    prefetched: AtomicBool,
}

impl Range {
    /// Creates an unused range from a confirmed span. The next one is fetched when the counter `prefetch_at` is taken.
    pub const fn new(span: Span, prefetch_at: u64) -> Self {
        Self { span, next: AtomicU64::new(span.from), prefetch_at, prefetched: AtomicBool::new(false) }
    }

    /// Returns the whole span, including the counters already taken.
    pub const fn span(&self) -> Span {
        self.span
    }

    /// Takes up to `count` counters; fewer, or none, at the end of the range.
    pub fn take(&self, count: u64) -> Span {
        // Adding past the end is harmless: `next` only grows, and 2^64 adds do not happen.
        let from = self.next.fetch_add(count, Ordering::Relaxed).min(self.span.until);
        Span { from, until: from.saturating_add(count).min(self.span.until) }
    }

    pub fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.span.until).saturating_sub(self.span.from)
    }

    pub fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.span.until
    }

    /// Closes the range, so that no more counters can be taken. Returns the unused ones.
    pub fn close(&self) -> Span {
        let from = self.next.swap(self.span.until, Ordering::Relaxed).min(self.span.until);
        Span { from, until: self.span.until }
    }

    /// Returns true once: to the first caller that took the counter `prefetch_at` or a later one.
    pub fn should_prefetch(&self, taken: Span) -> bool {
        // The flag is read before it is written: a write would take the cache line from all other processors.
        taken.until > self.prefetch_at
            && !self.prefetched.load(Ordering::Relaxed)
            && !self.prefetched.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_and_requests_the_next_one_once() {
        let range = Range::new(Span { from: 10, until: 20 }, 15);
        let (first, second) = (Span { from: 10, until: 14 }, Span { from: 14, until: 18 });
        assert_eq!((range.take(4), range.taken()), (first, 4));
        assert!(!range.should_prefetch(first));
        assert_eq!(range.take(4), second);
        assert!(range.should_prefetch(second));
        assert!(!range.should_prefetch(second));
        assert_eq!(range.take(4), Span { from: 18, until: 20 });
        assert!(range.take(4).is_empty());
        assert_eq!(range.taken(), 10, "requests beyond the end do not count");
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
