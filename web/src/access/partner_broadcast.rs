//! Broadcast of partner changes. Every process invalidates its cached data about the partner, so that revoked keys stop
//! working everywhere. The message contains only the partner id; receivers read the state from the store.
//!
//! A lost message only delays the change: cached entries expire ([`crate::access::keyring`]).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use postonce_process::http::ForgetPartner;
use postonce_shared::adapters::http::{
    BroadcastRequest, CallFault, PARTNERS_PATH, PartnerChanged, PeerBroadcast, PeerNetwork,
};
use postonce_shared::backoff::BROADCAST;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::process_registry::RegisteredProcess;
use postonce_shared::ports::world::World;
use tokio::sync::oneshot;
use tracing::warn;

/// Time limit for the acknowledgement of a process, because the operator waits for it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// Notifies this process and all other registered processes of partner changes.
pub struct PartnerBroadcast {
    broadcast: Arc<PeerBroadcast>,
    forget: Option<ForgetPartner>,
    world: Arc<dyn World>,
}

impl PartnerBroadcast {
    /// Creates the broadcast of a process. `forget` invalidates the caches of this process, if it has any.
    pub fn new(network: &PeerNetwork, world: Arc<dyn World>, forget: Option<ForgetPartner>) -> Arc<Self> {
        Arc::new(Self { broadcast: Arc::clone(&network.broadcast), forget, world })
    }

    /// Notifies all processes of a change. Returns when every reachable process has acknowledged.
    async fn notify(&self, partner: &PartnerId) {
        if let Some(forget) = &self.forget {
            forget(Some(partner));
        }
        let message = PartnerChanged { partner: Some(partner.to_string()) };
        let request = BroadcastRequest::put(PARTNERS_PATH, message.encode());
        for attempt in 1..=BROADCAST.attempts {
            let is_last = attempt == BROADCAST.attempts;
            match self.broadcast.send(&request, ANSWER_TIME_MAX).await {
                Ok(answers) if answers.iter().all(is_acknowledged) => return,
                Ok(answers) if is_last => answers.iter().filter(|it| !is_acknowledged(it)).for_each(warn_of),
                Ok(_) => {}
                Err(fault) if is_last => {
                    let why = chain(&fault);
                    warn!("The other processes apply the change of {partner} only within 5 minutes: {why}");
                }
                Err(_) => {}
            }
            if !is_last {
                BROADCAST.pause(attempt, &*self.world).await;
            }
        }
    }
}

/// Returns whether a process acknowledged, or runs a version that does not cache partners.
fn is_acknowledged((_, answer): &(RegisteredProcess, Result<Vec<u8>, CallFault>)) -> bool {
    matches!(answer, Ok(_) | Err(CallFault::Refused(404)))
}

fn warn_of((entry, answer): &(RegisteredProcess, Result<Vec<u8>, CallFault>)) {
    let why = answer.as_ref().err().map(|fault| chain(fault)).unwrap_or_default();
    let (kind, id, address) = (entry.kind.code(), entry.id, &entry.address);
    warn!("The {kind} {id} at {address} applies a change of partners only within 5 minutes: {why}");
}

/// Notification that is sent even if the future that changes the partner is dropped: dropping the notification sends it.
pub(crate) struct PendingNotification {
    broadcast: Arc<PartnerBroadcast>,
    partner: Option<PartnerId>,
}

impl PendingNotification {
    /// Prepares the notification for a change that is about to start.
    pub(crate) fn of(broadcast: &Arc<PartnerBroadcast>, partner: &PartnerId) -> Self {
        Self { broadcast: Arc::clone(broadcast), partner: Some(partner.clone()) }
    }

    /// Discards the notification, because nothing changed.
    pub(crate) fn cancel(mut self) {
        self.partner = None;
    }

    /// Sends the notification. Waits until every reachable process has acknowledged.
    pub(crate) async fn send(mut self) {
        if let Some(sent) = self.start() {
            // The channel closes without a message only when the process ends.
            let _ended = sent.await;
        }
    }

    fn start(&mut self) -> Option<oneshot::Receiver<()>> {
        let partner = self.partner.take()?;
        let (done, sent) = oneshot::channel();
        let broadcast = Arc::clone(&self.broadcast);
        self.broadcast.world.spawn(
            async move {
                broadcast.notify(&partner).await;
                // The receiver may have been dropped.
                let _received = done.send(());
            }
            .boxed(),
        );
        Some(sent)
    }
}

impl Drop for PendingNotification {
    fn drop(&mut self) {
        drop(self.start());
    }
}
