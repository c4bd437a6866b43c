//! Bytes of incomplete request heads, counted in a total for the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::in_progress::Totals;

/// The incomplete head of one connection.
#[derive(Debug, Default)]
pub(super) struct IncompleteHead {
    totals: Arc<Totals>,
    /// The total changes under this lock, so that it is never less than the sum of the kept bytes.
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    /// Whether the connection is closed. Bytes that are read from it afterwards do not count.
    has_ended: bool,
}

impl IncompleteHead {
    /// Creates the count of a connection, as a part of these totals.
    pub(super) fn of(totals: &Arc<Totals>) -> Self {
        Self { totals: Arc::clone(totals), kept: Mutex::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// Sets the number of kept bytes. Returns whether it has grown.
    pub(super) fn note(&self, bytes: usize) -> bool {
        let mut kept = self.kept.lock();
        if kept.has_ended {
            return false;
        }
        let before = std::mem::replace(&mut kept.bytes, bytes);
        let total = &self.totals.head_bytes;
        if bytes > before {
            total.fetch_add(bytes.saturating_sub(before), Ordering::Relaxed);
        } else {
            total.fetch_sub(before.saturating_sub(bytes), Ordering::Relaxed);
        }
        bytes > before
    }

    /// Sets the number of kept bytes to zero for good: the connection is closed, or its transport is dropped.
    pub(super) fn end(&self) {
        self.note(0);
        self.kept.lock().has_ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_counts_after_the_end() {
        let totals = Arc::<Totals>::default();
        let (head, other) = (IncompleteHead::of(&totals), IncompleteHead::of(&totals));
        let total = || totals.head_bytes.load(Ordering::Relaxed);
        assert!(head.note(100) && other.note(5) && !head.note(70));
        assert_eq!((total(), head.bytes()), (75, 70));
        head.end();
        assert_eq!(total(), 5);
        // The kernel had received these bytes before the close.
        assert!(!head.note(50));
        assert_eq!((total(), head.bytes()), (5, 0));
    }
}
