//! The bank in one process: the use cases over one store.

use std::sync::Arc;

use crate::access::partner_grants::PartnerGrants;
use crate::cluster::completions::Completions;
use crate::cluster::gate::permits::GatePermits;
use crate::cluster::replies::{NoReplies, Replies};
use crate::messaging::envelope::seal::Seal;
use crate::ports::Store;
use crate::ports::doorbell::Doorbell;
use crate::ports::world::World;
use crate::protocol::accept::Acceptor;
use crate::protocol::account_cache::AccountCache;
use crate::protocol::dead_letters::DeadLetterService;
use crate::protocol::order_numbers::OrderNumbers;
use crate::protocol::post::Poster;
use crate::protocol::recover::Repair;

/// The use cases of a process. Pass on the parts that are used, not the whole struct.
#[derive(Clone)]
pub struct Bank {
    /// The store.
    pub store: Store,
    /// Clock, random generator and task runtime.
    pub world: Arc<dyn World>,
    /// Wakes listeners.
    pub doorbell: Arc<dyn Doorbell>,
    /// The waiting requests of this process.
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
    /// The order numbers of this process.
    pub order_numbers: Arc<OrderNumbers>,
    /// Resolves work that could not be posted.
    pub dead_letters: Arc<DeadLetterService>,
    /// Enqueues lost work again.
    pub repair: Repair,
    /// Permits to receive and post work.
    pub gate_permits: Arc<GatePermits>,
    /// The terms of the partners on whose behalf direct orders are accepted.
    pub partner_grants: Arc<PartnerGrants>,
}

/// The connections of a process to other processes.
#[derive(Clone)]
pub struct Links {
    /// Wakes listeners.
    pub doorbell: Arc<dyn Doorbell>,
    /// The waiting requests of this process. The store must enqueue with the same value.
    pub completions: Arc<Completions>,
    /// Sends outcomes to other processes.
    pub replies: Arc<dyn Replies>,
    /// The seal of the bank's messages. The store must enqueue with the same value.
    pub seal: Seal,
}

impl Bank {
    /// Creates the bank of a process without peers. Nothing is read or written yet.
    pub fn new(
        store: Store,
        world: Arc<dyn World>,
        doorbell: Arc<dyn Doorbell>,
        seal: Seal,
        queue_count: u16,
    ) -> Self {
        let links = Links { doorbell, completions: Arc::default(), replies: Arc::new(NoReplies), seal };
        Self::linked(store, world, links, queue_count)
    }

    /// Creates the bank of a process with peers. Nothing is read or written yet.
    pub fn linked(store: Store, world: Arc<dyn World>, links: Links, queue_count: u16) -> Self {
        let Links { doorbell, completions, replies, seal } = links;
        let cache = Arc::new(AccountCache::default());
        let order_numbers = OrderNumbers::new(Arc::clone(&store.sync), Arc::clone(&world));
        let poster = Arc::new(Poster::new(
            Arc::clone(&store.ledger),
            Arc::clone(&order_numbers),
            Arc::clone(&world),
            Arc::clone(&completions),
            Arc::clone(&cache),
        ));
        let (bell, time) = (|| Arc::clone(&doorbell), || Arc::clone(&world));
        let acceptor = Arc::new(Acceptor::new(
            &store,
            &seal,
            time(),
            bell(),
            Arc::clone(&completions),
            cache,
            queue_count,
        ));
        let dead_letters =
            DeadLetterService::new(&store, &seal, Arc::clone(&poster), bell(), time(), queue_count);
        let repair = Repair::new(&store, &seal, time(), bell(), queue_count);
        let dead_letters = Arc::new(dead_letters);
        let partner_grants = Arc::new(PartnerGrants::new(&store, time()));
        Self {
            store,
            world,
            doorbell,
            completions,
            replies,
            seal,
            queue_count,
            acceptor,
            poster,
            order_numbers,
            dead_letters,
            repair,
            gate_permits: Arc::default(),
            partner_grants,
        }
    }
}
