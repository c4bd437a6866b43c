//! HTTP endpoints of a process for other processes and for monitoring.
//!
//! Paths below `/internal/` serve the other processes of the bank, whose requests are signed with a shared secret
//! ([`SignedBody`]). A web process serves them at a separate address or, if so configured, beside its API. A worker process has
//! a small server for them, for health and for metrics.

mod answers;
mod client_socket;
mod connection_counts;
mod connections;
mod in_progress;
mod incomplete_head;
mod internal;
mod metrics_format;
mod places;
mod processor_shares;
mod server;
mod signed;
mod status;
mod transport;

pub use answers::{PIECE_BYTES, track_request};
pub use connections::note_known;
pub use internal::configure;
pub use metrics_format::metrics_format;
pub use places::{Place, Places};
pub use server::{Application, LIBRARY_LOG_TARGET, WorkerApp, serve, serve_peers, start};
pub use signed::{CheckedBody, PeerRequestError, SignedBody};
pub use status::{
    ActivitySteps, AppliedGate, OperationCount, POSTED_IMMEDIATELY, QueueListeners, Status, StatusQuery,
};

use std::net::IpAddr;
use std::sync::Arc;

use postonce_shared::adapters::http::{HttpDoorbell, PeerNetwork, Recipient};
use postonce_shared::adapters::local_doorbell::LocalDoorbell;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::completions::Completions;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::operations::StorageOperations;
use postonce_shared::ports::process_registry::{Address, ProcessId};
use postonce_shared::ports::world::World;
use postonce_shared::posting::waiting::{ImmediatePoster, ServedCounts};

use crate::meter::Meter;
use crate::process_gate::ProcessGate;
use crate::readiness::Readiness;

/// Removes a partner from the cache, or all partners if called with `None`.
pub type ForgetPartner = Arc<dyn Fn(Option<&PartnerId>) + Send + Sync>;

/// Returns a function that removes partners from the cache of the bank's worker.
fn forget_partner(bank: &Bank) -> ForgetPartner {
    let grants = Arc::clone(&bank.partner_grants);
    Arc::new(move |partner| grants.forget(partner))
}

/// Maximum number of request bodies from other processes that are received at the same time, before their signatures can be
/// verified. Each has at most some hundred KiB. When all places are taken, a new body replaces an older one.
const UNVERIFIED_MAX: usize = 64;
/// The same limit for one network address.
const ADDRESS_UNVERIFIED_MAX: usize = 32;

/// State that serves the requests of other processes.
#[derive(Clone)]
pub struct PeerState {
    /// Id of this process.
    pub id: ProcessId,
    /// Time at which the process started.
    pub started_at: Timestamp,
    /// The secret that authenticates requests.
    pub secret: Arc<DoorbellSecret>,
    /// The address of this process, and the requests that it accepted.
    pub recipient: Arc<Recipient>,
    /// The local doorbell: rings from other processes must not be forwarded.
    pub bell: Arc<LocalDoorbell>,
    /// Records the pings of other processes.
    pub pings: Arc<HttpDoorbell>,
    /// Requests that wait for replies about their transactions.
    pub completions: Arc<Completions>,
    /// Counters of the worker.
    pub meter: Arc<Meter>,
    /// Applies the gate.
    pub process_gate: Arc<ProcessGate>,
    /// Posts requests immediately, except on contended accounts.
    pub immediate: Arc<ImmediatePoster>,
    /// Counts of requests by the way in which they were served.
    pub served: Arc<ServedCounts>,
    /// Places for bodies with unverified signatures, by the network address of the client.
    pub unverified: Arc<Places<Option<IpAddr>>>,
    /// Called when a partner has changed; with `None` if any partner may have changed.
    pub partners: ForgetPartner,
    /// Shows whether the process is draining; then it refuses rings.
    pub readiness: Arc<Readiness>,
    /// Counts of storage operations.
    pub operations: Arc<StorageOperations>,
    /// Clock and task spawner.
    pub world: Arc<dyn World>,
}

impl PeerState {
    /// Creates the state of a process that others reach at `address`. `meter` belongs to its worker, if it has one.
    pub fn of(
        bank: &Bank,
        network: &PeerNetwork,
        meter: &Arc<Meter>,
        process_gate: Arc<ProcessGate>,
        readiness: &Arc<Readiness>,
        address: Address,
    ) -> Self {
        let started_at = bank.world.now();
        Self {
            id: network.id,
            started_at,
            secret: Arc::clone(&network.secret),
            recipient: Arc::new(Recipient::new(address, started_at)),
            bell: Arc::clone(&network.local),
            pings: Arc::clone(&network.bell),
            completions: Arc::clone(&bank.completions),
            meter: Arc::clone(meter),
            process_gate,
            immediate: Arc::clone(&bank.immediate),
            served: Arc::clone(bank.acceptor.served()),
            unverified: Places::new(ADDRESS_UNVERIFIED_MAX, UNVERIFIED_MAX),
            partners: forget_partner(bank),
            readiness: Arc::clone(readiness),
            operations: Arc::clone(&bank.store.operations),
            world: Arc::clone(&bank.world),
        }
    }
}
