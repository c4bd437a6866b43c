//! Compares the secret of this process with that of the other processes of the bank.
//!
//! The store contains the fingerprint of the secret that signs. A process that signs with another one asks all other processes.
//! If at least half of the running ones, itself included, refuse its signature, it is not ready: it cannot reply to those in
//! which clients wait. Otherwise its secret becomes the stored one: that of a bank whose secret was replaced while all processes
//! were stopped, or of a rotation, in which all others accept the new secret already. So one process with a wrong secret cannot
//! make two or more others unready, even if it was the only one that could be reached when it started. Of two processes, the
//! stored secret decides: that of the one that started first.

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

/// Name of the stored value: the fingerprint of the secret that signs.
const FINGERPRINT_VALUE: &str = "ring-secret-fingerprint";
/// Time until the next check while the secret differs, or after a check because of a refused signature.
const INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time for a process to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Compares the secret in a background task: when it is known, and whenever another process refuses a signature. Until then
/// `readiness` lacks [`Part::Secret`].
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

    /// Returns whether the other processes have the secret of this one. One read of the store, in most cases.
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
            // Another process wrote first.
            Swapped::Conflict => {
                let stored = self.sync.get(FINGERPRINT_VALUE).await?;
                Ok(stored.is_some_and(|stored| own.contains(&stored.value)))
            }
        }
    }

    /// Returns whether as many running processes refuse the signature of this one as accept it, this one included.
    async fn is_refused(&self) -> Result<bool, StoreFault> {
        let request = BroadcastRequest::get(STATUS_PATH);
        // By address: a process that was restarted at its address after crashes answers for each of its entries.
        let (mut accept, mut refuse) = (BTreeSet::new(), BTreeSet::new());
        for (entry, answer) in self.broadcast.send(&request, ANSWER_TIME_MAX).await? {
            let (id, address) = (entry.id, entry.address.to_string());
            match answer {
                Ok(_) => drop(accept.insert(address)),
                Err(fault @ CallFault::Unauthorized) => {
                    error!(process = %id, "Process {id} at {address} and this one differ: {fault}");
                    refuse.insert(address);
                }
                // It may have ended.
                Err(_) => {}
            }
        }
        Ok(refuse.len() > accept.len())
    }
}
