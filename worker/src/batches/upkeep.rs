//! Upkeep of open batches. If a batch makes no progress, because a message or a ring was lost, the initiator is asked to
//! continue it. The initiator sends all remaining chunks again. On a slow store, that would only lengthen the queues, so it is
//! not asked for some hours while messages of batches wait. A batch with a recorded fault is left for an hour to the retries,
//! or to an operator who replays its dead letter. A stopped batch is always left to an operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_process::background_task::BackgroundTask;
use postonce_shared::bank::Bank;
use postonce_shared::batches::{BatchFault, Batches};
use postonce_shared::cluster::gate::permits::GatePermits;
use postonce_shared::domain::account::{Revision, Versioned};
use postonce_shared::domain::batch::{Batch, BatchKey, Hindrance};
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use tokio::sync::OnceCell;
use tracing::{info, warn};

const LISTING_LEN: usize = 100;
/// Age at which an entry of the list is removed if its batch does not exist.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// Time without progress after which the initiator is asked even though messages of batches wait, which may all belong to other
/// batches. Runs can be an hour apart.
const WAITING_INTERVAL: Duration = Duration::from_secs(3 * 3600);

/// Time after which a hindered batch is tried again, even if its message is a dead letter.
const HINDERED_INTERVAL: Duration = Duration::from_secs(3600);

/// Background task that continues open batches without progress.
pub struct BatchUpkeep {
    batches: Batches,
    world: Arc<dyn World>,
    permits: Arc<GatePermits>,
    /// The open batches at the last run.
    seen: Mutex<BTreeMap<BatchKey, Seen>>,
}

#[derive(Clone)]
struct Seen {
    revision: Revision,
    /// Uptime at which this revision was first seen, or at which the initiator was last asked about it.
    since: Duration,
}

impl BatchUpkeep {
    /// Creates the task for a bank.
    pub fn new(bank: &Bank) -> Self {
        let (world, permits) = (Arc::clone(&bank.world), Arc::clone(&bank.gate_permits));
        Self { batches: bank.batches.clone(), world, permits, seen: Mutex::default() }
    }

    async fn look_after_all(&self) -> Result<(), BatchFault> {
        let (mut after, mut open_keys) = (None, BTreeSet::new());
        let messages_wait = OnceCell::new();
        loop {
            let open = self.batches.records.list_open(after.as_ref(), LISTING_LEN).await?;
            if after.is_none() && !open.is_empty() {
                self.batches.ring();
            }
            for (key, opened_at) in &open {
                let found = match self.batches.records.find(key).await {
                    Ok(found) => found,
                    Err(fault) if fault.is_transient() => return Err(fault.into()),
                    // One unusable record must not stop the upkeep of other batches.
                    Err(fault) => {
                        warn!(batch = %key, "The record of batch {key} cannot be used: {}", chain(&fault));
                        continue;
                    }
                };
                match found {
                    Some(found) if !found.value.phase.is_final() => {
                        open_keys.insert(key.clone());
                        self.look_after(found, &messages_wait).await?;
                    }
                    Some(_) => self.batches.records.close(key).await?,
                    None if self.world.now().since(*opened_at) > ORPHAN_AGE => {
                        self.batches.records.close(key).await?;
                    }
                    None => {}
                }
            }
            after = open.last().map(|(key, _)| key.clone());
            if open.len() < LISTING_LEN {
                break;
            }
        }
        self.seen.lock().retain(|key, _| open_keys.contains(key));
        Ok(())
    }

    /// Asks the initiator to continue an open batch if that is necessary.
    async fn look_after(
        &self,
        Versioned { value: batch, revision }: Versioned<Batch>,
        messages_wait: &OnceCell<bool>,
    ) -> Result<(), BatchFault> {
        let (key, now) = (&batch.key, self.world.uptime());
        let before = self.seen.lock().get(key).filter(|seen| seen.revision == revision).cloned();
        if let Some(seen) = before {
            let is_patient = now.saturating_sub(seen.since) < WAITING_INTERVAL;
            if batch.stop().is_some()
                || !self.may_ask(batch.hindrance.as_ref())
                || (is_patient && *messages_wait.get_or_init(|| self.messages_may_wait()).await)
            {
                return Ok(());
            }
            info!(batch = %key, "Batch {key} made no progress: an initiator is asked again");
            self.batches.ask_initiator(key).await?;
        }
        self.seen.lock().insert(key.clone(), Seen { revision, since: now });
        Ok(())
    }

    /// Returns whether messages of batches wait; also true if that cannot be read.
    async fn messages_may_wait(&self) -> bool {
        self.batches.has_messages().await.unwrap_or_else(|fault| {
            warn!("Could not read whether messages of batches wait: {}", chain(&fault));
            true
        })
    }

    /// Returns whether the initiator may be asked: always without a hindrance, otherwise some time after it was recorded.
    fn may_ask(&self, hindrance: Option<&Hindrance>) -> bool {
        hindrance.is_none_or(|hindrance| self.world.now().since(hindrance.at) >= HINDERED_INTERVAL)
    }
}

#[async_trait]
impl BackgroundTask for BatchUpkeep {
    /// While the gate is held, batches make no progress, so that time does not count.
    fn is_due(&self) -> bool {
        let is_open = self.permits.is_open();
        if !is_open {
            self.seen.lock().clear();
        }
        is_open
    }

    async fn run(&self) {
        if let Err(fault) = self.look_after_all().await {
            warn!("Could not look after open batches: {}", chain(&fault));
        }
    }
}
