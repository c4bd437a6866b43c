//! How the processes of one bank call each other: over HTTP, each request signed with the secret that
//! they share. Nothing here carries work; whatever is lost costs time, never work.
//!
//! `bell` wakes the listeners of other processes, `replies` is the way back to whoever waits, and
//! `broadcast` asks all processes a question at once. `lines` is what the first two have in common: at
//! most one request in flight for each process, while what comes meanwhile collects. The other end of
//! it, the HTTP server, is not here: it asks a [`Recipient`] whether to listen.

mod advertised;
mod broadcast;
mod client;
mod doorbell;
mod lines;
mod recipient;
mod replies;
pub mod signature;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use advertised::advertised;
pub use broadcast::{PeerBroadcast, Question};
pub use client::CallFault;
pub use doorbell::HttpDoorbell;
pub use recipient::Recipient;
pub use replies::HttpReplies;

use client::PeerClient;

use crate::adapters::local_doorbell::LocalDoorbell;
use crate::bank::Links;
use crate::cluster::completions::Completions;
use crate::cluster::completions::reply_body::{REPLY_ITEM_BYTES_MAX, REPLY_ITEMS_MAX};
use crate::cluster::doorbell_secret::{DoorbellKeys, DoorbellSecret};
use crate::cluster::reply_to::ReplySeal;
use crate::messaging::envelope::seal::Seal;
use crate::ports::Store;
use crate::ports::process_registry::ProcessId;
use crate::ports::queue::QueueName;
use crate::ports::world::{World, WorldExt as _};

/// Where a process takes rings.
pub const RING_PATH: &str = "/internal/ring";
/// Where a worker tells how it is.
pub const STATUS_PATH: &str = "/internal/status";
/// Where a process that waits takes replies.
pub const COMPLETIONS_PATH: &str = "/internal/completions";

/// Where a worker is told of the gate.
pub const GATE_PATH: &str = "/internal/gate";

/// Where a process is told that a partner or its keys changed.
pub const PARTNERS_PATH: &str = "/internal/partners";

/// Most bytes of an answer between processes: how a worker is, with all that it counts.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Most bytes of a request between processes. Its signature can be checked only when it was read, so this
/// much is read of strangers; the largest request is a note of [`REPLY_ITEMS_MAX`] completions.
pub const REQUEST_BYTES_MAX: usize = REPLY_ITEMS_MAX * REPLY_ITEM_BYTES_MAX + 64;

/// No HTTP client can be made.
#[derive(Debug, thiserror::Error)]
#[error("an HTTP client cannot be made")]
pub struct NoClient(#[from] reqwest::Error);

/// Everything that a process needs to call others.
#[derive(Clone)]
pub struct PeerNetwork {
    /// This process.
    pub id: ProcessId,
    /// What signs.
    pub secret: Arc<DoorbellSecret>,
    /// Rings here: for this process only.
    pub local: Arc<LocalDoorbell>,
    /// Rings everywhere.
    pub bell: Arc<HttpDoorbell>,
    /// What is asked for a reply, and answered, by this process.
    pub seal: ReplySeal,
    /// The way back.
    pub replies: Arc<HttpReplies>,
    /// Asks all processes.
    pub broadcast: Arc<PeerBroadcast>,
}

impl PeerNetwork {
    /// The exchange of a process. Nothing goes to the network yet. Without a configured secret there
    /// is none until [`DoorbellSecret::establish`] has found it in the store.
    ///
    /// # Errors
    /// [`NoClient`]
    pub fn new(
        store: &Store,
        world: &Arc<dyn World>,
        configured: Option<&DoorbellKeys>,
    ) -> Result<Self, NoClient> {
        Self::with(store, world, Arc::new(DoorbellSecret::new(configured)))
    }

    /// As [`Self::new`], with a secret that the store of this process is opened with.
    ///
    /// # Errors
    /// [`NoClient`]
    pub fn with(
        store: &Store,
        world: &Arc<dyn World>,
        secret: Arc<DoorbellSecret>,
    ) -> Result<Self, NoClient> {
        let client = Arc::new(PeerClient::new(Arc::clone(&secret), Arc::clone(world))?);
        let id = ProcessId::from_uuid(world.uuid());
        let local = Arc::new(LocalDoorbell::default());
        let bell = HttpDoorbell::new(&local, id, &store.roster, &client, world);
        let seal = ReplySeal::new(&secret, world);
        let replies = Arc::new(HttpReplies::new(&client, seal.clone(), world));
        let broadcast = Arc::new(PeerBroadcast::new(id, &store.roster, &client, world));
        Ok(Self { id, secret, local, bell, seal, replies, broadcast })
    }

    /// How the bank of this process reaches others.
    pub fn links(&self, completions: &Arc<Completions>) -> Links {
        let (doorbell, replies) = (Arc::clone(&self.bell), Arc::clone(&self.replies));
        Links { doorbell, completions: Arc::clone(completions), replies, seal: Seal::new(&self.secret) }
    }
}

/// The body of a ring.
#[derive(Serialize, Deserialize)]
struct Ring {
    queues: Vec<String>,
}

/// Writes a ring.
fn encode_ring<'a>(queues: impl IntoIterator<Item = &'a QueueName>) -> Vec<u8> {
    let ring = Ring { queues: queues.into_iter().map(ToString::to_string).collect() };
    serde_json::to_vec(&ring).expect("texts can always be written as JSON")
}

/// Reads a ring; names that are none are left out.
///
/// # Errors
/// When the body is no ring at all.
pub fn decode_ring(body: &[u8]) -> Result<Vec<QueueName>, serde_json::Error> {
    let ring: Ring = serde_json::from_slice(body)?;
    Ok(ring.queues.iter().filter_map(|name| QueueName::parse(name)).collect())
}

/// Tells of an epoch of the gate, and answers with the one that is obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateEpoch {
    /// The epoch.
    pub epoch: u64,
}

impl GateEpoch {
    /// The body of question and answer.
    pub fn encode(self) -> Vec<u8> {
        serde_json::to_vec(&self).expect("a number can always be written as JSON")
    }

    /// Reads a body; `None` if it is none.
    pub fn decode(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

/// Tells that a partner or its keys changed: what is remembered of it counts no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartnerChanged {
    /// Its name; any partner may have changed where there is none.
    #[serde(default)]
    pub partner: Option<String>,
}

impl PartnerChanged {
    /// The body that tells it.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a text can always be written as JSON")
    }
}
