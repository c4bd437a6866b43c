//! Work that this process stored, or may have stored, and whose send was not confirmed: the queue was unavailable, the
//! answer of the log was lost, or the request was cancelled. The client got no confirmation and may never repeat its
//! request. The process sends the work until it is confirmed, so that the transaction is posted without a long delay.
//!
//! If the process ends first, its registry entry remains, and the scrubber searches for such work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use parking_lot::Mutex;

use super::Shared;
use crate::backoff::{Backoff, UNSENT_WORK};
use crate::domain::decision::Work;
use crate::domain::ids::TransactionKey;
use crate::messaging::envelope;
use crate::ports::fault::chain;
use crate::ports::ledger::{AcceptGrouping, Ledger};
use crate::ports::queue::QueueName;
use crate::ports::world::World;
use crate::posting::group_commit::GroupCommit;

pub(super) type Sends = GroupCommit<QueueName, Work, Shared<()>>;

/// Largest number of tracked transactions; the scrubber finds further ones.
const UNSENT_MAX: usize = 100_000;
const READS_AT_ONCE: usize = 16;
/// Time during which a missing transaction is searched for, because its insert may still happen.
const SEARCH_TIME: Duration = Duration::from_secs(5 * 60);

#[derive(Clone)]
pub(super) struct UnsentWork {
    ledger: Arc<dyn Ledger>,
    sends: Arc<Sends>,
    world: Arc<dyn World>,
    queue_count: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The transactions, each with the time when its request ended.
    since: BTreeMap<TransactionKey, Duration>,
    /// Whether a task is sending them.
    has_task: bool,
}

/// A request between storing and sending. Dropping it without [`Self::end`] makes its work unsent.
pub(super) struct Unconfirmed<'a> {
    work: &'a UnsentWork,
    key: Option<TransactionKey>,
}

impl Unconfirmed<'_> {
    /// Records that nothing is left to send.
    pub(super) fn end(mut self) {
        self.key = None;
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.work.add(key);
        }
    }
}

/// Whether a transaction must be sent again.
enum Progress {
    Done,
    Again,
}

impl UnsentWork {
    pub(super) fn new(
        ledger: Arc<dyn Ledger>,
        sends: Arc<Sends>,
        world: Arc<dyn World>,
        queue_count: u16,
    ) -> Self {
        Self { ledger, sends, world, queue_count, state: Arc::default() }
    }

    /// Begins a request that will store a transaction. Returns `None` if the ledger enqueues in the same step.
    pub(super) fn begin(&self, key: &TransactionKey) -> Option<Unconfirmed<'_>> {
        let is_separate = self.ledger.accept_grouping() == AcceptGrouping::OneAccount;
        is_separate.then(|| Unconfirmed { work: self, key: Some(key.clone()) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().since.is_empty()
    }

    fn add(&self, key: TransactionKey) {
        let mut state = self.state.lock();
        if state.since.len() < UNSENT_MAX {
            state.since.entry(key).or_insert_with(|| self.world.uptime());
        }
        if !std::mem::replace(&mut state.has_task, true) {
            let work = self.clone();
            self.world.spawn(async move { work.send_all().await }.boxed());
        }
    }

    /// Sends the work until none is left.
    async fn send_all(&self) {
        let mut backoff: Backoff = UNSENT_WORK.start();
        loop {
            self.world.sleep(backoff.next(&*self.world)).await;
            let keys: Vec<(TransactionKey, Duration)> = {
                let mut state = self.state.lock();
                if state.since.is_empty() {
                    state.has_task = false;
                    return;
                }
                state.since.iter().map(|(key, since)| (key.clone(), *since)).collect()
            };
            for keys in keys.chunks(READS_AT_ONCE) {
                let progress = join_all(keys.iter().map(|(key, since)| self.send(key, *since))).await;
                let mut state = self.state.lock();
                for ((key, _), progress) in keys.iter().zip(progress) {
                    if matches!(progress, Progress::Done) {
                        state.since.remove(key);
                    }
                }
            }
        }
    }

    async fn send(&self, key: &TransactionKey, since: Duration) -> Progress {
        let stored = match self.ledger.transaction(key).await {
            Ok(Some(stored)) => stored,
            Ok(None) if self.world.uptime().saturating_sub(since) < SEARCH_TIME => return Progress::Again,
            Ok(None) => return Progress::Done,
            Err(fault) if fault.is_transient() => return Progress::Again,
            Err(fault) => {
                tracing::error!(transaction = %key, "Unsent work cannot be read: {}", chain(&fault));
                return Progress::Done;
            }
        };
        let Some(work) = stored.work().filter(|_| !stored.marks.dead_letter) else { return Progress::Done };
        let queue = envelope::queue_of(key.account, self.queue_count);
        match self.sends.submit(queue, work).await {
            Ok(Ok(())) => {
                tracing::info!(transaction = %key, "Sent the work of a request that was not confirmed: {key}");
                Progress::Done
            }
            Ok(Err(_)) | Err(_) => Progress::Again,
        }
    }
}
