//! What other processes and machines that watch ask of this one over HTTP.
//!
//! `/internal/…` is for the other processes of the bank, signed with the secret that they share
//! ([`SignedBody`]). A web process serves it at an address of its own, or beside its API where it is told
//! to. A worker process has a small server, which serves that, health and metrics.

mod connections;
mod internal;
mod server;
mod signed;
mod status;

pub use connections::attend;
pub use internal::configure;
pub use server::{WorkerApp, serve, serve_peers, start};
pub use signed::{ClaimedBody, Refusal, SignedBody};
pub use status::{OperationCount, QueueListeners, Status};

use std::sync::Arc;

use postonce_shared::adapters::http::{PeerNetwork, Recipient};
use postonce_shared::adapters::local_doorbell::LocalDoorbell;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::completions::Completions;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::operations::StorageOperations;
use postonce_shared::ports::process_registry::{Address, ProcessId};
use postonce_shared::ports::world::World;

use crate::listening::gatekeeper::Gatekeeper;
use crate::meter::Meter;
use crate::readiness::Readiness;

/// Forgets what is remembered of a partner; of all partners without one.
pub type ForgetPartner = Arc<dyn Fn(Option<&PartnerId>) + Send + Sync>;

/// Forgets what the worker of that bank remembers of a partner.
fn forget_partner(bank: &Bank) -> ForgetPartner {
    let grants = Arc::clone(&bank.partner_grants);
    Arc::new(move |partner| grants.forget(partner))
}

/// What this process is to others that call it.
#[derive(Clone)]
pub struct PeerState {
    /// Its name.
    pub id: ProcessId,
    /// When it started.
    pub started_at: Timestamp,
    /// What a call has to be signed with.
    pub secret: Arc<DoorbellSecret>,
    /// Knows the address of this process, and which calls it took.
    pub recipient: Arc<Recipient>,
    /// Rung by rings: for this process only, or they would go round for ever.
    pub bell: Arc<LocalDoorbell>,
    /// Told by replies.
    pub completions: Arc<Completions>,
    /// What its worker counts.
    pub meter: Arc<Meter>,
    /// Told of the gate; `None` without a worker here.
    pub gatekeeper: Option<Arc<Gatekeeper>>,
    /// Called when a partner changed, or, with none, when any may have.
    pub partners: ForgetPartner,
    /// What it lacks: whoever ends takes no rings.
    pub readiness: Arc<Readiness>,
    /// What it asked of the store.
    pub operations: Arc<StorageOperations>,
    /// The clock.
    pub world: Arc<dyn World>,
}

impl PeerState {
    /// The process of that bank and exchange, whose worker, if it has one, counts and obeys there. Others
    /// call it at `address`.
    pub fn of(
        bank: &Bank,
        exchange: &PeerNetwork,
        meter: &Arc<Meter>,
        gatekeeper: Option<Arc<Gatekeeper>>,
        readiness: &Arc<Readiness>,
        address: Address,
    ) -> Self {
        let started_at = bank.world.now();
        Self {
            id: exchange.id,
            started_at,
            secret: Arc::clone(&exchange.secret),
            recipient: Arc::new(Recipient::new(address, started_at)),
            bell: Arc::clone(&exchange.local),
            completions: Arc::clone(&bank.completions),
            meter: Arc::clone(meter),
            gatekeeper,
            partners: forget_partner(bank),
            readiness: Arc::clone(readiness),
            operations: Arc::clone(&bank.store.operations),
            world: Arc::clone(&bank.world),
        }
    }
}
