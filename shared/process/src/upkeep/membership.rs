//! Membership of a process in its bank: the shared secret, the registration, and the pings.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::select;
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::bank::Bank;
use postonce_shared::ports::process_registry::{Address, ProcessKind};

use super::heartbeat::Heartbeat;
use crate::drain::Drain;

/// Maximum time for which the first ping waits until the gate has been read.
const GATE_READ_MAX: Duration = Duration::from_secs(5);

/// Establishes the shared secret in a task, because the store may be unavailable at the start.
pub fn find_secret(bank: &Bank, network: &PeerNetwork) {
    let (secret, sync, world) =
        (Arc::clone(&network.secret), Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
    bank.world.spawn(async move { secret.establish(&*sync, &*world).await }.boxed());
}

/// Keeps a process registered, and pings all other processes, until the drain starts. Calls `on_registered` once it is
/// registered. Pings contain the known epoch of the gate, so that others learn of a gate that this process held at its start.
pub async fn keep_registered(
    bank: &Bank,
    network: &PeerNetwork,
    (kind, address): (ProcessKind, Address),
    draining: &Drain,
    on_registered: impl FnOnce(),
) {
    let heartbeat = Heartbeat::new(bank, (network.id, kind), address);
    let (bell, until) = (Arc::clone(&network.bell), draining.clone());
    let (permits, world) = (Arc::clone(&bank.gate_permits), Arc::clone(&bank.world));
    let pinging = async move {
        let mut gate = permits.subscribe();
        let is_known = std::pin::pin!(gate.wait_for(Option::is_some));
        select(is_known, world.sleep(GATE_READ_MAX)).await;
        let gate_epoch = || permits.epoch();
        let (pings, until) = (std::pin::pin!(bell.keep_pinging(gate_epoch)), std::pin::pin!(until.started()));
        select(pings, until).await;
    };
    let registered = || {
        on_registered();
        bank.world.spawn(pinging.boxed());
    };
    heartbeat.keep_registered(draining, registered).await;
}
