//! What this process did with its numbers since it last told the register.

use std::sync::atomic::{AtomicI64, Ordering};

use super::register::Report;

/// Counts that are reported with the next write. They may fall below zero: numbers that were reported as
/// handed out can still be given back, and those of the range in use are counted by the range until it is
/// used up.
#[derive(Debug, Default)]
pub struct Books {
    issued: AtomicI64,
    lost: AtomicI64,
}

impl Books {
    /// Notes numbers that were handed out.
    pub fn hand_out(&self, count: u64) {
        self.issued.fetch_add(signed(count), Ordering::Relaxed);
    }

    /// Notes handed out numbers that came back unused.
    pub fn take_back(&self, count: u64) {
        self.issued.fetch_sub(signed(count), Ordering::Relaxed);
    }

    /// Notes numbers that nobody will get.
    pub fn give_up(&self, count: u64) {
        self.lost.fetch_add(signed(count), Ordering::Relaxed);
    }

    /// What is to be reported, when so many were taken from the range in use.
    pub fn report_with(&self, taken: u64) -> Report {
        let issued = self.issued.load(Ordering::Relaxed).saturating_add(signed(taken));
        Report { issued, lost: self.lost.load(Ordering::Relaxed) }
    }

    /// Notes that a report has arrived.
    pub fn settle(&self, report: Report) {
        self.issued.fetch_sub(report.issued, Ordering::Relaxed);
        self.lost.fetch_sub(report.lost, Ordering::Relaxed);
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
