//! What many requests do together: inserts of one account, and sends to one queue.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use lru::LruCache;

use super::{Shared, as_stored};
use crate::dispatch::Dispatch;
use crate::domain::decision::Work;
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::group_commit::Flush;
use crate::ports::doorbell::Doorbell;
use crate::ports::ledger::{AcceptOutcome, Ledger, NewTransaction};
use crate::ports::queue::QueueName;

/// Keys whose confirmed send is remembered; forgetting one costs a second send.
const CONFIRMED_SENDS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// Work on its way to the queue.
pub(super) struct Outgoing {
    pub(super) work: Work,
    pub(super) traceparent: Option<String>,
}

/// Inserts a group. Within it each key stands once: whoever brought a key second joins the first,
/// and finds what the first one stored.
pub(super) fn insert_groups(
    ledger: Arc<dyn Ledger>,
    confirmed: Arc<ConfirmedSends>,
) -> Flush<AccountKey, NewTransaction, Shared<AcceptOutcome>> {
    Arc::new(move |_, group| {
        let (ledger, confirmed) = (Arc::clone(&ledger), Arc::clone(&confirmed));
        async move {
            let mut places: BTreeMap<&TransactionKey, usize> = BTreeMap::new();
            let mut firsts: Vec<NewTransaction> = Vec::new();
            let mut joins: Vec<(usize, bool)> = Vec::with_capacity(group.len());
            for new in &group {
                let place = *places.entry(&new.key).or_insert(firsts.len());
                let first = place == firsts.len();
                if first {
                    firsts.push(new.clone());
                }
                joins.push((place, first));
            }
            let outcomes = match ledger.accept(&firsts).await {
                Ok(outcomes) => outcomes,
                Err(fault) => {
                    let fault = Arc::new(fault);
                    return group.iter().map(|_| Err(Arc::clone(&fault))).collect();
                }
            };
            assert!(outcomes.len() == firsts.len(), "each transaction of a group has one outcome");
            for (first, outcome) in firsts.iter().zip(&outcomes) {
                // Stored and enqueued in one step: whoever joined may be promised it as well.
                if matches!(outcome, AcceptOutcome::Inserted { enqueued: true, .. }) {
                    confirmed.insert(&first.key);
                }
            }
            let outcome = |(place, first): (usize, bool)| match (&outcomes[place], first) {
                (AcceptOutcome::Inserted { revision, enqueued: _ }, false) => {
                    let stored = as_stored(firsts[place].clone(), revision.clone());
                    AcceptOutcome::Existing(Box::new(stored))
                }
                (outcome, _) => outcome.clone(),
            };
            joins.into_iter().map(|join| Ok(outcome(join))).collect()
        }
        .boxed()
    })
}

/// Sends what collected for one queue, in as few messages as it takes.
pub(super) fn send_groups(
    dispatch: Dispatch,
    doorbell: Arc<dyn Doorbell>,
    confirmed: Arc<ConfirmedSends>,
) -> Flush<QueueName, Outgoing, Shared<()>> {
    Arc::new(move |name, group| {
        let (dispatch, doorbell, confirmed) =
            (dispatch.clone(), Arc::clone(&doorbell), Arc::clone(&confirmed));
        async move {
            let keys: Vec<TransactionKey> = group.iter().map(|outgoing| outgoing.work.key.clone()).collect();
            let traceparent = group.iter().find_map(|outgoing| outgoing.traceparent.clone());
            let mut once = BTreeSet::new();
            // A replay that came while the first send was under way finds it confirmed by now.
            let work: Vec<Work> = group
                .into_iter()
                .map(|outgoing| outgoing.work)
                .filter(|work| !confirmed.contains(&work.key) && once.insert(work.key.clone()))
                .collect();
            let confirm = |sent: &[Work]| sent.iter().for_each(|work| confirmed.insert(&work.key));
            let sent = dispatch.send(&name, &work, traceparent.as_deref(), confirm).await.map_err(Arc::new);
            doorbell.ring(&name);
            let answer = |key: &TransactionKey| match &sent {
                Err(fault) if !confirmed.contains(key) => Err(Arc::clone(fault)),
                Ok(()) | Err(_) => Ok(()),
            };
            keys.iter().map(answer).collect()
        }
        .boxed()
    })
}

/// Keys whose send this process has seen confirmed: the ones that it may promise.
pub(super) struct ConfirmedSends(Mutex<LruCache<TransactionKey, ()>>);

impl ConfirmedSends {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CONFIRMED_SENDS_MAX)))
    }

    pub(super) fn insert(&self, key: &TransactionKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key.clone(), ());
    }

    pub(super) fn contains(&self, key: &TransactionKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }
}
