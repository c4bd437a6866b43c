//! The worker: several receivers, each of which receives a batch of 32, posts its messages concurrently, and
//! receives the next batch while the last one is still in progress.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use azure_storage_queues::PopReceipt;
use futures::future::join_all;
use postonce_process::drain::Drain;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::peers::classic::account_locks::AccountLocks;
use crate::peers::classic::counts::Counts;
use crate::peers::classic::entry::{Entry, Money};
use crate::peers::classic::storage::{BATCH_MAX, Received, Status, Storage, Written};

/// Default of most messages processed at once.
pub const PARALLEL: usize = 32;
/// Default number of tasks that receive messages.
pub const RECEIVERS: usize = 2;
/// A receiver pauses while it has this many messages in progress.
const IN_PROGRESS_MAX: u8 = BATCH_MAX;
/// Pause after less than a full batch; doubles while the queue is empty.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(160);
/// Most reads of a balance after conflicts before the message is left for a later receive.
const CONFLICTS_MAX: u32 = 50;

/// The concurrency of a worker.
#[derive(Debug, Clone, Copy)]
pub struct Concurrency {
    /// Most messages processed at once.
    pub parallel: usize,
    /// Number of tasks that receive messages.
    pub receivers: usize,
}

/// The worker of one process. Clones are cheap.
#[derive(Clone)]
pub struct Worker {
    storage: Storage,
    counts: Arc<Counts>,
    receivers: usize,
    account_locks: Arc<AccountLocks>,
    slots: Arc<Semaphore>,
}

impl Worker {
    /// A worker that is not running yet.
    pub fn new(storage: Storage, counts: Arc<Counts>, concurrency: Concurrency) -> Self {
        let Concurrency { parallel, receivers } = concurrency;
        let slots = Arc::new(Semaphore::new(parallel));
        Self { storage, counts, receivers, account_locks: Arc::new(AccountLocks::new()), slots }
    }

    /// Runs until the drain starts, and finishes the messages in progress.
    pub async fn run(self, drain: Drain) {
        join_all((0..self.receivers).map(|_| self.receive(&drain))).await;
    }

    async fn receive(&self, drain: &Drain) {
        let mut in_progress = JoinSet::new();
        let mut pause = PAUSE_FIRST;
        while !drain.is_started() {
            let messages = self.storage.receive().await.unwrap_or_else(|error| {
                eprintln!("no messages: {error}");
                Vec::new()
            });
            // The queue is empty: after a pause, the next messages are received together.
            let is_partial = messages.len() < usize::from(BATCH_MAX);
            pause = if messages.is_empty() { pause.saturating_mul(2).min(PAUSE_MAX) } else { PAUSE_FIRST };
            for message in messages {
                in_progress.spawn(self.clone().process(message));
            }
            if is_partial {
                drop(tokio::time::timeout(pause, drain.started()).await);
            }
            while in_progress.len() > usize::from(IN_PROGRESS_MAX) && in_progress.join_next().await.is_some()
            {
            }
        }
        in_progress.join_all().await;
    }

    /// Processes one message. A failed message is visible again after its timeout.
    async fn process(self, Received { entry, receipt }: Received) {
        let processed = match entry {
            Ok(entry) => self.post(&entry, receipt).await,
            Err(malformed) => {
                eprintln!("an unreadable message is dropped: {malformed:?}");
                self.storage.delete(receipt).await.map_err(anyhow::Error::from)
            }
        };
        if let Err(error) = processed {
            eprintln!("a message is left for later: {error:#}");
        }
    }

    /// Read balance, write balance with If-Match, insert transaction, insert log, delete message.
    async fn post(&self, entry: &Entry, receipt: PopReceipt) -> anyhow::Result<()> {
        // The lock is taken first, so that a waiting message holds no slot.
        let guard = self.account_locks.lock(entry.account).await;
        let _slot = self.slots.acquire().await?;
        let moved = self.move_balance(entry).await?;
        drop(guard);
        let status = match moved {
            Some((balance_after, currency)) => {
                // A conflict means that the row exists already.
                let (Written::Done | Written::Conflict) =
                    self.storage.insert_transaction(entry, &currency, balance_after).await?;
                Status::Posted
            }
            None => Status::Rejected,
        };
        let logged = self.storage.insert_log(entry, status).await?;
        if (logged, status) == (Written::Done, Status::Posted) {
            self.counts.note_posted();
        }
        self.storage.delete(receipt).await?;
        Ok(())
    }

    /// The balance after the entry, and its currency; `None` if the account has insufficient funds.
    async fn move_balance(&self, entry: &Entry) -> anyhow::Result<Option<(Money, String)>> {
        for _ in 0..CONFLICTS_MAX {
            let Some(read) = self.storage.balance(entry.user, entry.account).await? else {
                return Ok(None);
            };
            let after = read.balance.checked_add(entry.amount).filter(|after| *after >= Money::ZERO);
            let Some(after) = after else { return Ok(None) };
            match self.storage.write_balance(entry, &read, after).await? {
                Written::Done => return Ok(Some((after, read.currency))),
                Written::Conflict => self.counts.note_conflict(),
            }
        }
        bail!("the balance of {} changed at every attempt", entry.account)
    }
}
