//! HTTP requests between the processes of one bank, each signed with their shared secret. The requests carry no work,
//! so a lost request causes only delay.
//!
//! `doorbell` wakes the listeners of other processes. `replies` notifies the processes in which clients wait for
//! outcomes. `broadcast` sends a request to all processes, and `contention` uses it for contended accounts. `doorbell`
//! and `replies` share `send_queues`, which allows one request in flight to each process and accumulates further items.
//! The HTTP server, which is not in this folder, checks requests with a [`Recipient`].

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

/// Path for rings and pings.
pub const RING_PATH: &str = "/internal/ring";
/// Path for the status of a worker.
pub const STATUS_PATH: &str = "/internal/status";
/// Path for the outcomes of transactions for which clients wait.
pub const COMPLETIONS_PATH: &str = "/internal/completions";

/// Path for epochs of the gate.
pub const GATE_PATH: &str = "/internal/gate";

/// Path for accounts on which a worker could not commit.
pub const CONTENTION_PATH: &str = "/internal/contention";

/// Path for changes of a partner or its keys.
pub const PARTNERS_PATH: &str = "/internal/partners";

/// Maximum size of a response between processes: the status of a worker with all of its counters.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Maximum size of a request between processes. A signature covers the body, so the server reads up to this many bytes
/// from unauthenticated callers. The largest request is a note of [`REPLY_ITEMS_MAX`] completions.
pub const REQUEST_BYTES_MAX: usize = REPLY_ITEMS_MAX * REPLY_ITEM_BYTES_MAX + 64;

/// The HTTP client cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("an HTTP client cannot be created")]
pub struct NoClient(#[from] reqwest::Error);

/// The connections of a process to the other processes.
#[derive(Clone)]
pub struct PeerNetwork {
    /// The id of this process.
    pub id: ProcessId,
    /// The secret that signs requests.
    pub secret: Arc<DoorbellSecret>,
    /// Wakes the listeners of this process only.
    pub local: Arc<LocalDoorbell>,
    /// Wakes the listeners of this process and of all workers.
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
    /// Creates the network of a process. The same secret also seals the queue messages of the bank. Sends no request
    /// yet. Without a configured secret, requests wait until [`DoorbellSecret::establish`] has read it.
    ///
    /// # Errors
    /// [`NoClient`] when the HTTP client cannot be created.
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

    /// Returns the links from the bank in this process to the other processes.
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

/// Body of a request with an epoch of the gate. The response contains the epoch that the recipient applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateEpoch {
    /// An epoch of the gate.
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

/// Notification that a partner or its keys changed, so that recipients discard the cached state.
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
