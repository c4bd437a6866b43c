//! Immediate posting: a request that waits for its outcome is decided, inserted and posted in one atomic step, by the
//! process that received it.
//!
//! The commit inserts the transaction with its outcome, so the key's insert is the idempotency check as it is in
//! [`crate::protocol::accept`]. A request takes this way only if it is certain that
//!
//! - the gate is released, a permit is held until the end of the commit with its retries, and a change of the gate would
//!   be sent to this process, because it is registered,
//! - no accepted transaction of the account comes before it: the ledger checks that in the commit
//!   ([`checks_order`](crate::ports::ledger::Ledger::checks_order)), or else this process remembers its [`OpenWork`],
//! - the outcome does not depend on accepted transactions: without such a ledger, a transaction that the account cannot
//!   pay takes the queue,
//! - no other process changes the account at the same time,
//! - the rights on which the request was admitted are those that the process knows ([`Standing`]).
//!
//! In any other case, and when something fails, the caller puts the request on the queue instead. It may do so even if
//! the commit may still happen: then one of the two inserts finds the key taken.

mod avoided;
mod committer;
mod open_work;
mod served;

use std::sync::Arc;

use futures::FutureExt as _;

use self::avoided::AvoidedAccounts;
use self::committer::Committer;
pub use self::open_work::OpenWork;
pub use self::served::{QueueReason, Route, ServedCounts};
use crate::access::partner_cache::Standing;
use crate::cluster::registration::Registration;
use crate::domain::decision::Submission;
use crate::domain::ids::AccountKey;
use crate::domain::journal::PAGE_ENTRIES_MAX;
use crate::domain::transaction::Outcome;
use crate::posting::group_commit::{Flush, GroupCommit};
use crate::posting::writer::Writer;

/// The outcome, or why the request has to take the queue.
pub type Attempted = Result<Outcome, QueueReason>;

/// Posts requests at once, those of one account together. One per process.
pub struct ImmediatePoster {
    is_on: bool,
    committer: Arc<Committer>,
    groups: GroupCommit<AccountKey, Request, Attempted>,
}

/// A request that is to be posted at once.
#[derive(Clone)]
struct Request {
    new: Submission,
    /// Of the rights on which it was admitted: it can wait for the account.
    standing: Standing,
}

impl ImmediatePoster {
    /// Creates a poster. If it is not on, every request takes the queue; and while the process is not registered, and as long
    /// as it knows of open work on an account where the ledger cannot check that.
    pub fn new(
        is_on: bool,
        writer: Arc<Writer>,
        registration: Arc<Registration>,
        open_work: Arc<OpenWork>,
    ) -> Self {
        let world = Arc::clone(&writer.world);
        // A thread of the HTTP server may end with a commit in progress, which returns its permit. The commit must not
        // happen after this process has confirmed to hold the gate.
        let may_be_dropped = writer.ledger.writes_in_order();
        let committer =
            Arc::new(Committer { writer, registration, open_work, avoided: AvoidedAccounts::default() });
        let shared = Arc::clone(&committer);
        let flush: Flush<AccountKey, Request, Attempted> = Arc::new(move |account, group| {
            let committer = Arc::clone(&shared);
            async move { committer.post(account, group).await }.boxed()
        });
        let groups = GroupCommit::new(world, PAGE_ENTRIES_MAX, flush);
        let groups = if may_be_dropped { groups.on_thread_of_caller() } else { groups };
        Self { is_on, committer, groups }
    }

    /// Posts or rejects a transaction at once, together with other requests on its account. If the caller is
    /// cancelled, the commit continues. Nothing is committed if the standing of the caller is not current any more.
    ///
    /// # Errors
    /// The reason why the request has to take the queue. If it [is in doubt](QueueReason::is_in_doubt), the
    /// transaction may be final, or become final later.
    pub async fn post(&self, new: Submission, standing: Standing) -> Attempted {
        if !self.is_on {
            return Err(QueueReason::Off);
        }
        let account = new.key.account;
        self.committer.check(account)?;
        self.groups.submit(account, Request { new, standing }).await.unwrap_or(Err(QueueReason::Fault))
    }

    /// Leaves an account to the queue for a second, because the worker of another process could not commit on it.
    pub fn leave_to_worker(&self, account: AccountKey) {
        self.committer.avoided.leave_to_worker(account, &*self.committer.writer.world);
    }
}
