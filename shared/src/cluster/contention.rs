//! Notices about accounts that several processes change concurrently.

use crate::domain::ids::AccountKey;

/// Notifies processes that post requests immediately. They leave the account to the queue for a second, so that the
/// worker can commit the work accepted so far. A lost notice only costs further attempts.
pub trait ContentionNotices: Send + Sync {
    /// Sends a notice about an account on which two commits of this process failed. Never waits and never fails.
    fn send(&self, account: AccountKey);
}

/// Sends nothing. For a process without peers.
#[derive(Debug, Clone, Copy)]
pub struct NoNotices;

impl ContentionNotices for NoNotices {
    fn send(&self, _: AccountKey) {}
}
