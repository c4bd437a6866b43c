//! Counters of issued and lost numbers that this process has not reported to the register.

use std::sync::atomic::{AtomicI64, Ordering};

use super::register::Report;

/// Counters to report with the next write. They may be negative, since reported numbers can still be given back. The
/// current range counts its numbers itself until it is used up.
#[derive(Debug, Default)]
pub struct UsageCounters {
    issued: AtomicI64,
    lost: AtomicI64,
}

impl UsageCounters {
    pub fn add_issued(&self, count: u64) {
        self.issued.fetch_add(signed(count), Ordering::Relaxed);
    }

    /// Subtracts issued numbers that were given back unused.
    pub fn remove_issued(&self, count: u64) {
        self.issued.fetch_sub(signed(count), Ordering::Relaxed);
    }

    /// Adds numbers that will never be issued.
    pub fn add_lost(&self, count: u64) {
        self.lost.fetch_add(signed(count), Ordering::Relaxed);
    }

    /// Returns the report, given the number of counters taken from the current range.
    pub fn report_with(&self, taken: u64) -> Report {
        let issued = self.issued.load(Ordering::Relaxed).saturating_add(signed(taken));
        Report { issued, lost: self.lost.load(Ordering::Relaxed) }
    }

    /// Subtracts a report that the register has received.
    pub fn subtract(&self, report: Report) {
        self.issued.fetch_sub(report.issued, Ordering::Relaxed);
        self.lost.fetch_sub(report.lost, Ordering::Relaxed);
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
