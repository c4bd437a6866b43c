//! Tells every process that a partner or its keys changed, so that none lets in who may not call any more. A
//! ring says no more than whose terms changed; whoever hears it forgets what it remembers, and asks the store.
//!
//! A ring that is lost costs time: what is remembered ends by itself ([`crate::access::keyring`]).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use postonce_shared::adapters::http::{
    BroadcastRequest, CallFault, PARTNERS_PATH, PartnerChanged, PeerBroadcast, PeerNetwork,
};
use postonce_shared::backoff::BROADCAST;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::process_registry::RegisteredProcess;
use postonce_shared::ports::world::World;
use postonce_worker::http::ForgetPartner;
use tokio::sync::oneshot;
use tracing::warn;

/// How long a process may take to say that it heard a ring: the operator waits.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// Rings at this process, and at all others that are in the roster.
pub struct PartnerBroadcast {
    broadcast: Arc<PeerBroadcast>,
    forget: Option<ForgetPartner>,
    world: Arc<dyn World>,
}

impl PartnerBroadcast {
    /// The ring of a process; `forget` makes the process itself forget a partner, if it remembers any.
    pub fn new(exchange: &PeerNetwork, world: Arc<dyn World>, forget: Option<ForgetPartner>) -> Arc<Self> {
        Arc::new(Self { broadcast: Arc::clone(&exchange.broadcast), forget, world })
    }

    /// Rings for a partner. Returns when all have heard it that can be reached.
    async fn ring(&self, partner: &PartnerId) {
        if let Some(forget) = &self.forget {
            forget(Some(partner));
        }
        let told = PartnerChanged { partner: Some(partner.to_string()) };
        let request = BroadcastRequest::put(PARTNERS_PATH, told.encode());
        for attempt in 1..=BROADCAST.attempts {
            let is_last = attempt == BROADCAST.attempts;
            match self.broadcast.send(&request, ANSWER_TIME_MAX).await {
                Ok(answers) if answers.iter().all(is_heard) => return,
                Ok(answers) if is_last => answers.iter().filter(|it| !is_heard(it)).for_each(warn_of),
                Ok(_) => {}
                Err(fault) if is_last => {
                    let why = chain(&fault);
                    warn!("Other processes notice the change of {partner} within 5 minutes only: {why}");
                }
                Err(_) => {}
            }
            if !is_last {
                BROADCAST.pause(attempt, &*self.world).await;
            }
        }
    }
}

/// Whether a process knows it now, or is of a program that remembers no partners.
fn is_heard((_, answer): &(RegisteredProcess, Result<Vec<u8>, CallFault>)) -> bool {
    matches!(answer, Ok(_) | Err(CallFault::Refused(404)))
}

fn warn_of((entry, answer): &(RegisteredProcess, Result<Vec<u8>, CallFault>)) {
    let why = answer.as_ref().err().map(|fault| chain(fault)).unwrap_or_default();
    let (kind, id, address) = (entry.kind.code(), entry.id, &entry.address);
    warn!("The {kind} {id} at {address} notices a change of partners within 5 minutes only: {why}");
}

/// A ring that has to come, also when whoever began the change goes away in the middle of it.
pub(crate) struct OwedRing {
    ring: Arc<PartnerBroadcast>,
    partner: Option<PartnerId>,
}

impl OwedRing {
    /// For a change of that partner, which is about to begin.
    pub(crate) fn of(ring: &Arc<PartnerBroadcast>, partner: &PartnerId) -> Self {
        Self { ring: Arc::clone(ring), partner: Some(partner.clone()) }
    }

    /// Nothing changed.
    pub(crate) fn waive(mut self) {
        self.partner = None;
    }

    /// Rings, and waits until all have heard it that can be reached.
    pub(crate) async fn pay(mut self) {
        if let Some(rung) = self.start() {
            // The task ends without a word only when the process does.
            let _ended = rung.await;
        }
    }

    fn start(&mut self) -> Option<oneshot::Receiver<()>> {
        let partner = self.partner.take()?;
        let (tell, rung) = oneshot::channel();
        let ring = Arc::clone(&self.ring);
        self.ring.world.spawn(
            async move {
                ring.ring(&partner).await;
                // Whoever asked may have gone away.
                let _heard = tell.send(());
            }
            .boxed(),
        );
        Some(rung)
    }
}

impl Drop for OwedRing {
    fn drop(&mut self) {
        drop(self.start());
    }
}
