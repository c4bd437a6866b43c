//! The bank in one process: the use cases over one store, put together once.

use std::sync::Arc;

use crate::access::partner_grants::PartnerGrants;
use crate::cluster::completions::Completions;
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

/// Everything that a process of the bank can do. Pass on what is used, not the whole.
#[derive(Clone)]
pub struct Bank {
    /// Where it keeps everything.
    pub store: Store,
    /// The world it lives in.
    pub world: Arc<dyn World>,
    /// Wakes listeners.
    pub doorbell: Arc<dyn Doorbell>,
    /// Who waits here for an outcome.
    pub completions: Arc<Completions>,
    /// Tells those who wait elsewhere.
    pub replies: Arc<dyn Replies>,
    /// Proves what the processes of the bank put on queues.
    pub seal: Seal,
    /// How many queues share the work.
    pub queue_count: u16,
    /// Half one of the protocol.
    pub acceptor: Arc<Acceptor>,
    /// Half two of the protocol.
    pub poster: Arc<Poster>,
    /// The numbers of this process.
    pub order_numbers: Arc<OrderNumbers>,
    /// What could not be posted.
    pub dead_letters: Arc<DeadLetterService>,
    /// What was forgotten.
    pub repair: Repair,
    /// The terms of the partners that direct orders are accepted for.
    pub partner_grants: Arc<PartnerGrants>,
}

/// How a process reaches others, and is reached.
#[derive(Clone)]
pub struct Links {
    /// Wakes listeners.
    pub doorbell: Arc<dyn Doorbell>,
    /// Who waits here for an outcome. The same one that the store's enqueueing asks.
    pub completions: Arc<Completions>,
    /// Tells those who wait elsewhere.
    pub replies: Arc<dyn Replies>,
    /// The seal of the bank's messages. The same one that the store's enqueueing uses.
    pub seal: Seal,
}

impl Bank {
    /// Puts the bank of a process together that knows no others. Nothing is read or written yet.
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

    /// Puts the bank of one process among others together. Nothing is read or written yet.
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
        let office = DeadLetterService::new(&store, &seal, Arc::clone(&poster), bell(), time(), queue_count);
        let repair = Repair::new(&store, &seal, time(), bell(), queue_count);
        let dead_letters = Arc::new(office);
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
            partner_grants,
        }
    }
}
