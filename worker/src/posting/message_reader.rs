//! From a message to its work, wherever that lies: in the message, in the payload store, or, where a
//! producer wrote to the queue directly, nowhere yet, so that it is accepted first.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::bank::Bank;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;
use postonce_shared::messaging::claim_check::{ClaimCheck, Claimed};
use postonce_shared::messaging::direct_producers::{self, DirectOrder};
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::envelope::{Body, Claim, Content, Envelope, Unreadable};
use postonce_shared::ports::queue::Message;
use postonce_shared::ports::world::World;
use postonce_shared::protocol::accept::Admission;
use tracing::info;

use crate::listening::delivery::Unopened;
use crate::meter::Meter;
use crate::posting::direct_orders::DirectOrders;

/// Opens messages of accepted work.
pub struct MessageReader {
    direct: DirectOrders,
    claims: ClaimCheck,
    seal: Seal,
    world: Arc<dyn World>,
    meter: Arc<Meter>,
    legacy_partner: Option<PartnerId>,
    time_max: Duration,
}

impl MessageReader {
    /// Opening at a bank. Orders of direct producers are accepted in the name of `legacy_partner`;
    /// without one they are refused. `request_rate` is its rate, if it has none of its own. No message takes
    /// longer than `time_max`.
    pub fn new(
        bank: &Bank,
        meter: Arc<Meter>,
        (legacy_partner, request_rate): (Option<PartnerId>, RequestRate),
        time_max: Duration,
    ) -> Self {
        Self {
            claims: ClaimCheck::new(&bank.store, &bank.seal, Arc::clone(&bank.world)),
            seal: bank.seal.clone(),
            direct: DirectOrders::new(bank, Arc::clone(&meter), request_rate),
            world: Arc::clone(&bank.world),
            meter,
            legacy_partner,
            time_max,
        }
    }

    /// The work of a message.
    ///
    /// # Errors
    /// [`Unopened`], by what is to be done about it.
    pub async fn open(&self, message: &Message) -> Result<Envelope, Unopened> {
        match Body::decode(&message.body, &self.seal) {
            Ok(Body::Content(content)) => believed(content),
            Ok(Body::Claim(claim)) => self.redeem(&claim, message).await,
            Err(malformed @ Unreadable::Malformed(_)) => match direct_producers::parse(&message.body) {
                Some(Ok(order)) => self.admit(&order).await,
                Some(Err(invalid)) => Err(Unopened::Refused(invalid.to_string())),
                None => Err(Unopened::Unreadable(malformed)),
            },
            Err(unreadable) => Err(Unopened::Unreadable(unreadable)),
        }
    }

    async fn redeem(&self, claim: &Claim, message: &Message) -> Result<Envelope, Unopened> {
        let name = claim.name.clone();
        let away = |source| {
            // A claim without a seal has no counters, and must not get a seal either: it waits as it is.
            let forgiven = claim.forgiven.saturating_add(1);
            let body = match claim.sealed {
                true => Claim { forgiven, ..claim.clone() }.encode(&self.seal),
                false => message.body.clone(),
            };
            Err(Unopened::PayloadAway { name: claim.name.clone(), body, source })
        };
        match self.in_time(self.claims.get(claim)).await {
            Some(Ok(Claimed::Content(content))) => believed(content?),
            Some(Ok(Claimed::Settled)) => {
                info!("The payload {name} is gone: its work is settled");
                Err(Unopened::Settled)
            }
            Some(Err(fault)) => away(Box::new(fault)),
            None => away(self.late().into()),
        }
    }

    async fn admit(&self, order: &DirectOrder) -> Result<Envelope, Unopened> {
        let Some(partner) = &self.legacy_partner else {
            let why = "the body is of a direct producer, and no partner is configured to accept it for; \
                       set legacy-partner (POSTONCE_LEGACY_PARTNER), then replay";
            return Err(Unopened::Refused(why.to_owned()));
        };
        let admission = match self.in_time(self.direct.admit(order, partner)).await {
            Some(admission) => admission?,
            None => return Err(Unopened::LedgerAway(self.late().into())),
        };
        match admission {
            Admission::Open(work) => {
                self.meter.admitted.add(1);
                // From now on it is like any other work: should the message have to be written anew,
                // then as an envelope, which has room for the counters of its receipts.
                Ok(Envelope::of(vec![*work], None))
            }
            Admission::Final => {
                self.meter.admitted.add(1);
                Err(Unopened::Settled)
            }
            Admission::Refused(refusal) => Err(Unopened::Refused(refusal.to_string())),
        }
    }

    /// The answer, if it comes in time.
    async fn in_time<T>(&self, asking: impl Future<Output = T> + Send) -> Option<T> {
        match select(asking.boxed(), self.world.sleep(self.time_max)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    fn late(&self) -> String {
        format!("there was no answer within {:?}", self.time_max)
    }
}

/// The work of a message, as far as its seal allows.
fn believed(content: Content) -> Result<Envelope, Unopened> {
    match content {
        Content::Work(envelope) => Ok(envelope),
        Content::Names(names) => Err(Unopened::Unsealed(names)),
    }
}
