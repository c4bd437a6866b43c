//! The head of a request that has not arrived completely, as a part of all that a server keeps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::under_way::Totals;

/// The incomplete head of one connection.
#[derive(Debug, Default)]
pub(super) struct IncompleteHead {
    totals: Arc<Totals>,
    /// The total changes under this lock, so that it is never less than what is kept.
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    /// Whether the connection is closed: what is still read from it does not count.
    has_ended: bool,
}

impl IncompleteHead {
    /// A part of these totals.
    pub(super) fn of(totals: &Arc<Totals>) -> Self {
        Self { totals: Arc::clone(totals), kept: Mutex::default() }
    }

    /// How many bytes are kept.
    pub(super) fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// Notes how many bytes are kept. Returns whether there are more than before.
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

    /// Notes that nothing is kept any more: the connection is closed, or its transport is gone.
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
        // The kernel had received it before.
        assert!(!head.note(50));
        assert_eq!((total(), head.bytes()), (5, 0));
    }
}
