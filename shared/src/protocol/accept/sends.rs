//! Sends, and which of them this process has seen confirmed: the only ones that it may promise.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use futures::FutureExt as _;
use lru::LruCache;
use parking_lot::Mutex;

use super::Shared;
use crate::cluster::completions::Completions;
use crate::domain::decision::Work;
use crate::domain::ids::TransactionKey;
use crate::messaging::dispatch::Dispatch;
use crate::messaging::envelope::Envelope;
use crate::ports::doorbell::Doorbell;
use crate::ports::queue::QueueName;
use crate::protocol::group_commit::Flush;

/// Keys whose confirmed send is remembered; forgetting one costs a second send.
const CONFIRMED_SENDS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// Work on its way to the queue.
pub(super) struct Parcel {
    pub(super) work: Work,
    pub(super) traceparent: Option<String>,
}

/// What sends go through.
pub(super) struct Sending {
    pub(super) dispatch: Dispatch,
    pub(super) doorbell: Arc<dyn Doorbell>,
    pub(super) confirmed: Arc<ConfirmedSends>,
}

/// Sends what collected for one queue, in as few messages as it takes.
pub(super) fn send_groups(sending: Arc<Sending>) -> Flush<QueueName, Parcel, Shared<()>> {
    Arc::new(move |name, parcels| {
        let sending = Arc::clone(&sending);
        async move { sending.send(&name, parcels).await }.boxed()
    })
}

impl Sending {
    async fn send(&self, name: &QueueName, parcels: Vec<Parcel>) -> Vec<Shared<()>> {
        let keys: Vec<TransactionKey> = parcels.iter().map(|parcel| parcel.work.key.clone()).collect();
        let traceparent = parcels.iter().find_map(|parcel| parcel.traceparent.clone());
        let mut once = BTreeSet::new();
        // A replay that came while the first send was under way finds it confirmed by now.
        let work: Vec<Work> = parcels
            .into_iter()
            .map(|parcel| parcel.work)
            .filter(|work| self.confirmed.lacks(&work.key) && once.insert(work.key.clone()))
            .collect();
        // Asked when it is sent, and not when it was handed in: somebody may have come meanwhile.
        let reply_to =
            |items: &[Work]| self.confirmed.completions.reply_to(items.iter().map(|work| &work.key));
        let confirm = |sent: &Envelope| {
            let asks = sent.reply_to.is_some();
            sent.items.iter().for_each(|work| self.confirmed.insert(&work.key, asks));
        };
        let sent = self.dispatch.send(name, &work, traceparent.as_deref(), reply_to, confirm).await;
        let sent = sent.map_err(Arc::new);
        self.doorbell.ring(name);
        let answer = |key: &TransactionKey| match &sent {
            Err(fault) if !self.confirmed.contains(key) => Err(Arc::clone(fault)),
            Ok(()) | Err(_) => Ok(()),
        };
        keys.iter().map(answer).collect()
    }
}

/// Keys whose send this process has seen confirmed, and whether that send asked for a reply.
pub(super) struct ConfirmedSends {
    sends: Mutex<LruCache<TransactionKey, bool>>,
    completions: Arc<Completions>,
}

impl ConfirmedSends {
    pub(super) fn new(completions: Arc<Completions>) -> Self {
        Self { sends: Mutex::new(LruCache::new(CONFIRMED_SENDS_MAX)), completions }
    }

    pub(super) fn insert(&self, key: &TransactionKey, asks: bool) {
        let mut sends = self.sends.lock();
        let asked = sends.get(key).copied().unwrap_or(false);
        sends.put(key.clone(), asked || asks);
    }

    fn contains(&self, key: &TransactionKey) -> bool {
        self.sends.lock().contains(key)
    }

    /// Whether the work has to be sent (again): no send of it was confirmed, or somebody here waits
    /// for it by now and none asked for a reply.
    pub(super) fn lacks(&self, key: &TransactionKey) -> bool {
        let asked = self.sends.lock().get(key).copied();
        match asked {
            None => true,
            Some(true) => false,
            Some(false) => self.completions.reply_to([key]).is_some(),
        }
    }
}
