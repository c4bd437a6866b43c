//! The worker: several receivers, each of which gets a batch of 32, posts its messages side by side,
//! and gets the next batch while the last one is still being worked on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use azure_storage_queues::PopReceipt;
use futures::future::join_all;
use postonce_worker::drain::Drain;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::counts::Counts;
use crate::entry::{Entry, Money};
use crate::storage::{BATCH_MAX, Received, Status, Storage, Written};
use crate::turns::Turns;

/// Most messages worked on at once, unless told otherwise.
pub const PARALLEL: usize = 32;
/// How many tasks get messages, unless told otherwise.
pub const RECEIVERS: usize = 2;
/// A receiver gets no more messages while it has this many in hand.
const IN_HAND_MAX: u8 = BATCH_MAX;
/// Wait after less than a whole batch; doubles while there is nothing at all.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest wait of all.
const PAUSE_MAX: Duration = Duration::from_millis(160);
/// How often a balance that somebody else wrote is read again before the message is left for later.
const CONFLICTS_MAX: u32 = 50;

/// How much at once.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Most messages worked on at once.
    pub parallel: usize,
    /// How many tasks get messages.
    pub receivers: usize,
}

/// The worker of one process. Cheap to clone.
#[derive(Clone)]
pub struct Worker {
    storage: Storage,
    counts: Arc<Counts>,
    receivers: usize,
    turns: Arc<Turns>,
    slots: Arc<Semaphore>,
}

impl Worker {
    /// A worker that has not begun.
    pub fn new(storage: Storage, counts: Arc<Counts>, pace: Pace) -> Self {
        let Pace { parallel, receivers } = pace;
        let slots = Arc::new(Semaphore::new(parallel));
        Self { storage, counts, receivers, turns: Arc::new(Turns::new()), slots }
    }

    /// Works until the drain starts, and then finishes what it has.
    pub async fn run(self, drain: Drain) {
        join_all((0..self.receivers).map(|_| self.receive(&drain))).await;
    }

    async fn receive(&self, drain: &Drain) {
        let mut in_hand = JoinSet::new();
        let mut pause = PAUSE_FIRST;
        while !drain.is_started() {
            let messages = self.storage.receive().await.unwrap_or_else(|error| {
                eprintln!("no messages: {error}");
                Vec::new()
            });
            // The queue is empty: what comes next is got together after a pause, not one by one.
            let is_partial = messages.len() < usize::from(BATCH_MAX);
            pause = if messages.is_empty() { pause.saturating_mul(2).min(PAUSE_MAX) } else { PAUSE_FIRST };
            for message in messages {
                in_hand.spawn(self.clone().work_on(message));
            }
            if is_partial {
                drop(tokio::time::timeout(pause, drain.started()).await);
            }
            while in_hand.len() > usize::from(IN_HAND_MAX) && in_hand.join_next().await.is_some() {}
        }
        in_hand.join_all().await;
    }

    /// One message. What fails comes back by itself when its visibility ends.
    async fn work_on(self, Received { entry, receipt }: Received) {
        let worked = match entry {
            Ok(entry) => self.post(&entry, receipt).await,
            Err(malformed) => {
                eprintln!("a message that nobody can read is dropped: {malformed:?}");
                self.storage.delete(receipt).await.map_err(anyhow::Error::from)
            }
        };
        if let Err(error) = worked {
            eprintln!("a message is left for later: {error:#}");
        }
    }

    /// Read balance, write balance with If-Match, insert transaction, insert log, delete message.
    async fn post(&self, entry: &Entry, receipt: PopReceipt) -> anyhow::Result<()> {
        // The turn first: whoever waits for one holds no slot.
        let turn = self.turns.of(entry.account).await;
        let _slot = self.slots.acquire().await?;
        let moved = self.move_balance(entry).await?;
        drop(turn);
        let status = match moved {
            Some((balance_after, currency)) => {
                // A conflict says that the row is there already.
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

    /// The balance after the entry, and its currency; `None` when the account cannot bear it.
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
        bail!("the balance of {} was never as it was read", entry.account)
    }
}
