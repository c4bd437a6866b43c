//! The loop of one queue: receive → group → post → settle, until drained.
//!
//! 1. **Receive** up to 32 messages. Not while the ledger is away: receiving then would only burn
//!    receipts. A probe tells when it is back.
//! 2. **Group** the work by account, each key once, whatever messages it came in.
//! 3. **Post** the accounts side by side, while the leases on the messages are renewed.
//! 4. **Settle** each message by what became of its items. It is deleted last: a crash at any point
//!    before means redelivery, and the guards of the commit make redelivery a no-op.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{Either, join, join_all, select};
use futures::{FutureExt as _, StreamExt as _};
use postonce_shared::config::Config;
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::{AccountKey, TransactionKey};
use postonce_shared::envelope::Unreadable;
use postonce_shared::ports::doorbell::Doorbell;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::ledger::Ledger;
use postonce_shared::ports::queue::{Held, QueueName, RECEIVE_MAX, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_shared::post::{PostFault, Poster, Settled};
use tokio::sync::Notify;
use tracing::{debug, error, info, warn};

use crate::backoff::Backoff;
use crate::delivery::{Delivery, Disposition, Treatment, choose, treat};
use crate::drain::Drain;
use crate::meter::{ListenerGauge, Meter};
use crate::settle::Settlement;

/// Accounts that are posted side by side by one listener.
const ACCOUNTS_AT_ONCE: usize = 32;
/// First wait when the queue is empty.
const IDLE_DELAY_MIN: Duration = Duration::from_millis(100);
/// First wait after a fault.
const FAULT_DELAY_MIN: Duration = Duration::from_millis(100);
/// Longest wait after a fault.
const FAULT_DELAY_MAX: Duration = Duration::from_secs(5);

/// What became of each piece of work.
type PostResults = BTreeMap<TransactionKey, Result<(), PostFault>>;

/// What a listener goes by.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// How long a received message is hidden from others; renewed at half of it.
    pub visibility_timeout: Duration,
    /// Receipts after which a message is taken apart, and a single item set aside.
    pub dequeue_count_max: u32,
    /// Longest wait between two looks at an empty queue.
    pub idle_delay_max: Duration,
}

impl From<&Config> for ListenerConfig {
    fn from(config: &Config) -> Self {
        Self {
            visibility_timeout: config.visibility_timeout,
            dequeue_count_max: config.dequeue_count_max,
            idle_delay_max: config.idle_poll_max,
        }
    }
}

/// Whether the ledger answered last; shared by the listeners of a process.
#[derive(Debug, Default)]
pub struct LedgerWatch {
    away: AtomicBool,
}

/// Listens to one queue.
pub struct Listener {
    /// The queue.
    pub name: QueueName,
    /// What it goes by.
    pub config: ListenerConfig,
    /// Where messages come from.
    pub queue: Arc<dyn WorkQueue>,
    /// Asked whether it is back after an outage.
    pub ledger: Arc<dyn Ledger>,
    /// Posts the work.
    pub poster: Arc<Poster>,
    /// Settles the messages.
    pub settlement: Settlement,
    /// Wakes the listener.
    pub doorbell: Arc<dyn Doorbell>,
    /// Time and chance.
    pub world: Arc<dyn World>,
    /// What is counted.
    pub meter: Arc<Meter>,
    /// Whether the ledger answered last.
    pub ledger_watch: Arc<LedgerWatch>,
}

impl Listener {
    /// Listens until the drain starts; then finishes what is in hand.
    pub async fn run(self, drain: Drain) {
        let gauge = self.meter.listeners(&self.name);
        let mut idle = Backoff::new(IDLE_DELAY_MIN, self.config.idle_delay_max);
        let mut faults = Backoff::new(FAULT_DELAY_MIN, FAULT_DELAY_MAX);
        while !drain.is_started() {
            if self.ledger_watch.away.load(Ordering::Relaxed) && !self.is_ledger_back().await {
                self.pause(faults.next(&*self.world), &drain).await;
                continue;
            }
            match self.queue.receive(&self.name, RECEIVE_MAX, self.config.visibility_timeout).await {
                Ok(messages) if messages.is_empty() => {
                    let patience = idle.next(&*self.world);
                    unless_drained(&drain, self.doorbell.listen(&self.name, patience)).await;
                }
                Ok(messages) => {
                    idle.reset();
                    self.meter.received.add(messages.len());
                    let deliveries = messages.into_iter().map(Delivery::new).collect();
                    if self.deliver(deliveries, &gauge).await {
                        faults.reset();
                    } else {
                        self.pause(faults.next(&*self.world), &drain).await;
                    }
                }
                Err(fault) => {
                    let why = chain(&fault);
                    warn!(queue = %self.name, "Could not receive from {}: {why}", self.name);
                    self.pause(faults.next(&*self.world), &drain).await;
                }
            }
        }
        debug!(queue = %self.name, "Stopped listening to {}", self.name);
    }

    async fn pause(&self, delay: Duration, drain: &Drain) {
        unless_drained(drain, self.world.sleep(delay)).await;
    }

    async fn is_ledger_back(&self) -> bool {
        let back = self.ledger.probe().await.is_ok();
        if back && self.ledger_watch.away.swap(false, Ordering::Relaxed) {
            info!("The ledger is back; receiving again");
        }
        back
    }

    /// Works off what was received. False when something was away, so that it is better to wait.
    async fn deliver(&self, deliveries: Vec<Delivery>, gauge: &Arc<ListenerGauge>) -> bool {
        let _busy = gauge.busy();
        let (together, special): (Vec<_>, Vec<_>) =
            deliveries.iter().partition(|delivery| self.treatment(delivery) == Treatment::Together);
        let everything: Vec<&Delivery> = deliveries.iter().collect();
        let results = self.post_leased(&together, &everything).await;
        let settlements: Vec<_> =
            together.iter().map(|delivery| self.settle(delivery, &results, false)).collect();
        let mut healthy = join_all(settlements).await.into_iter().all(|healthy| healthy);
        // One after the other: the one that ends its worker must not take another one's turn along.
        for (place, delivery) in special.iter().enumerate() {
            let still_held = special.get(place..).unwrap_or_default();
            healthy &= self.deliver_special(delivery, still_held).await;
        }
        healthy
    }

    /// Works off a message that was received too often.
    async fn deliver_special(&self, delivery: &Delivery, still_held: &[&Delivery]) -> bool {
        match self.treatment(delivery) {
            Treatment::Together | Treatment::Alone => {
                let visibility = self.config.visibility_timeout;
                match delivery.begin_alone(&*self.queue, &self.name, visibility).await {
                    Ok(Held::Ours(())) => {}
                    Ok(Held::Lost) => return true,
                    Err(fault) => {
                        warn!(queue = %self.name, "Could not begin an attempt: {}", chain(&fault));
                        return false;
                    }
                }
                let results = self.post_leased(&[delivery], still_held).await;
                self.settle(delivery, &results, true).await
            }
            Treatment::Apart => {
                self.settlement.apply(delivery, Disposition::Split { rest: delivery.items().to_vec() }).await
            }
            Treatment::GiveUp => {
                let Some(item) = delivery.items().first() else { return true };
                let max = self.config.dequeue_count_max;
                let reason = format!(
                    "{max} attempts on it alone were begun and none ended: the worker may die over it"
                );
                let item = Box::new(item.clone());
                self.settlement.apply(delivery, Disposition::DeadLetter { item, reason }).await
            }
        }
    }

    fn treatment(&self, delivery: &Delivery) -> Treatment {
        let suspect = delivery.content.as_ref().map_or(0, |envelope| envelope.suspect);
        treat(delivery.items().len(), delivery.receipts(), suspect, self.config.dequeue_count_max)
    }

    /// Posts the work of some messages, while the leases on them and on others are renewed.
    async fn post_leased(&self, deliveries: &[&Delivery], held: &[&Delivery]) -> PostResults {
        let (done, posted) = (Notify::new(), AtomicBool::new(false));
        let work = async {
            let results = self.post(deliveries).await;
            posted.store(true, Ordering::Relaxed);
            done.notify_one();
            results
        };
        // Joined, not cancelled: a renewal under way ends first, so that its new receipt is known.
        join(work, self.keep_leases(held, &done, &posted)).await.0
    }

    /// Posts the work of messages, each key once, the accounts side by side.
    async fn post(&self, deliveries: &[&Delivery]) -> PostResults {
        let mut by_account: BTreeMap<AccountKey, BTreeMap<&TransactionKey, (usize, &Work)>> = BTreeMap::new();
        let items = deliveries.iter().flat_map(|delivery| delivery.items());
        for (place, work) in items.enumerate() {
            by_account.entry(work.key.account).or_default().entry(&work.key).or_insert((place, work));
        }
        let mut posts = Vec::with_capacity(by_account.len());
        for (account, work) in by_account {
            // In the order in which they came.
            let mut work: Vec<(usize, &Work)> = work.into_values().collect();
            work.sort_by_key(|(place, _)| *place);
            posts.push(self.post_account(account, work.into_iter().map(|(_, work)| work.clone()).collect()));
        }
        let settled: Vec<_> = futures::stream::iter(posts).buffer_unordered(ACCOUNTS_AT_ONCE).collect().await;
        settled.into_iter().flatten().collect()
    }

    /// Posts the work of one account. Should that fall over a bug, the other accounts go on.
    async fn post_account(&self, account: AccountKey, work: Vec<Work>) -> Vec<Settled> {
        let keys: Vec<TransactionKey> = work.iter().map(|work| work.key.clone()).collect();
        match AssertUnwindSafe(self.poster.post(account, work)).catch_unwind().await {
            Ok(settled) => settled,
            Err(_) => {
                error!(account = %account, "Posting on account {account} fell over a bug");
                keys.into_iter().map(|key| (key, Err(PostFault::Bug))).collect()
            }
        }
    }

    /// Renews the leases at half of their time, until the work is done.
    async fn keep_leases(&self, held: &[&Delivery], done: &Notify, posted: &AtomicBool) {
        let half = self.config.visibility_timeout.checked_div(2).unwrap_or_default();
        loop {
            let wait = self.world.sleep(half);
            match select(std::pin::pin!(done.notified()), wait).await {
                Either::Left(_) => return,
                Either::Right(_) if posted.load(Ordering::Relaxed) => return,
                Either::Right(_) => {}
            }
            let renewals: Vec<_> = held.iter().map(|delivery| self.renew(delivery)).collect();
            join_all(renewals).await;
        }
    }

    async fn renew(&self, delivery: &Delivery) {
        match delivery.renew(&*self.queue, &self.name, self.config.visibility_timeout).await {
            Ok(Held::Ours(())) => {}
            Ok(Held::Lost) => self.meter.leases_lost.add(1),
            Err(fault) => warn!(queue = %self.name, "Could not renew a lease: {}", chain(&fault)),
        }
    }

    /// Settles one message. False when something was away.
    async fn settle(&self, delivery: &Delivery, results: &PostResults, alone: bool) -> bool {
        match &delivery.content {
            Err(unreadable @ Unreadable::Newer(_)) => {
                self.settlement.leave_to_newer(delivery, unreadable).await
            }
            Err(unreadable @ (Unreadable::Malformed(_) | Unreadable::Empty)) => {
                self.settlement.set_aside(delivery, &chain(unreadable)).await
            }
            Err(unreadable @ Unreadable::Items { readable, bad, .. }) => {
                self.settlement.set_items_aside(delivery, readable, bad, &chain(unreadable)).await
            }
            Ok(_) => {
                let outcome = |work| results.get(work).cloned().expect("each item was posted");
                let results: Vec<_> =
                    delivery.items().iter().map(|work| (work, outcome(&work.key))).collect();
                self.count(&results);
                let disposition = choose(&results, delivery.receipts(), alone, self.config.dequeue_count_max);
                self.settlement.apply(delivery, disposition).await
            }
        }
    }

    fn count(&self, results: crate::delivery::Results<'_>) {
        for (work, result) in results {
            let Err(fault) = result else {
                self.meter.settled.add(1);
                continue;
            };
            let why = chain(fault);
            if matches!(fault, PostFault::Ledger(_)) {
                // Asked before the next receive: perhaps it is away, perhaps it is only this work.
                self.ledger_watch.away.store(true, Ordering::Relaxed);
            }
            if fault.is_transient() {
                self.meter.transient_faults.add(1);
                warn!(transaction = %work.key, "Will try transaction {} again: {why}", work.key);
            } else {
                self.meter.permanent_faults.add(1);
                warn!(transaction = %work.key, "Cannot post transaction {}: {why}", work.key);
            }
        }
    }
}

async fn unless_drained(drain: &Drain, wait: impl Future<Output = ()>) {
    select(std::pin::pin!(drain.started()), std::pin::pin!(wait)).await;
}
