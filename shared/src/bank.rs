//! The use cases of the bank, wired over one store for one process.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};

use crate::access::partner_grants::PartnerGrants;
use crate::batches::Batches;
use crate::cluster::completions::Completions;
use crate::cluster::contention::{ContentionNotices, NoNotices};
use crate::cluster::gate::permits::GatePermits;
use crate::cluster::registration::Registration;
use crate::cluster::replies::{NoReplies, Replies};
use crate::messaging::envelope::seal::Seal;
use crate::messaging::queue_count::{RecordedQueue, UsedQueues};
use crate::oversight::audit::AuditTrail;
use crate::ports::Store;
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::chain;
use crate::ports::world::World;
use crate::posting::account_cache::AccountCache;
use crate::posting::account_locks::AccountLocks;
use crate::posting::batch::ItemPoster;
use crate::posting::commit_permits::Singles;
use crate::posting::order_numbers::{OrderNumbers, RangeLengths};
use crate::posting::posted_numbers::PostedNumbers;
use crate::posting::posting_latency::PostingLatency;
use crate::posting::queued::Poster;
use crate::posting::waiting::{ImmediatePoster, OpenWork};
use crate::posting::writer::Writer;
use crate::protocol::accept::Acceptor;
use crate::protocol::dead_letters::DeadLetterService;
use crate::protocol::recover::Repair;
use crate::tracer::Tracer;

/// How long a process that ends waits for returning and recording order numbers.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(2);

/// The use cases of a process. Pass on the parts that are used, not the whole struct.
#[derive(Clone)]
pub struct Bank {
    /// The store.
    pub store: Store,
    /// Clock, random generator and task runtime.
    pub world: Arc<dyn World>,
    /// Wakes listeners.
    pub doorbell: Arc<dyn Doorbell>,
    /// The requests that wait in this process.
    pub completions: Arc<Completions>,
    /// Sends outcomes to other processes.
    pub replies: Arc<dyn Replies>,
    /// Authenticates the queue messages of the bank.
    pub seal: Seal,
    /// The number of queues over which work is distributed.
    pub queue_count: u16,
    /// First half of the protocol.
    pub acceptor: Arc<Acceptor>,
    /// Second half of the protocol.
    pub poster: Arc<Poster>,
    /// Both halves in one step, for requests that wait for the outcome.
    pub immediate: Arc<ImmediatePoster>,
    /// Latency of requests that this process posted.
    pub latency: Arc<PostingLatency>,
    /// Work that this process enqueued and that is not final yet.
    pub open_work: Arc<OpenWork>,
    /// Single requests in progress, which have priority over batches.
    pub singles: Arc<Singles>,
    /// Batches of requests.
    pub batches: Batches,
    /// Order numbers reserved by this process.
    pub order_numbers: Arc<OrderNumbers>,
    /// Postings of this process whose order numbers are not yet recorded.
    pub posted: Arc<PostedNumbers>,
    /// Resolves work that could not be posted.
    pub dead_letters: Arc<DeadLetterService>,
    /// Enqueues lost work again.
    pub repair: Repair,
    /// Permits to receive and post work.
    pub gate_permits: Arc<GatePermits>,
    /// Whether other processes can find this process.
    pub registration: Arc<Registration>,
    /// Permissions of the partners on whose behalf direct orders are accepted.
    pub partner_grants: Arc<PartnerGrants>,
    /// The audit trail of administrative acts.
    pub audit: Arc<AuditTrail>,
    /// Records the spans of sampled traces.
    pub tracer: Arc<Tracer>,
}

/// The connections of a process to other processes.
#[derive(Clone)]
pub struct Links {
    /// Wakes listeners.
    pub doorbell: Arc<dyn Doorbell>,
    /// The requests that wait in this process. The queue of the store must use the same value.
    pub completions: Arc<Completions>,
    /// Sends outcomes to other processes.
    pub replies: Arc<dyn Replies>,
    /// The seal of the bank's messages. The queue of the store must use the same value.
    pub seal: Seal,
    /// Notifies other processes about contended accounts.
    pub contention: Arc<dyn ContentionNotices>,
}

/// The settings of a bank.
#[derive(Debug, Clone, Copy)]
pub struct BankSettings {
    /// The number of queues over which work is distributed.
    pub queue_count: u16,
    /// Whether requests that wait are posted immediately where possible.
    pub immediate_posting: bool,
    /// How long a received message stays invisible to other receivers.
    pub visibility_timeout: Duration,
    /// Allowed lengths of ranges of order numbers.
    pub order_number_ranges: RangeLengths,
}

impl BankSettings {
    /// Returns the default settings with this number of queues.
    pub const fn of_queues(queue_count: u16) -> Self {
        Self {
            queue_count,
            immediate_posting: true,
            visibility_timeout: Duration::from_secs(20),
            order_number_ranges: RangeLengths::DEFAULT,
        }
    }
}

impl Bank {
    /// Creates the bank of a process without peers. Neither reads nor writes the store.
    pub fn new(
        store: Store,
        world: Arc<dyn World>,
        doorbell: Arc<dyn Doorbell>,
        seal: Seal,
        queue_count: u16,
    ) -> Self {
        let (replies, contention) = (Arc::new(NoReplies), Arc::new(NoNotices));
        let links = Links { doorbell, completions: Arc::default(), replies, seal, contention };
        Self::linked(store, world, links, BankSettings::of_queues(queue_count))
    }

    /// Creates the bank of a process with peers. Neither reads nor writes the store.
    pub fn linked(store: Store, world: Arc<dyn World>, links: Links, settings: BankSettings) -> Self {
        let Links { doorbell, completions, replies, seal, contention } = links;
        let BankSettings { queue_count, immediate_posting, visibility_timeout, .. } = settings;
        let (bell, time) = (|| Arc::clone(&doorbell), || Arc::clone(&world));
        let used_queues = Arc::new(UsedQueues::new(&store, time(), queue_count));
        let queue = Arc::new(RecordedQueue::new(Arc::clone(&store.queue), Arc::clone(&used_queues)));
        let store = Store { queue, ..store };
        let order_numbers =
            OrderNumbers::with_ranges(&store.sync, &store.archive, time(), settings.order_number_ranges);
        let (latency, cache) = (Arc::<PostingLatency>::default(), Arc::<AccountCache>::default());
        let tracer = Arc::new(Tracer::new(time()));
        let posted = Arc::new(PostedNumbers::new(Arc::clone(&store.order_numbers), time()));
        let registration = Arc::<Registration>::default();
        let gate_permits = Arc::new(GatePermits::new(Arc::clone(&registration), time()));
        let open_work = Arc::new(OpenWork::new(time(), visibility_timeout.saturating_mul(2)));
        let writer = Arc::new(Writer {
            ledger: Arc::clone(&store.ledger),
            numbers: Arc::clone(&order_numbers),
            world: time(),
            completions: Arc::clone(&completions),
            cache: Arc::clone(&cache),
            locks: AccountLocks::default(),
            permits: Arc::clone(&gate_permits),
            latency: Arc::clone(&latency),
            posted: Arc::clone(&posted),
            tracer: Arc::clone(&tracer),
        });
        let poster = Arc::new(Poster::new(Arc::clone(&writer), Arc::clone(&contention)));
        let singles = Arc::new(Singles::on(&*store.ledger));
        let items = ItemPoster::new(Arc::clone(&writer), contention, Arc::clone(&singles));
        let batches = Batches::new(&store, seal.clone(), bell(), time(), (queue_count, items));
        let (registered, open) = (Arc::clone(&registration), Arc::clone(&open_work));
        let immediate = Arc::new(ImmediatePoster::new(immediate_posting, writer, registered, open));
        let acceptor = Arc::new(Acceptor::new(
            &store,
            &seal,
            time(),
            bell(),
            Arc::clone(&completions),
            cache,
            (Arc::clone(&immediate), Arc::clone(&open_work), Arc::clone(&singles)),
            (queue_count, used_queues),
            &tracer,
        ));
        let letters = DeadLetterService::new(&store, &seal, Arc::clone(&poster), bell(), time(), queue_count);
        let repair = Repair::new(&store, &seal, time(), bell(), queue_count);
        Self {
            partner_grants: Arc::new(PartnerGrants::new(&store, time())),
            audit: Arc::new(AuditTrail::new(&store, time())),
            store,
            world,
            doorbell,
            completions,
            replies,
            seal,
            queue_count,
            acceptor,
            poster,
            immediate,
            latency,
            open_work,
            singles,
            batches,
            order_numbers,
            posted,
            dead_letters: Arc::new(letters),
            repair,
            gate_permits,
            registration,
            tracer,
        }
    }

    /// Reserves order numbers in the background, so that the first posting does not wait for them and processes that
    /// start together do not contend.
    pub fn prepare_order_numbers(&self) {
        let numbers = Arc::clone(&self.order_numbers);
        let prepare = async move {
            match numbers.take(1).await {
                Ok(unused) => numbers.give_back(unused),
                Err(fault) => tracing::warn!("Could not reserve order numbers yet: {}", chain(&fault)),
            }
        };
        self.world.spawn(prepare.boxed());
    }

    /// Returns unused order numbers to the store, and records the numbers of the last postings, when the process ends.
    /// Takes at most [`CLOSING_TIME_MAX`]. After that, unused numbers are lost, and the scrubber records the others.
    pub async fn close_order_numbers(&self) {
        futures::join!(
            self.close("Unused order numbers are lost", self.order_numbers.close()),
            self.close("The scrubber has to record the last order numbers", self.posted.record(true)),
        );
    }

    async fn close<E: Error + 'static>(
        &self,
        otherwise: &str,
        closing: impl Future<Output = Result<(), E>> + Send,
    ) {
        match select(closing.boxed(), self.world.sleep(CLOSING_TIME_MAX)).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(fault), _)) => tracing::warn!("{otherwise}: {}", chain(&fault)),
            Either::Right(_) => tracing::warn!("{otherwise}: the store did not answer in time"),
        }
    }
}
