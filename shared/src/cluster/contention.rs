//! Notices about accounts that several processes change at the same time.

use crate::domain::ids::AccountKey;

/// Notifies the processes that post requests at once. They leave the account to the queue for a second, so that the
/// worker can commit what was accepted before. A lost notice costs further attempts.
pub trait ContentionNotices: Send + Sync {
    /// Sends a notice about an account on which two commits of this process were refused. Never waits, never fails.
    fn send(&self, account: AccountKey);
}

/// Sends nothing: for a process without peers.
#[derive(Debug, Clone, Copy)]
pub struct NoNotices;

impl ContentionNotices for NoNotices {
    fn send(&self, _: AccountKey) {}
}
