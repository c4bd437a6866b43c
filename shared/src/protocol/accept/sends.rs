//! Sends work to the queue and records confirmed sends. A transaction may be confirmed only after its send.

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
use crate::ports::spans::SpanKind;
use crate::posting::group_commit::Flush;
use crate::posting::spans::error_of;
use crate::tracer::Tracer;

/// Largest number of recorded keys with a confirmed send. A key that is evicted costs a second send.
const CONFIRMED_SENDS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

pub(super) struct Sender {
    pub(super) dispatch: Dispatch,
    pub(super) doorbell: Arc<dyn Doorbell>,
    pub(super) confirmed: Arc<ConfirmedSends>,
    pub(super) tracer: Arc<Tracer>,
}

/// Sends the collected work of one queue, in as few messages as possible.
pub(super) fn send_groups(sender: Arc<Sender>) -> Flush<QueueName, Work, Shared<()>> {
    Arc::new(move |name, pending| {
        let sender = Arc::clone(&sender);
        async move { sender.send(&name, pending).await }.boxed()
    })
}

impl Sender {
    async fn send(&self, name: &QueueName, pending: Vec<Work>) -> Vec<Shared<()>> {
        let keys: Vec<TransactionKey> = pending.iter().map(|work| work.submission.key.clone()).collect();
        let mut once = BTreeSet::new();
        // An earlier send may have been confirmed while a replay waited for this one.
        let work: Vec<Work> = pending
            .into_iter()
            .filter(|work| {
                self.confirmed.needs_send(&work.submission.key) && once.insert(work.submission.key.clone())
            })
            .collect();
        // Evaluated at the time of the send, because requests may have started to wait meanwhile.
        let reply_to = |items: &[Work]| {
            self.confirmed.completions.reply_to(items.iter().map(|work| &work.submission.key))
        };
        let confirm = |sent: &Envelope| {
            let with_reply = sent.reply_to.is_some();
            sent.items.iter().for_each(|work| self.confirmed.insert(&work.submission.key, with_reply));
        };
        let origins = work.iter().map(|work| &work.submission.origin);
        let operation =
            self.tracer.begin_shared(format_args!("send {}", name.as_str()), SpanKind::Sender, origins);
        let sent = self.dispatch.send(name, &work, reply_to, confirm).await;
        if let Some(mut operation) = operation {
            operation.set("messaging.operation.name", "send");
            operation.set("messaging.operation.type", "send");
            operation.set("messaging.destination.name", name.as_str().to_owned());
            let is_sent = |position| {
                work.get(position).is_some_and(|work: &Work| self.confirmed.contains(&work.submission.key))
            };
            let error = sent.as_ref().err();
            operation.end_each(|position| error.filter(|_| !is_sent(position)).map(error_of));
        }
        let sent = sent.map_err(Arc::new);
        self.doorbell.ring(name);
        let answer = |key: &TransactionKey| match &sent {
            Err(fault) if !self.confirmed.contains(key) => Err(Arc::clone(fault)),
            Ok(()) | Err(_) => Ok(()),
        };
        keys.iter().map(answer).collect()
    }
}

/// Keys whose send was confirmed to this process, and whether that send had a reply address.
pub(super) struct ConfirmedSends {
    sends: Mutex<LruCache<TransactionKey, bool>>,
    completions: Arc<Completions>,
}

impl ConfirmedSends {
    pub(super) fn new(completions: Arc<Completions>) -> Self {
        Self { sends: Mutex::new(LruCache::new(CONFIRMED_SENDS_MAX)), completions }
    }

    pub(super) fn insert(&self, key: &TransactionKey, with_reply: bool) {
        let mut sends = self.sends.lock();
        let had_reply = sends.get(key).copied().unwrap_or(false);
        sends.put(key.clone(), had_reply || with_reply);
    }

    fn contains(&self, key: &TransactionKey) -> bool {
        self.sends.lock().contains(key)
    }

    /// Returns whether the work must be sent (again): no send of it was confirmed, or a request in this process waits
    /// for it and no confirmed send had a reply address.
    pub(super) fn needs_send(&self, key: &TransactionKey) -> bool {
        let had_reply = self.sends.lock().get(key).copied();
        match had_reply {
            None => true,
            Some(true) => false,
            Some(false) => self.completions.reply_to([key]).is_some(),
        }
    }
}
