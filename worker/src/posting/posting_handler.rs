//! The handler of accepted work: group → post → settle.
//!
//! 1. **Group** the work by account, each key once, whatever messages it came in.
//! 2. **Post** the accounts side by side, while the leases on the messages are renewed.
//! 3. **Settle** each message by what became of its items. It is deleted last: a crash at any point
//!    before means redelivery, and the guards of the commit make redelivery a no-op.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::completions::Completions;
use postonce_shared::cluster::replies::PendingReplies;
use postonce_shared::cluster::replies::Replies;
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::{AccountKey, TransactionKey};
use postonce_shared::messaging::claim_check::ClaimCheck;
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::envelope::{self, Envelope, Names};
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::ledger::Ledger;
use postonce_shared::ports::queue::{Held, Message, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::dead_letters::DeadLetterService;
use postonce_shared::protocol::post::{PostFault, Poster, Settled};
use tracing::{error, info, warn};

use crate::config::WorkerConfig;
use crate::listening::delivery::{Delivery, Unopened};
use crate::listening::handler::{Handled, Handler, Health};
use crate::meter::Meter;
use crate::posting::disposition::{Disposition, Treatment, choose, treat};
use crate::posting::lookup::look_up;
use crate::posting::message_reader::MessageReader;
use crate::posting::renewal::Renewal;
use crate::posting::settle::Settlement;

/// Accounts that are posted side by side out of one receive.
const ACCOUNTS_AT_ONCE: usize = 128;

/// Longest time that the opening of a message may take; it is tried again later.
const OPENING_TIME_MAX: Duration = Duration::from_secs(2);

/// What became of each piece of work.
type PostResults = BTreeMap<TransactionKey, Result<(), PostFault>>;

/// Messages that were received together, and what became of the work of those that were posted together.
#[derive(Debug)]
pub struct Posted {
    deliveries: Vec<Delivery<Envelope>>,
    results: PostResults,
}

/// Posts accepted work.
pub struct PostingHandler {
    poster: Arc<Poster>,
    queue: Arc<dyn WorkQueue>,
    ledger: Arc<dyn Ledger>,
    office: Arc<DeadLetterService>,
    opening: MessageReader,
    claims: ClaimCheck,
    seal: Seal,
    world: Arc<dyn World>,
    completions: Arc<Completions>,
    replies: Arc<dyn Replies>,
    meter: Arc<Meter>,
    visibility_timeout: Duration,
    dequeue_count_max: u32,
    /// Whether the ledger did not answer last.
    ledger_away: AtomicBool,
}

impl PostingHandler {
    /// Posting at a bank. A received message is hidden for its `visibility_timeout` at a time; work that
    /// cannot be posted in `dequeue_count_max` receipts is tried alone, and then set aside.
    pub fn new(bank: &Bank, meter: Arc<Meter>, config: &WorkerConfig) -> Self {
        let WorkerConfig { visibility_timeout, dequeue_count_max, ref legacy_partner, request_rate, .. } =
            *config;
        // Leases are renewed only from half of their time on, and what stands in other messages waits.
        let time_max = visibility_timeout.checked_div(2).unwrap_or_default().min(OPENING_TIME_MAX);
        Self {
            claims: ClaimCheck::new(&bank.store, &bank.seal, Arc::clone(&bank.world)),
            seal: bank.seal.clone(),
            opening: MessageReader::new(
                bank,
                Arc::clone(&meter),
                (legacy_partner.clone(), request_rate),
                time_max,
            ),
            poster: Arc::clone(&bank.poster),
            queue: Arc::clone(&bank.store.queue),
            ledger: Arc::clone(&bank.store.ledger),
            office: Arc::clone(&bank.dead_letters),
            world: Arc::clone(&bank.world),
            completions: Arc::clone(&bank.completions),
            replies: Arc::clone(&bank.replies),
            meter,
            visibility_timeout,
            dequeue_count_max,
            ledger_away: AtomicBool::new(false),
        }
    }

    fn round<'a>(&'a self, name: &'a QueueName) -> Round<'a> {
        let settlement = Settlement {
            name: name.clone(),
            queue: Arc::clone(&self.queue),
            ledger: Arc::clone(&self.ledger),
            office: Arc::clone(&self.office),
            claims: self.claims.clone(),
            seal: self.seal.clone(),
            world: Arc::clone(&self.world),
            meter: Arc::clone(&self.meter),
            back_in: Mutex::default(),
        };
        Round { posting: self, name, settlement }
    }
}

#[async_trait]
impl Handler for PostingHandler {
    type Work = Envelope;
    type Done = Posted;

    const NAME: &'static str = envelope::WORK;

    async fn read(&self, message: &Message) -> Result<Envelope, Unopened> {
        self.opening.open(message).await
    }

    async fn handle(&self, queue: &QueueName, deliveries: Vec<Delivery<Envelope>>) -> (Posted, Health) {
        let round = self.round(queue);
        let (unsealed, sealed): (Vec<_>, Vec<_>) =
            deliveries.into_iter().partition(|it| it.names().is_some());
        let mut results = round.post_together(&sealed, &unsealed).await;
        // What is proven does not wait for the rows of what is not.
        let looked_up = round.look_up(unsealed, &sealed).await;
        results.append(&mut round.post_together(&looked_up, &sealed).await);
        let deliveries = [sealed, looked_up].into_iter().flatten().collect::<Vec<_>>();
        let posted = |work: &Work| matches!(results.get(&work.key), Some(Ok(())));
        let is_well = |it: &Delivery<Envelope>| {
            it.content.is_ok() && round.treatment(it) == Treatment::Together && it.items().iter().all(posted)
        };
        let health = if deliveries.iter().all(is_well) { Health::Well } else { Health::Away };
        (Posted { deliveries, results }, health)
    }

    async fn settle(&self, queue: &QueueName, posted: Posted) -> Handled {
        let round = self.round(queue);
        let healthy = round.settle_all(&posted).await;
        let mut back_in = round.settlement.back_in.into_inner();
        if healthy {
            return Handled { health: Health::Well, back_in };
        }
        // What could not be settled comes back when its lease ends.
        back_in.push(self.visibility_timeout);
        Handled { health: Health::Away, back_in }
    }

    async fn is_ready(&self) -> bool {
        if !self.ledger_away.load(Ordering::Relaxed) {
            return true;
        }
        let back = self.ledger.probe().await.is_ok();
        if back && self.ledger_away.swap(false, Ordering::Relaxed) {
            info!("The ledger is back; receiving again");
        }
        back
    }
}

/// The work of one receive.
struct Round<'a> {
    posting: &'a PostingHandler,
    name: &'a QueueName,
    settlement: Settlement,
}

impl Round<'_> {
    /// Reads the rows of messages without a valid seal, while the leases on them and on others are renewed.
    async fn look_up(
        &self,
        unsealed: Vec<Delivery<Envelope>>,
        held: &[Delivery<Envelope>],
    ) -> Vec<Delivery<Envelope>> {
        let Some(first) = unsealed.first() else { return unsealed };
        let (id, count) = (&first.message.lease.message_id, unsealed.len());
        self.posting.meter.unsealed.add(count);
        warn!(queue = %self.name, message_id = id, "Read the rows for {count} messages without a valid seal, such as {id}");
        let held: Vec<&Delivery<Envelope>> = unsealed.iter().chain(held).collect();
        let named: Vec<&Names> = unsealed.iter().filter_map(Delivery::names).collect();
        let found = self.renewal().during(&held, look_up(&*self.posting.ledger, &named)).await;
        unsealed.into_iter().zip(found).map(|(delivery, found)| delivery.with(found)).collect()
    }

    /// What is posted together, and what was received too often for that.
    fn sorted<'d>(
        &self,
        deliveries: &'d [Delivery<Envelope>],
    ) -> (Vec<&'d Delivery<Envelope>>, Vec<&'d Delivery<Envelope>>) {
        deliveries.iter().partition(|delivery| self.treatment(delivery) == Treatment::Together)
    }

    /// Posts the work of what was received, but for what was received too often, while others are held.
    async fn post_together(
        &self,
        deliveries: &[Delivery<Envelope>],
        held: &[Delivery<Envelope>],
    ) -> PostResults {
        let (together, _) = self.sorted(deliveries);
        if together.is_empty() {
            return PostResults::new();
        }
        let everything: Vec<&Delivery<Envelope>> = deliveries.iter().chain(held).collect();
        self.post_leased(&together, &everything).await
    }

    /// Settles what was posted, and works off the rest. False when something was away, so that it is better
    /// to wait.
    async fn settle_all(&self, posted: &Posted) -> bool {
        let (together, special) = self.sorted(&posted.deliveries);
        let settlements: Vec<_> =
            together.iter().map(|delivery| self.settle(delivery, &posted.results, false)).collect();
        let mut healthy = join_all(settlements).await.into_iter().all(|healthy| healthy);
        // One after the other: the one that ends its worker must not take another one's turn along.
        for (place, delivery) in special.iter().enumerate() {
            let still_held = special.get(place..).unwrap_or_default();
            healthy &= self.deliver_special(delivery, still_held).await;
        }
        healthy
    }

    /// Works off a message that was received too often.
    async fn deliver_special(
        &self,
        delivery: &Delivery<Envelope>,
        still_held: &[&Delivery<Envelope>],
    ) -> bool {
        match self.treatment(delivery) {
            Treatment::Together | Treatment::Alone => {
                let visibility = self.posting.visibility_timeout;
                let PostingHandler { queue, seal, .. } = self.posting;
                match delivery.begin_alone(&**queue, self.name, seal, visibility).await {
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
                let max = self.posting.dequeue_count_max;
                let reason = format!(
                    "{max} attempts on it alone were begun and none ended: the worker may die over it"
                );
                let item = Box::new(item.clone());
                self.settlement.apply(delivery, Disposition::DeadLetter { item, reason }).await
            }
        }
    }

    fn treatment(&self, delivery: &Delivery<Envelope>) -> Treatment {
        let suspect = delivery.content.as_ref().map_or(0, |envelope| envelope.suspect);
        treat(delivery.items().len(), delivery.receipts(), suspect, self.posting.dequeue_count_max)
    }

    fn renewal(&self) -> Renewal<'_> {
        let PostingHandler { queue, world, meter, visibility_timeout, .. } = self.posting;
        Renewal { queue: &**queue, name: self.name, world: &**world, meter, visibility: *visibility_timeout }
    }

    /// Posts the work of some messages, while the leases on them and on others are renewed.
    async fn post_leased(
        &self,
        deliveries: &[&Delivery<Envelope>],
        held: &[&Delivery<Envelope>],
    ) -> PostResults {
        self.renewal().during(held, self.post(deliveries)).await
    }

    /// Posts the work of messages, each key once, the accounts side by side.
    async fn post(&self, deliveries: &[&Delivery<Envelope>]) -> PostResults {
        let mut by_account: BTreeMap<AccountKey, BTreeMap<&TransactionKey, (usize, &Work)>> = BTreeMap::new();
        let items = deliveries.iter().flat_map(|delivery| delivery.items());
        for (place, work) in items.enumerate() {
            by_account.entry(work.key.account).or_default().entry(&work.key).or_insert((place, work));
        }
        let mut pending = self.pending_replies(deliveries);
        let mut posts = Vec::with_capacity(by_account.len());
        for (account, work) in by_account {
            // In the order in which they came.
            let mut work: Vec<(usize, &Work)> = work.into_values().collect();
            work.sort_by_key(|(place, _)| *place);
            let work = work.into_iter().map(|(_, work)| work.clone()).collect();
            let pending = pending.remove(&account);
            posts.push(async move {
                let settled = self.post_account(account, work).await;
                // Before the other accounts are through: somebody waits for it.
                pending.into_iter().for_each(PendingReplies::send);
                settled
            });
        }
        let settled: Vec<_> = futures::stream::iter(posts).buffer_unordered(ACCOUNTS_AT_ONCE).collect().await;
        settled.into_iter().flatten().collect()
    }

    /// The replies that are due for the work of messages, by account.
    fn pending_replies(&self, deliveries: &[&Delivery<Envelope>]) -> BTreeMap<AccountKey, PendingReplies> {
        let PostingHandler { completions, replies, .. } = self.posting;
        let mut pending: BTreeMap<AccountKey, PendingReplies> = BTreeMap::new();
        let envelopes = deliveries.iter().filter_map(|delivery| delivery.content.as_ref().ok());
        for (envelope, to) in envelopes.filter_map(|envelope| Some((envelope, envelope.reply_to.as_ref()?))) {
            for work in &envelope.items {
                let of_account = pending.entry(work.key.account);
                of_account.or_insert_with(|| PendingReplies::new(completions, replies)).add(&work.key, to);
            }
        }
        pending
    }

    /// Posts the work of one account. Should that panic, the other accounts go on.
    async fn post_account(&self, account: AccountKey, work: Vec<Work>) -> Vec<Settled> {
        let keys: Vec<TransactionKey> = work.iter().map(|work| work.key.clone()).collect();
        let posted = AssertUnwindSafe(self.posting.poster.post(account, work)).catch_unwind().await;
        let settled = posted.unwrap_or_else(|_| {
            error!(account = %account, "Posting on account {account} panicked");
            keys.into_iter().map(|key| (key, Err(PostFault::Bug))).collect()
        });
        self.count(&settled);
        settled
    }

    /// Settles one message. False when something was away.
    async fn settle(&self, delivery: &Delivery<Envelope>, results: &PostResults, alone: bool) -> bool {
        match &delivery.content {
            Err(unopened) => {
                if let Unopened::LedgerAway(_) = unopened {
                    self.posting.ledger_away.store(true, Ordering::Relaxed);
                }
                self.settlement.settle_unopened(delivery, unopened).await
            }
            Ok(_) => {
                let outcome = |work| results.get(work).cloned().expect("each item was posted");
                let results: Vec<_> =
                    delivery.items().iter().map(|work| (work, outcome(&work.key))).collect();
                let disposition =
                    choose(&results, delivery.receipts(), alone, self.posting.dequeue_count_max);
                self.settlement.apply(delivery, disposition).await
            }
        }
    }

    /// Each piece of work once, in however many messages it came.
    fn count(&self, settled: &[Settled]) {
        for (key, result) in settled {
            let Err(fault) = result else {
                self.posting.meter.settled.add(1);
                continue;
            };
            let why = chain(fault);
            if matches!(fault, PostFault::Ledger(_)) {
                // Asked before the next receive: perhaps it is away, perhaps it is only this work.
                self.posting.ledger_away.store(true, Ordering::Relaxed);
                self.posting.meter.ledger_faults.add(1);
            }
            if fault.is_transient() {
                self.posting.meter.transient_faults.add(1);
                warn!(transaction = %key, "Will try transaction {key} again: {why}");
            } else {
                self.posting.meter.permanent_faults.add(1);
                warn!(transaction = %key, "Cannot post transaction {key}: {why}");
            }
        }
    }
}
