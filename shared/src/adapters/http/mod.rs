//! Requests between the processes of one bank: over HTTP, each signed with the secret that they share. They carry no
//! work: a lost request causes delay, not the loss of work.
//!
//! `doorbell` wakes the listeners of other processes, `replies` notifies the processes in which clients wait, and
//! `broadcast` sends a request to all processes; `contention` uses it for contended accounts. `doorbell` and `replies`
//! share `send_queues`: at most one request to each process is in flight, while further items accumulate. The HTTP
//! server is not in this folder: it checks the requests with a [`Recipient`].

mod advertised;
mod broadcast;
mod client;
mod contention;
mod doorbell;
mod ping_times;
mod recipient;
mod replies;
mod ring;
mod send_queues;
pub mod signature;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use advertised::advertised;
pub use broadcast::{BroadcastRequest, PeerBroadcast};
pub use client::CallFault;
pub use contention::{HttpContentionNotices, decode_contended};
pub use doorbell::HttpDoorbell;
pub use recipient::Recipient;
pub use replies::HttpReplies;
pub use ring::{Ping, Ring};

use client::PeerClient;

use crate::adapters::local_doorbell::LocalDoorbell;
use crate::bank::Links;
use crate::cluster::completions::Completions;
use crate::cluster::completions::reply_body::{REPLY_ITEM_BYTES_MAX, REPLY_ITEMS_MAX};
use crate::cluster::doorbell_secret::DoorbellSecret;
use crate::cluster::reply_to::ReplySeal;
use crate::messaging::envelope::seal::Seal;
use crate::ports::Store;
use crate::ports::process_registry::ProcessId;
use crate::ports::world::{World, WorldExt as _};

/// Path for rings, including pings.
pub const RING_PATH: &str = "/internal/ring";
/// Path for the status of a worker.
pub const STATUS_PATH: &str = "/internal/status";
/// Path for the outcomes of transactions for which clients wait.
pub const COMPLETIONS_PATH: &str = "/internal/completions";

/// Path for the epoch of the gate.
pub const GATE_PATH: &str = "/internal/gate";

/// Path for accounts on which a worker could not commit.
pub const CONTENTION_PATH: &str = "/internal/contention";

/// Path for changes of a partner or its keys.
pub const PARTNERS_PATH: &str = "/internal/partners";

/// Maximum size of a response between processes: the status of a worker with all of its counters.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Maximum size of a request between processes. The signature can be checked only after the body was read, so bodies of
/// this size are read from unknown callers; the largest request is a note of [`REPLY_ITEMS_MAX`] completions.
pub const REQUEST_BYTES_MAX: usize = REPLY_ITEMS_MAX * REPLY_ITEM_BYTES_MAX + 64;

/// Error for an HTTP client that cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("an HTTP client cannot be created")]
pub struct NoClient(#[from] reqwest::Error);

/// The connections of a process to the other processes.
#[derive(Clone)]
pub struct PeerNetwork {
    /// The id of this process.
    pub id: ProcessId,
    /// The secret for signatures.
    pub secret: Arc<DoorbellSecret>,
    /// Rings in this process only.
    pub local: Arc<LocalDoorbell>,
    /// Rings in all processes.
    pub bell: Arc<HttpDoorbell>,
    /// Seals and checks the reply addresses in queue messages.
    pub seal: ReplySeal,
    /// Sends outcomes to the processes in which clients wait.
    pub replies: Arc<HttpReplies>,
    /// Sends requests to all processes.
    pub broadcast: Arc<PeerBroadcast>,
    /// Notifies all processes of contended accounts.
    pub contention: Arc<HttpContentionNotices>,
}

impl PeerNetwork {
    /// Creates the network of a process, with the secret that also seals the messages of its bank. Sends nothing
    /// yet. Without a configured secret, requests wait until [`DoorbellSecret::establish`] has read it.
    ///
    /// # Errors
    /// [`NoClient`]
    pub fn new(store: &Store, world: &Arc<dyn World>, secret: Arc<DoorbellSecret>) -> Result<Self, NoClient> {
        let client = Arc::new(PeerClient::new(Arc::clone(&secret), Arc::clone(world))?);
        let id = ProcessId::from_uuid(world.uuid());
        let local = Arc::new(LocalDoorbell::default());
        let bell = HttpDoorbell::new(&local, id, &store.process_registry, &client, world);
        let seal = ReplySeal::new(&secret, world);
        let replies = Arc::new(HttpReplies::new(&client, seal.clone(), world));
        let broadcast = Arc::new(PeerBroadcast::new(id, &store.process_registry, &client, world));
        let contention = Arc::new(HttpContentionNotices::new(&broadcast, world));
        Ok(Self { id, secret, local, bell, seal, replies, broadcast, contention })
    }

    /// Returns the links of the bank of this process to other processes.
    pub fn links(&self, completions: &Arc<Completions>) -> Links {
        Links {
            doorbell: self.bell.clone(),
            completions: Arc::clone(completions),
            replies: self.replies.clone(),
            seal: Seal::new(&self.secret),
            contention: self.contention.clone(),
        }
    }
}

/// Request with an epoch of the gate; the response has the epoch that the process applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateEpoch {
    /// The epoch.
    pub epoch: u64,
}

impl GateEpoch {
    /// Encodes the body of a request or a response.
    pub fn encode(self) -> Vec<u8> {
        serde_json::to_vec(&self).expect("a number can always be written as JSON")
    }

    /// Decodes a body; `None` if it is invalid.
    pub fn decode(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

/// Notification that a partner or its keys changed: cached state of it is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartnerChanged {
    /// The id of the partner; `None` if any partner may have changed.
    #[serde(default)]
    pub partner: Option<String>,
}

impl PartnerChanged {
    /// Encodes the body.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a text can always be written as JSON")
    }
}
