//! Compares the secret of this process with that of the other processes of the bank.
//!
//! The store contains the fingerprint of the secret used for signing. A process that signs with another secret sends a request
//! to all other processes. If at least half of the running processes, itself included, refuse its signature, it is not ready,
//! because it could not reply to processes in which clients wait. Otherwise its own fingerprint replaces the stored one. That
//! happens when the secret of a bank was replaced while all processes were stopped, and in a rotation, where all others accept
//! the new secret already. So a single process with a wrong secret cannot make two or more others unready, even if no other
//! process was reachable when it started. Of two processes, the one that started first wins, because its fingerprint is stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use postonce_shared::adapters::http::{BroadcastRequest, CallFault, PeerBroadcast, PeerNetwork, STATUS_PATH};
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::domain::account::Versioned;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::sync_store::{Swapped, SyncStore};
use postonce_shared::ports::world::World;
use tracing::{error, info, warn};

use crate::readiness::{Part, Readiness};

/// Name of the stored fingerprint of the signing secret.
const FINGERPRINT_VALUE: &str = "ring-secret-fingerprint";
/// Interval between checks while the secret differs, and after a refused signature.
const INTERVAL: Duration = Duration::from_secs(30);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Starts a task that compares the secret once it is known, and again whenever another process refuses a signature. Until the
/// secrets agree, `readiness` lacks [`Part::Secret`].
pub fn start(bank: &Bank, network: &PeerNetwork, readiness: &Arc<Readiness>) {
    let check = SecretCheck {
        secret: Arc::clone(&network.secret),
        sync: Arc::clone(&bank.store.sync),
        broadcast: Arc::clone(&network.broadcast),
        readiness: Arc::clone(readiness),
        world: Arc::clone(&bank.world),
    };
    bank.world.spawn(async move { check.run().await }.boxed());
}

struct SecretCheck {
    secret: Arc<DoorbellSecret>,
    sync: Arc<dyn SyncStore>,
    broadcast: Arc<PeerBroadcast>,
    readiness: Arc<Readiness>,
    world: Arc<dyn World>,
}

impl SecretCheck {
    async fn run(&self) {
        let mut faults = STORE_NEEDED.start();
        loop {
            match self.is_shared().await {
                Ok(true) => {
                    faults.reset();
                    self.readiness.gain(Part::Secret);
                    self.secret.refused().await;
                    self.world.sleep(INTERVAL).await;
                }
                Ok(false) => {
                    faults.reset();
                    self.readiness.lose(Part::Secret);
                    self.world.sleep(INTERVAL).await;
                }
                Err(fault) => {
                    warn!("The secret of this process is not compared yet: {}", chain(&fault));
                    self.world.sleep(faults.next(&*self.world)).await;
                }
            }
        }
    }

    /// Returns whether the other processes have the same secret. In most cases this costs one read of the store.
    async fn is_shared(&self) -> Result<bool, StoreFault> {
        let own = self.secret.get().await.fingerprints();
        let stored = self.sync.get(FINGERPRINT_VALUE).await?;
        let (signing, revision) = match &stored {
            Some(Versioned { value, revision }) => (Some(value), Some(revision)),
            None => (None, None),
        };
        if signing.is_some() && signing == own.first() {
            return Ok(true);
        }
        if signing.is_some() && self.is_refused().await? {
            return Ok(false);
        }
        let new = own.first().map_or("", String::as_str);
        match self.sync.swap(FINGERPRINT_VALUE, revision, new).await? {
            Swapped::Done(_) => {
                info!("Processes sign with the secret {new} now");
                Ok(true)
            }
            // Another process was first.
            Swapped::Conflict => {
                let stored = self.sync.get(FINGERPRINT_VALUE).await?;
                Ok(stored.is_some_and(|stored| own.contains(&stored.value)))
            }
        }
    }

    /// Returns whether at least as many running processes refuse the signature of this process as accept it, itself included.
    async fn is_refused(&self) -> Result<bool, StoreFault> {
        let request = BroadcastRequest::get(STATUS_PATH);
        // Count by address: a process that was restarted at its address after crashes responds for each of its entries.
        let (mut accept, mut refuse) = (BTreeSet::new(), BTreeSet::new());
        for (entry, answer) in self.broadcast.send(&request, ANSWER_TIME_MAX).await? {
            let (id, address) = (entry.id, entry.address.to_string());
            match answer {
                Ok(_) => drop(accept.insert(address)),
                Err(fault @ CallFault::Unauthorized) => {
                    error!(process = %id, "Process {id} at {address} and this one differ: {fault}");
                    refuse.insert(address);
                }
                // The process may have ended.
                Err(_) => {}
            }
        }
        Ok(refuse.len() > accept.len())
    }
}
