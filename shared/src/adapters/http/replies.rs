//! Sends the outcomes of transactions to the processes in which clients wait for them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tracing::{debug, warn};

use super::COMPLETIONS_PATH;
use super::client::{Call, PeerClient};
use super::send_queues::{Pending, SendQueues};
use crate::backoff::REPLY;
use crate::cluster::completions::Completion;
use crate::cluster::completions::reply_body::{self, REPLY_ITEMS_MAX};
use crate::cluster::replies::Replies;
use crate::cluster::reply_to::{ReplyProofError, ReplySeal, ReplyTo};
use crate::ports::fault::chain;
use crate::ports::process_registry::Address;
use crate::ports::world::World;

/// Maximum wait for the response to a note.
const NOTE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of completions that wait for one process. Further completions are dropped.
const WAITING_MAX: usize = 20_000;

/// The completions that wait for one process.
impl Pending for Vec<Completion> {
    fn add(&mut self, more: Self) {
        let room = WAITING_MAX.saturating_sub(self.len());
        self.extend(more.into_iter().take(room));
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

/// Sends outcomes to other processes over HTTP.
pub struct HttpReplies {
    seal: ReplySeal,
    send_queues: SendQueues<Address, Vec<Completion>>,
}

impl HttpReplies {
    pub(super) fn new(client: &Arc<PeerClient>, seal: ReplySeal, world: &Arc<dyn World>) -> Self {
        let client = Arc::clone(client);
        let send =
            move |to: Address, items: Vec<Completion>| send_notes(Arc::clone(&client), to, items).boxed();
        Self { seal, send_queues: SendQueues::new(Arc::clone(world), REPLY, Arc::new(send)) }
    }
}

impl Replies for HttpReplies {
    fn send(&self, to: &ReplyTo, completion: Completion) {
        match self.seal.verify(to) {
            Ok(address) => self.send_queues.add(address.clone(), vec![completion]),
            Err(why @ ReplyProofError::Forged) => {
                warn!("The outcome of transaction {} is not sent: {why}", completion.key);
            }
            Err(why @ (ReplyProofError::NoSecret | ReplyProofError::Expired)) => {
                debug!("The outcome of transaction {} is not sent: {why}", completion.key);
            }
        }
    }
}

async fn send_notes(client: Arc<PeerClient>, to: Address, completions: Vec<Completion>) -> bool {
    for some in completions.chunks(REPLY_ITEMS_MAX) {
        let call = Call::post(COMPLETIONS_PATH, reply_body::encode(some));
        if let Err(fault) = client.call(&to, call, NOTE_TIMEOUT).await {
            debug!("{} outcomes could not be sent to the process at {to}: {}", some.len(), chain(&fault));
            return false;
        }
    }
    true
}
