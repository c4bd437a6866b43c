//! Immediate posting: the process that receives a waiting request decides, inserts and posts it in one atomic step.
//!
//! The commit inserts the transaction with its outcome, so the insert of the key is the idempotency check, as in
//! [`crate::protocol::accept`]. A request is posted at once only under these conditions:
//!
//! - The gate is released, and a permit is held until the end of the commit with its retries. The process is
//!   registered, so that it is notified of a change of the gate.
//! - No accepted transaction of the account comes before it. The ledger checks this in the commit
//!   ([`checks_order`](crate::ports::ledger::Ledger::checks_order)); otherwise this process tracks its own [`OpenWork`].
//! - The outcome does not depend on accepted transactions. If the ledger does not check the order, a transaction that
//!   the account cannot pay takes the queue.
//! - No other process changes the account at the same time.
//! - The rights on which the request was admitted are still current ([`Standing`]).
//!
//! Otherwise, and after a fault, the caller puts the request on the queue. It may do so even if the commit may still
//! happen, because then one of the two inserts finds the key taken.

mod committer;
mod contended_accounts;
mod open_work;
mod route;

use std::sync::Arc;

use futures::FutureExt as _;

use self::committer::Committer;
use self::contended_accounts::ContendedAccounts;
pub use self::open_work::OpenWork;
pub use self::route::{QueueReason, Route, ServedCounts};
use crate::access::partner_cache::Standing;
use crate::cluster::registration::Registration;
use crate::domain::decision::Submission;
use crate::domain::ids::AccountKey;
use crate::domain::journal::PAGE_ENTRIES_MAX;
use crate::domain::transaction::Outcome;
use crate::posting::group_commit::{Flush, GroupCommit};
use crate::posting::writer::Writer;

/// The outcome, or the reason why the request has to take the queue.
pub type Attempted = Result<Outcome, QueueReason>;

/// Posts requests at once, those of one account together. A process has one.
pub struct ImmediatePoster {
    is_on: bool,
    committer: Arc<Committer>,
    groups: GroupCommit<AccountKey, Request, Attempted>,
}

/// A request to post at once.
#[derive(Clone)]
struct Request {
    new: Submission,
    /// The rights on which it was admitted. They can change while it waits for the account.
    standing: Standing,
}

impl ImmediatePoster {
    /// Creates a poster. Every request takes the queue if `is_on` is false or the process is not registered. If the
    /// ledger cannot check the order, requests on accounts with known open work take it too.
    pub fn new(
        is_on: bool,
        writer: Arc<Writer>,
        registration: Arc<Registration>,
        open_work: Arc<OpenWork>,
    ) -> Self {
        let world = Arc::clone(&writer.world);
        // When a thread of the HTTP server ends, its commit is dropped and the permit released. The commit must not
        // happen after this process has confirmed that it holds the gate.
        let may_be_dropped = writer.ledger.writes_in_order();
        let committer =
            Arc::new(Committer { writer, registration, open_work, avoided: ContendedAccounts::default() });
        let shared = Arc::clone(&committer);
        let flush: Flush<AccountKey, Request, Attempted> = Arc::new(move |account, group| {
            let committer = Arc::clone(&shared);
            async move { committer.post(account, group).await }.boxed()
        });
        let groups = GroupCommit::new(world, PAGE_ENTRIES_MAX, flush);
        let groups = if may_be_dropped { groups.on_thread_of_caller() } else { groups };
        Self { is_on, committer, groups }
    }

    /// Posts or rejects a transaction at once, together with other requests on its account. If the caller is cancelled,
    /// the commit continues. Nothing is committed if `standing` is no longer current.
    ///
    /// # Errors
    /// The reason why the request has to take the queue. If it [is in doubt](QueueReason::is_in_doubt), the transaction
    /// may be final or may become final later.
    pub async fn post(&self, new: Submission, standing: Standing) -> Attempted {
        if !self.is_on {
            return Err(QueueReason::Off);
        }
        let account = new.key.account;
        self.committer.check(account)?;
        self.groups.submit(account, Request { new, standing }).await.unwrap_or(Err(QueueReason::Fault))
    }

    /// Leaves an account to the queue for a second, after the worker of another process could not commit on it.
    pub fn leave_to_worker(&self, account: AccountKey) {
        self.committer.avoided.leave_to_worker(account, &*self.committer.writer.world);
    }
}
