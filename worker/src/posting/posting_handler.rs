//! The handler of accepted work: group, post, settle.
//!
//! 1. **Group** the work of all messages by account, each key once.
//! 2. **Post** the accounts concurrently, while the leases of the messages are renewed.
//! 3. **Settle** each message by the results of its items. A message is deleted last: a crash before that causes a redelivery,
//!    which the guards of the commit turn into a no-op.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::future::join_all;
use postonce_process::meter::Meter;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::completions::Completions;
use postonce_shared::cluster::replies::{PendingReplies, Replies};
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::{AccountKey, TransactionKey};
use postonce_shared::domain::origin::{Delivered, Origin};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::claim_check::ClaimCheck;
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::envelope::{self, Envelope, Names};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::ledger::Ledger;
use postonce_shared::ports::queue::{Message, QueueName};
use postonce_shared::posting::PostFault;
use postonce_shared::posting::commit_permits::Singles;
use postonce_shared::posting::queued::{Poster, Settled};
use postonce_shared::tracer::Tracer;
use tracing::{info, warn};

use crate::config::WorkerConfig;
use crate::listening::delivery::{Delivery, DeliveryError};
use crate::listening::handler::{Handled, Handler, Health};
use crate::listening::lone_attempts::LoneAttempts;
use crate::listening::renewal::Renewal;
use crate::listening::settler::{Alone, Settler, SettlerParts};
use crate::posting::disposition::{Disposition, Treatment, choose, treat};
use crate::posting::lookup::look_up;
use crate::posting::message_reader::MessageReader;
use crate::posting::settle::Settlement;
use crate::posting::spans::Processing;

/// Number of accounts of one receive that are posted concurrently.
const ACCOUNTS_AT_ONCE: usize = 128;

/// Maximum time for reading a message. After a timeout, the message is read again later.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of each transaction.
type PostResults = BTreeMap<TransactionKey, Result<(), PostFault>>;

/// Messages that were received together, and the results of the work that was posted.
#[derive(Debug)]
pub struct Posted {
    deliveries: Vec<Delivery<Envelope>>,
    results: PostResults,
}

/// Posts accepted work.
pub struct PostingHandler {
    poster: Arc<Poster>,
    settling: SettlerParts,
    ledger: Arc<dyn Ledger>,
    reader: MessageReader,
    claims: ClaimCheck,
    seal: Seal,
    completions: Arc<Completions>,
    singles: Arc<Singles>,
    replies: Arc<dyn Replies>,
    tracer: Arc<Tracer>,
    lone_attempts: LoneAttempts,
    visibility_timeout: Duration,
    dequeue_count_max: u32,
    /// Whether the last use of the ledger failed.
    ledger_unavailable: AtomicBool,
}

impl PostingHandler {
    /// Creates the handler of a bank. A received message is hidden for `visibility_timeout` at a time. Work that is not posted
    /// within `dequeue_count_max` receipts is tried alone, and finally becomes a dead letter.
    pub fn new(bank: &Bank, meter: Arc<Meter>, config: &WorkerConfig) -> Self {
        let WorkerConfig { visibility_timeout, dequeue_count_max, .. } = *config;
        // Leases are first renewed after half of their duration, and a slow read delays the other messages.
        let timeout = visibility_timeout.checked_div(2).unwrap_or_default().min(READ_TIMEOUT);
        Self {
            claims: ClaimCheck::new(&bank.store, &bank.seal, Arc::clone(&bank.world)),
            seal: bank.seal.clone(),
            reader: MessageReader::new(bank, timeout),
            poster: Arc::clone(&bank.poster),
            settling: SettlerParts::of(bank, &meter),
            ledger: Arc::clone(&bank.store.ledger),
            completions: Arc::clone(&bank.completions),
            singles: Arc::clone(&bank.singles),
            replies: Arc::clone(&bank.replies),
            tracer: Arc::clone(&bank.tracer),
            lone_attempts: LoneAttempts::new(bank, config),
            visibility_timeout,
            dequeue_count_max,
            ledger_unavailable: AtomicBool::new(false),
        }
    }

    fn batch<'a>(&'a self, name: &'a QueueName) -> Batch<'a> {
        let settlement = Settlement {
            settler: Settler::new(name, &self.settling),
            ledger: &self.ledger,
            claims: &self.claims,
            seal: &self.seal,
        };
        Batch { posting: self, name, settlement, received_at: self.settling.world.now() }
    }
}

#[async_trait]
impl Handler for PostingHandler {
    type Work = Envelope;
    type Done = Posted;

    const NAME: &'static str = envelope::WORK;

    async fn read(&self, message: &Message) -> Result<Envelope, DeliveryError> {
        self.reader.read(message).await
    }

    async fn handle(&self, queue: &QueueName, deliveries: Vec<Delivery<Envelope>>) -> (Posted, Health) {
        let _in_progress = self.singles.begin();
        let batch = self.batch(queue);
        let (unsealed, sealed): (Vec<_>, Vec<_>) =
            deliveries.into_iter().partition(|it| it.names().is_some());
        let mut results = batch.post_together(&sealed, &unsealed).await;
        // Sealed work does not wait for the rows of unsealed messages.
        let looked_up = batch.look_up(unsealed, &sealed).await;
        results.append(&mut batch.post_together(&looked_up, &sealed).await);
        let deliveries = [sealed, looked_up].into_iter().flatten().collect::<Vec<_>>();
        let is_done = |work: &Work| matches!(results.get(&work.submission.key), Some(Ok(())));
        let is_posted = |it: &Delivery<Envelope>| {
            it.content.is_ok() && batch.treatment(it) == Treatment::Together && it.items().iter().all(is_done)
        };
        let health = if deliveries.iter().all(is_posted) { Health::Healthy } else { Health::Unavailable };
        (Posted { deliveries, results }, health)
    }

    async fn settle(&self, queue: &QueueName, posted: Posted) -> Handled {
        let batch = self.batch(queue);
        let healthy = batch.settle_all(&posted).await;
        batch.settlement.settler.end(healthy, self.visibility_timeout)
    }

    async fn is_ready(&self) -> bool {
        if !self.ledger_unavailable.load(Ordering::Relaxed) {
            return true;
        }
        let back = self.ledger.probe().await.is_ok();
        if back && self.ledger_unavailable.swap(false, Ordering::Relaxed) {
            info!("The ledger is available again; receiving continues");
        }
        back
    }
}

/// The messages of one receive.
struct Batch<'a> {
    posting: &'a PostingHandler,
    name: &'a QueueName,
    settlement: Settlement<'a>,
    /// Time at which the messages were received, or received work was tried again.
    received_at: Timestamp,
}

impl Batch<'_> {
    /// Reads the rows of messages without a valid seal, and renews the leases of all messages meanwhile.
    async fn look_up(
        &self,
        unsealed: Vec<Delivery<Envelope>>,
        leased: &[Delivery<Envelope>],
    ) -> Vec<Delivery<Envelope>> {
        let Some(first) = unsealed.first() else { return unsealed };
        let (id, count) = (&first.message.lease.message_id, unsealed.len());
        self.posting.settling.meter.unsealed.add(count);
        warn!(
            queue = %self.name, message_id = id,
            "Reading the rows for {count} messages without a valid seal, such as {id}"
        );
        let leased: Vec<&Delivery<Envelope>> = unsealed.iter().chain(leased).collect();
        let named: Vec<&Names> = unsealed.iter().filter_map(Delivery::names).collect();
        let found = self.renewal().during(&leased, look_up(&*self.posting.ledger, &named)).await;
        unsealed.into_iter().zip(found).map(|(delivery, found)| delivery.with(found)).collect()
    }

    /// Returns the messages to post together, and the messages that were received too often.
    fn split_by_treatment<'d>(
        &self,
        deliveries: &'d [Delivery<Envelope>],
    ) -> (Vec<&'d Delivery<Envelope>>, Vec<&'d Delivery<Envelope>>) {
        deliveries.iter().partition(|delivery| self.treatment(delivery) == Treatment::Together)
    }

    /// Posts the work of `deliveries` without messages that were received too often. Renews their leases and those of `leased`.
    async fn post_together(
        &self,
        deliveries: &[Delivery<Envelope>],
        leased: &[Delivery<Envelope>],
    ) -> PostResults {
        let (together, _) = self.split_by_treatment(deliveries);
        if together.is_empty() {
            return PostResults::new();
        }
        let everything: Vec<&Delivery<Envelope>> = deliveries.iter().chain(leased).collect();
        self.post_leased(&together, &everything).await
    }

    /// Settles posted messages, and posts those that were received too often. Returns false if the next receive should wait.
    async fn settle_all(&self, posted: &Posted) -> bool {
        let (together, repeated) = self.split_by_treatment(&posted.deliveries);
        let settlements: Vec<_> =
            together.iter().map(|delivery| self.settle(delivery, &posted.results, false)).collect();
        let mut healthy = join_all(settlements).await.into_iter().all(|healthy| healthy);
        // One at a time, so that a message that kills the worker does not interrupt attempts of other messages.
        for (index, delivery) in repeated.iter().enumerate() {
            let still_leased = repeated.get(index..).unwrap_or_default();
            healthy &= self.post_repeated(delivery, still_leased).await;
        }
        healthy
    }

    /// Handles a message that was received too often.
    async fn post_repeated(
        &self,
        delivery: &Delivery<Envelope>,
        still_leased: &[&Delivery<Envelope>],
    ) -> bool {
        match self.treatment(delivery) {
            Treatment::Together | Treatment::Alone => match self.post_alone(delivery, still_leased).await {
                Ok(healthy) => healthy,
                Err(fault) => {
                    warn!(queue = %self.name, "Could not begin an attempt alone: {}", chain(&fault));
                    false
                }
            },
            Treatment::Split => {
                self.settlement.apply(delivery, Disposition::Split { rest: delivery.items().to_vec() }).await
            }
        }
    }

    /// Posts a single item alone, unless too many processes have ended during earlier attempts. Returns false if the next
    /// receive should wait because of a fault.
    async fn post_alone(
        &self,
        delivery: &Delivery<Envelope>,
        still_leased: &[&Delivery<Envelope>],
    ) -> Result<bool, StoreFault> {
        let Ok(envelope) = &delivery.content else { return Ok(true) };
        let PostingHandler { seal, lone_attempts, visibility_timeout, .. } = self.posting;
        let recorded = |attempts| Envelope { attempts, ..envelope.clone() }.encode(seal);
        let attempts = (lone_attempts, &envelope.attempts);
        let settler = &self.settlement.settler;
        match settler.try_alone(delivery, attempts, ready(()), recorded, *visibility_timeout).await? {
            Alone::Begun(attempt) => {
                let results = self.post_leased(&[delivery], still_leased).await;
                let healthy = self.settle(delivery, &results, true).await;
                if delivery.is_settled() {
                    attempt.forget();
                }
                Ok(healthy)
            }
            Alone::Left => Ok(true),
            Alone::GivenUp(ended) => {
                let Some(item) = envelope.items.first() else { return Ok(true) };
                let reason =
                    format!("{ended} processes ended while they posted it alone: it may crash the worker");
                let disposition = Disposition::DeadLetter { item: Box::new(item.clone()), reason };
                Ok(self.settlement.apply(delivery, disposition).await)
            }
        }
    }

    fn treatment(&self, delivery: &Delivery<Envelope>) -> Treatment {
        treat(delivery.items().len(), delivery.receipts(), self.posting.dequeue_count_max)
    }

    fn renewal(&self) -> Renewal<'_> {
        let PostingHandler { settling, visibility_timeout, .. } = self.posting;
        let SettlerParts { queue, world, meter, .. } = settling;
        Renewal { queue: &**queue, name: self.name, world: &**world, meter, visibility: *visibility_timeout }
    }

    /// Posts the work of messages while the leases of `leased` are renewed.
    async fn post_leased(
        &self,
        deliveries: &[&Delivery<Envelope>],
        leased: &[&Delivery<Envelope>],
    ) -> PostResults {
        self.renewal().during(leased, self.post(deliveries)).await
    }

    /// Posts the work of messages: each key once, and the accounts concurrently.
    async fn post(&self, deliveries: &[&Delivery<Envelope>]) -> PostResults {
        let mut by_account: BTreeMap<AccountKey, BTreeMap<&TransactionKey, (usize, &Message, Work)>> =
            BTreeMap::new();
        let items = deliveries.iter().flat_map(|it| it.items().iter().map(|work| (&it.message, work)));
        for (index, (message, work)) in items.enumerate() {
            let delivered = Some(Delivered { sent_at: message.inserted_at, received_at: self.received_at });
            let of_account = by_account.entry(work.submission.key.account).or_default();
            of_account
                .entry(&work.submission.key)
                .or_insert_with(|| (index, message, Work { delivered, ..work.clone() }));
        }
        let mut pending = self.pending_replies(deliveries);
        let mut posts = Vec::with_capacity(by_account.len());
        for (account, work) in by_account {
            // Keep the order of the messages.
            let mut work: Vec<(usize, &Message, Work)> = work.into_values().collect();
            work.sort_by_key(|(index, ..)| *index);
            let mut processing = Processing::new(&self.posting.tracer, self.name);
            let begin = |(_, message, mut work): (usize, &Message, Work)| {
                processing.begin(message, &mut work);
                work
            };
            let work = work.into_iter().map(begin).collect();
            let pending = pending.remove(&account);
            posts.push(async move {
                let settled = self.post_account(account, work).await;
                processing.end(&settled);
                // Sent before the other accounts are posted, because clients wait for the replies.
                pending.into_iter().for_each(PendingReplies::send);
                settled
            });
        }
        let settled: Vec<_> = futures::stream::iter(posts).buffer_unordered(ACCOUNTS_AT_ONCE).collect().await;
        settled.into_iter().flatten().collect()
    }

    /// Returns the replies to send for the work of messages, by account.
    fn pending_replies(&self, deliveries: &[&Delivery<Envelope>]) -> BTreeMap<AccountKey, PendingReplies> {
        let PostingHandler { completions, replies, .. } = self.posting;
        let mut pending: BTreeMap<AccountKey, PendingReplies> = BTreeMap::new();
        let envelopes = deliveries.iter().filter_map(|delivery| delivery.content.as_ref().ok());
        for (envelope, to) in envelopes.filter_map(|envelope| Some((envelope, envelope.reply_to.as_ref()?))) {
            for work in &envelope.items {
                let of_account = pending.entry(work.submission.key.account);
                of_account
                    .or_insert_with(|| PendingReplies::new(completions, replies))
                    .add(&work.submission.key, to);
            }
        }
        pending
    }

    async fn post_account(&self, account: AccountKey, work: Vec<Work>) -> Vec<Settled> {
        let origins: Vec<(TransactionKey, Origin)> =
            work.iter().map(|work| (work.submission.key.clone(), work.submission.origin.clone())).collect();
        let settled = self.posting.poster.post(account, work).await;
        self.count(&settled, &origins);
        settled
    }

    /// Settles one message. Returns false if the next receive should wait because of a fault.
    async fn settle(&self, delivery: &Delivery<Envelope>, results: &PostResults, alone: bool) -> bool {
        match &delivery.content {
            Err(no_work) => {
                if let DeliveryError::LedgerUnavailable(_) = no_work {
                    self.posting.ledger_unavailable.store(true, Ordering::Relaxed);
                    self.posting.settling.meter.ledger_unavailable.notify_one();
                }
                self.settlement.settle_without_work(delivery, no_work).await
            }
            Ok(_) => {
                let outcome = |work| results.get(work).cloned().expect("each item was posted");
                let results: Vec<_> =
                    delivery.items().iter().map(|work| (work, outcome(&work.submission.key))).collect();
                let disposition =
                    choose(&results, delivery.receipts(), alone, self.posting.dequeue_count_max);
                self.settlement.apply(delivery, disposition).await
            }
        }
    }

    /// Counts each transaction once, even if several messages contain it.
    fn count(&self, settled: &[Settled], origins: &[(TransactionKey, Origin)]) {
        self.posting.settling.meter.settled.add(settled.iter().filter(|(_, result)| result.is_ok()).count());
        // Waiting for the release of the gate is not a fault.
        let faults = settled.iter().filter_map(|(key, result)| Some((key, result.as_ref().err()?)));
        for (key, fault) in faults.filter(|(_, fault)| !matches!(fault, PostFault::GateHeld)) {
            let why = chain(fault);
            if let PostFault::Ledger(fault) = fault {
                // Probe the ledger before the next receive: the fault may be an outage, or concern this work only.
                self.posting.ledger_unavailable.store(true, Ordering::Relaxed);
                self.posting.settling.meter.ledger_faults.add(1);
                if fault.is_transient() {
                    self.posting.settling.meter.ledger_unavailable.notify_one();
                }
            }
            let origin = origins.iter().find(|(of, _)| of == key).map(|(_, origin)| origin);
            let (request_id, trace_id) =
                (origin.and_then(Origin::request_id), origin.and_then(Origin::trace_id));
            if fault.is_transient() {
                self.posting.settling.meter.transient_faults.add(1);
                warn!(request_id, trace_id, transaction = %key, "Transaction {key} will be retried: {why}");
            } else {
                self.posting.settling.meter.permanent_faults.add(1);
                warn!(request_id, trace_id, transaction = %key, "Cannot post transaction {key}: {why}");
            }
        }
    }
}
